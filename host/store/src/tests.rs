//! Reflectors against an in-memory API server. No test sleeps: each waits for the change, state or request it is about.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_kube::GroupResource;
use weir_spec::LookupSpec;
use weir_upstream::{Connectivity, Tasks};

use super::disk::DiskCache;
use super::*;

mod check;
mod consistent;
mod errors;
mod lookups;
mod refused;
mod resource_reflector;
mod restart;
mod shared;
mod sync;

/// An API server and reflectors that read from it.
struct Cluster {
    api: ApiServer,
    reflectors: Reflectors,
}

const TIMING: ReflectorTiming = ReflectorTiming {
    initial_backoff: Duration::from_millis(5),
    max_backoff: Duration::from_millis(50),
    rediscovery: Duration::from_millis(20),
    response_timeout: Duration::from_secs(10),
    watch_timeout: Duration::from_secs(60),
    first_bookmark: Duration::from_secs(4),
    max_list: 512 << 20,
    peer_rest: Duration::from_secs(3600),
};

/// No event takes this long.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn cluster() -> Cluster {
    let api = ApiServer::builder().start().await.unwrap();
    let reflectors = reflectors_of(api.url());
    Cluster { api, reflectors }
}

/// A client that does not retry.
pub(super) fn client(url: &str) -> kube::Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

fn reflectors_of(url: &str) -> Reflectors {
    reflectors_with(StoresFixture { url: url.to_owned(), ..StoresFixture::default() })
}

/// What the lookups of a test read.
#[derive(Clone, Default)]
struct StoresFixture {
    url: String,
    connectivity: Connectivity,
    timing: Option<ReflectorTiming>,
    disk: Option<Arc<DiskCache>>,
    shared: Vec<GroupResource>,
}

impl StoresFixture {
    fn open(self) -> ResourceStores {
        let daemon = ReflectorClient { client: client(&self.url), connectivity: self.connectivity, delegated: None };
        let (timing, disk, shared) = (self.timing.unwrap_or(TIMING), self.disk, self.shared);
        ResourceStores::new(
            ResourceStoresConfig { daemon: Some(daemon), timing, disk, shared, ..ResourceStoresConfig::default() },
            Tasks::default(),
        )
    }
}

fn without_a_server() -> Reflectors {
    Reflectors::new(ResourceStores::new(ResourceStoresConfig::default(), Tasks::default()))
}

fn reflectors_with(fixture: StoresFixture) -> Reflectors {
    Reflectors::new(fixture.open())
}

impl Cluster {
    fn put(&self, object: Value) {
        self.api.store().put(object).unwrap();
    }

    async fn open(&self, lookup: &LookupSpec) -> ReflectorHandle {
        let handle = self.reflectors.open(lookup);
        within(handle.synced()).await.unwrap();
        handle
    }

    /// Waits until the snapshot meets the condition.
    async fn until(&self, changes: &mut Changes, condition: impl Fn(&LookupSnapshot) -> bool) {
        within(async {
            while !condition(&self.reflectors.snapshot()) {
                changes.next().await.unwrap();
            }
        })
        .await;
    }

    fn targets(&self, part: &str) -> Vec<String> {
        let targets = self.api.requests().into_iter().map(|request| request.target());
        targets.filter(|target| target.contains(part)).collect()
    }

    /// Waits until this many watches are open on the API server.
    async fn watching(&self, count: usize) {
        within(self.api.open_watches().wait_for(|open| *open == count)).await.unwrap();
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("timed out")
}

/// Waits until a store is in a state that comes with a change.
async fn until(store: &cache::ResourceStore, condition: impl Fn(&cache::ResourceStore) -> bool) {
    let mut changes = store.subscribe();
    within(async {
        while !condition(store) {
            changes.changed().await.unwrap();
        }
    })
    .await;
}

fn service(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name, "labels": labels}, "spec": {"type": "ClusterIP"}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": "p"}}, "status": {"phase": "big"}})
}

fn names(snapshot: &LookupSnapshot, lookup: &LookupSpec) -> Vec<String> {
    let found = snapshot.find(lookup, None, "").unwrap();
    found.objects().iter().map(|object| object.document().name().unwrap().into_owned()).collect()
}
