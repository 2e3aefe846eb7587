//! Follows a resource: a watch that fills a store, signals changes, and reports its problems.

use std::pin::pin;

use futures_util::{Stream, StreamExt as _};
use kube::runtime::reflector::Lookup;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector};

use crate::backoff::with_backoff;
use crate::changes::Changes;
use crate::health::{Health, explain_watch};

/// Where the problems of a watch go, and who hears of its events.
pub(crate) struct Follower<'a> {
    /// The part in `/readyz`.
    pub(crate) part: &'a str,
    /// The resource, for messages.
    pub(crate) resource: &'a str,
    /// Signalled after the store has changed.
    pub(crate) changes: &'a Changes,
    /// Where problems are reported.
    pub(crate) health: &'a Health,
}

impl Follower<'_> {
    /// Writes what a watch reports into a store, for ever. `trim` drops what nobody reads; changes of objects that are not
    /// `relevant` are not signalled, but deletions are.
    pub(crate) async fn follow<K>(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
        writer: Writer<K>,
        trim: impl FnMut(&mut K) + Send,
        relevant: impl Fn(&K) -> bool,
    ) where
        K: Lookup + Clone + Send + 'static,
        K::DynamicType: Eq + std::hash::Hash + Clone,
    {
        let mut events = pin!(reflector(writer, with_backoff(events).modify(trim)));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(Event::InitDone) => {
                    self.health.works(self.part);
                    self.changes.signal();
                }
                // A deleted object may have blocked the operator: an object of another owner with a needed name.
                Ok(Event::Delete(_)) => {
                    self.health.works(self.part);
                    self.changes.signal();
                }
                Ok(Event::Apply(object)) => {
                    self.health.works(self.part);
                    if relevant(&object) {
                        self.changes.signal();
                    }
                }
                Err(error) => self.health.fails(self.part, explain_watch(self.resource, &error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::runtime::reflector::store;
    use kube::runtime::watcher::watcher;
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::fake_server::{self, Reply};

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn an_hour_without_the_api_server_costs_few_requests_and_ends_by_itself() {
        let (begun, requests) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let counted = requests.clone();
        let client = fake_server::client(move |(_, path, _)| {
            counted.fetch_add(1, Ordering::Relaxed);
            match begun.elapsed() {
                outage if outage < HOUR => Reply::Refused,
                _ if path.contains("watch=") => Reply::Watch,
                _ => Reply::Json(
                    200,
                    json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"},
                        "items": [{"metadata": {"name": "a", "namespace": "n"}}]}),
                ),
            }
        });
        let (store, writer) = store();
        let (changes, health) = (Changes::default(), Health::starting(["maps"]));
        let follower = Follower { part: "maps", resource: "configmaps", changes: &changes, health: &health };
        let events = watcher(Api::<ConfigMap>::all(client), watcher::Config::default());
        let follow = follower.follow(events, writer, |_| (), |_| true);
        let outage = async {
            sleep(HOUR / 2).await;
            assert!(health.report().starts_with("maps: configmaps: "), "{}", health.report());
            store.wait_until_ready().await.unwrap();
        };
        tokio::select! {
            () = follow => panic!("it follows for ever"),
            () = outage => {}
        }
        let (late, requests) = (begun.elapsed() - HOUR, requests.load(Ordering::Relaxed));
        println!("an hour without the API server: {requests} requests, and {late:.1?} until the first list");
        assert!(late < Duration::from_secs(60) && requests < 240, "{late:?}, {requests}");
        assert_eq!((health.report().as_str(), store.state().len()), ("", 1));
    }
}
