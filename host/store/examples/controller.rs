//! A controller that goes on without the API server, also after a restart.
//!
//! A kube-rs `Controller` reads from a `watcher`, which lists when the program starts: without an API server it reconciles nothing.
//! This one reads from a store of `weir-store`, which keeps the objects in memory and on disk. The restarted program reconciles
//! what is on disk, and follows the API server from there once it answers.
//!
//! ```text
//! KUBECONFIG=$HOME/.kube/config CACHE_DIRECTORY=/var/tmp/controller cargo run -p weir-store --example controller
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt as _, reflector};
use weir_store::cache::Collection;
use weir_store::disk::{DiskCache, DiskConfig};
use weir_store::{ReflectorClient, ResourceStores, ResourceStoresConfig, StoreReader};
use weir_upstream::{Tasks, Upstream, UpstreamConfig};

/// How long the end waits for tasks.
const DRAIN: Duration = Duration::from_secs(5);

// Visible in the crate for the test that runs it.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::var_os("CACHE_DIRECTORY").ok_or("CACHE_DIRECTORY is not set")?;
    let tasks = Tasks::default();

    // The connection. Its probes find out when the API server answers again.
    let upstream = Arc::new(Upstream::new(&UpstreamConfig::new(kube::Config::infer().await?), Arc::default())?);
    upstream.start_probes(&tasks);
    let connectivity = upstream.connectivity();

    // The file, and the task that commits changes to it.
    let mut settings = DiskConfig::new(Path::new(&directory), "controller");
    settings.connectivity = Some(connectivity.clone());
    let disk = DiskCache::new(settings, Arc::default());
    tasks.spawn_until_stop(disk.clone().run());

    // The stores, and the task that notices another cluster at the same address.
    let daemon = Some(ReflectorClient { client: upstream.client(), connectivity, delegated: None });
    let config = ResourceStoresConfig { daemon, disk: Some(disk.clone()), ..ResourceStoresConfig::default() };
    let stores = ResourceStores::new(config, tasks.clone());
    tasks.spawn_until_stop(stores.clone().confirm_cluster());

    // One store, in the place of a `watcher`. All that follows is as in any controller.
    let services = stores.open(&StoreReader::Daemon, &Collection::all::<Service>()).ok_or("no API server")?;
    let (reader, writer) = reflector::store();
    let changed = services.kube_events::<Service>().reflect(writer).applied_objects();
    Controller::for_stream(changed, reader)
        .shutdown_on_signal()
        .run(reconcile, |_, error, _| match *error {}, Arc::new(()))
        .for_each(async |reconciled| {
            // An object that is not readable, or that was deleted before its turn.
            if let Err(error) = reconciled {
                eprintln!("not reconciled: {error}");
            }
        })
        .await;

    // The last changes of a store are only written while it is open.
    tasks.drain(DRAIN).await;
    disk.close().await;
    drop(services);
    Ok(())
}

/// What the controller does for a Service. One from disk is no different.
async fn reconcile(service: Arc<Service>, _: Arc<()>) -> Result<Action, Infallible> {
    println!("reconciled {}/{}", service.namespace().unwrap_or_default(), service.name_any());
    Ok(Action::await_change())
}
