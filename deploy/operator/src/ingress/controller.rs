//! Runs the controller of YurtIngresses: what triggers a look, and what happens after an error.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::store;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};

use super::apply::Applier;
use super::objects::{self, Objects};
use super::reconcile::{Context, RETRY, ReconcileError, reconcile};
use super::templates::{TEMPLATES, Templates};
use crate::api::YurtIngress;
use crate::changes::Changes;
use crate::events::Notices;
use crate::follow::Follower;
use crate::health::{Health, report};
use crate::metrics::Metrics;
use crate::pools::Inventory;
use crate::template::Surroundings;

/// The part in `/readyz`.
const INGRESSES: &str = "yurtingresses";
/// Changes within this time are looked at once.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// The pause after a retryable error.
const PAUSE: Duration = Duration::from_secs(5);

/// What the controller needs.
#[derive(Clone)]
pub struct IngressController {
    /// Its client.
    pub client: Client,
    /// What objects depend on.
    pub surroundings: Surroundings,
    /// The pools.
    pub inventory: Inventory,
    /// The namespace of ConfigMaps with templates.
    pub operator_namespace: String,
    /// The name of this replica.
    pub identity: String,
    /// The metrics.
    pub metrics: Metrics,
}

impl IngressController {
    /// Its parts in `/readyz`.
    pub fn parts() -> impl Iterator<Item = String> {
        [TEMPLATES.to_owned(), INGRESSES.to_owned()].into_iter().chain(objects::parts())
    }

    /// Runs for ever.
    pub async fn run(self, health: &Arc<Health>) {
        let (objects, objects_watch) = Objects::new(self.client.clone(), &self.surroundings.namespace);
        let (templates, templates_watch) = Templates::new(self.client.clone(), &self.operator_namespace);
        let api: Api<YurtIngress> = Api::all(self.client.clone());
        // The controller does not look at an object whose turn comes because another one is gone.
        let (ingresses, ingresses_writer) = store();
        let gone = Changes::default();
        let controller = Controller::new(api.clone(), watcher::Config::default())
            .with_config(controller::Config::default().debounce(DEBOUNCE).concurrency(1))
            .reconcile_all_on(objects.changes())
            .reconcile_all_on(templates.changes())
            .reconcile_all_on(self.inventory.changes())
            .reconcile_all_on(gone.stream());
        let context = Arc::new(Context {
            applier: Applier::new(self.client.clone(), objects.clone(), self.metrics.clone()),
            notices: Notices::new(self.client.clone(), &self.identity),
            client: self.client,
            surroundings: self.surroundings,
            inventory: self.inventory.clone(),
            objects: objects.clone(),
            templates: templates.clone(),
            metrics: self.metrics,
            health: health.clone(),
            ingresses: ingresses.clone(),
        });
        let looks = async {
            // Before, what exists would seem to be missing.
            let _ =
                tokio::join!(objects.ready(), templates.ready(), self.inventory.ready(), ingresses.wait_until_ready());
            let mut results = pin!(controller.run(reconcile, after_error, context));
            while let Some(result) = results.next().await {
                match result {
                    // The other watch of the same resource reports it.
                    Err(controller::Error::QueueError(_)) => {}
                    Err(controller::Error::ReconcilerFailed(error, ingress)) => {
                        health.fails(&part_of(&ingress.name), report(&error));
                    }
                    // It was deleted meanwhile.
                    Err(controller::Error::ObjectNotFound(ingress)) => health.works(&part_of(&ingress.name)),
                    Ok((ingress, _)) => health.works(&part_of(&ingress.name)),
                    Err(error) => tracing::warn!(reason = report(&error), "the controller of YurtIngresses failed"),
                }
            }
        };
        let resource = "yurtingresses.apps.openyurt.io";
        let follower = Follower { part: INGRESSES, resource, changes: &gone, health };
        let events = watcher(api, watcher::Config::default());
        let trim = |ingress: &mut YurtIngress| ingress.metadata.managed_fields = None;
        let followed =
            follower.follow(events, ingresses_writer, trim, |ingress| ingress.metadata.deletion_timestamp.is_some());
        tokio::join!(objects_watch.run(health), templates_watch.run(health), looks, followed);
    }
}

/// The part of one YurtIngress in `/readyz`.
fn part_of(name: &str) -> String {
    format!("{INGRESSES}: {name}")
}

fn after_error(_: Arc<YurtIngress>, error: &ReconcileError, _: Arc<Context>) -> Action {
    Action::requeue(if error.is_retryable() { PAUSE } else { RETRY })
}
