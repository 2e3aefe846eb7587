//! The self-check of stores against an API server, and a peer that forges.

mod goes_on;

use serde_json::json;
use weir_apiserver::{Action, ApiServer, ObjectStore};
use weir_kube::GroupResource;
use weir_upstream::{Upstream, UpstreamConfig};

use super::*;
use crate::PeerClient;
use crate::cache::{Collection, Delta, Difference, Object, ResourceReflector, ResourceStore};
use crate::peers::PeerOrder;

const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
const FAST: Duration = Duration::from_millis(50);

/// A store with its self-check, and the API server that it is compared with.
struct Checked {
    api: Arc<ApiServer>,
    store: Arc<ResourceStore>,
    config: CheckConfig,
    resource: GroupResource,
    findings: tokio::sync::broadcast::Receiver<CacheDifference>,
    _tasks: Tasks,
}

fn collection(path: &str) -> Collection {
    let request = weir_kube::RequestInfo::parse(&http::Method::GET, &path.parse().unwrap()).unwrap();
    Collection::whole(request.resource().unwrap())
}

/// Starts a store of the collection, which reads from the peer first if there is one.
fn checked(api: impl Into<Arc<ApiServer>>, collection: Collection, peer: Option<&PeerClient>) -> Checked {
    let api = api.into();
    let client = ReflectorClient { client: client(api.url()), connectivity: Connectivity::default(), delegated: None };
    let resource = collection.resource.clone();
    let order = PeerOrder { peers: peer.cloned().into_iter().collect(), before: 1 };
    // A peer that was left is back soon.
    let timing = ReflectorTiming { peer_rest: FAST, watch_timeout: Duration::from_secs(1), ..TIMING };
    let reflector = ResourceReflector::new(client, collection, timing).with_peers(order);
    let config = CheckConfig::new(Some(FAST), 1.0, Arc::default());
    let (store, tasks, findings) = (reflector.store(), Tasks::default(), config.findings.subscribe());
    tasks.spawn_until_stop(reflector.check(config.clone(), "the store".to_owned()).run());
    tasks.spawn_until_stop(reflector.run());
    Checked { api, store, config, resource, findings, _tasks: tasks }
}

fn pool(name: &str) -> serde_json::Value {
    json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": name}, "spec": {"type": "Edge"}})
}

impl Checked {
    async fn finding(&mut self) -> CacheDifference {
        within(self.findings.recv()).await.unwrap()
    }

    async fn until(&self, condition: impl Fn(&ResourceStore) -> bool) {
        until(&self.store, condition).await;
    }

    async fn synced(&self) {
        within(self.store.state().wait_for(|state| state.synced)).await.unwrap();
    }

    fn names(&self) -> Vec<String> {
        self.store.snapshot().objects.keys().map(|key| key.name().to_owned()).collect()
    }

    fn checks(&self, result: &'static str) -> u64 {
        self.config.metrics.checks(&self.resource, result)
    }

    /// Waits until so many comparisons have found nothing.
    async fn same(&self, count: u64) {
        let mut requests = self.api.request_count();
        within(async {
            while self.checks("same") < count {
                requests.changed().await.unwrap();
            }
        })
        .await;
    }
}

async fn server(fill: impl Fn(&ObjectStore)) -> ApiServer {
    let api = ApiServer::builder().start().await.unwrap();
    fill(api.store());
    api
}

/// An API server with the pool `p`.
async fn one_pool() -> ApiServer {
    server(|store| {
        store.put(pool("p")).unwrap();
    })
    .await
}

fn peer_at(url: &str) -> PeerClient {
    let upstream = Upstream::new(&UpstreamConfig::new(kube::Config::new(url.parse().unwrap())), Arc::default());
    PeerClient::new("edge-b", Arc::new(upstream.unwrap()))
}

/// An object of the store, as a forger changes it: same key, version and uid.
fn forged(object: &Object) -> Object {
    let text = String::from_utf8_lossy(&object.bytes).replace("Edge", "Evil");
    Object { bytes: text.into_bytes().into(), ..object.clone() }
}

#[tokio::test]
async fn a_store_that_equals_the_api_server_passes_while_objects_change() {
    let api = server(|store| {
        for n in 0..40 {
            store.put(service(&format!("s{n}"), json!({"a": "b"}))).unwrap();
        }
    });
    let mut checked = checked(api.await, collection("/api/v1/services"), None);
    checked.synced().await;
    for n in 0..20 {
        checked.api.store().put(service(&format!("s{}", n % 7), json!({"n": n.to_string()}))).unwrap();
        checked.api.store().delete("v1", "Service", "default", &format!("s{}", 20 + n)).unwrap();
        checked.same(n / 4 + 1).await;
    }
    assert!(checked.findings.try_recv().is_err());
    let lists = checked.api.requests();
    let metadata = |request: &&weir_apiserver::Recorded| {
        request.header("accept").contains("PartialObjectMetadataList")
            && request.query.contains("resourceVersionMatch=NotOlderThan")
    };
    assert!(lists.iter().any(|request| metadata(&request)));
    let full = lists.iter().filter(|request| request.query.contains("limit=500")).count();
    assert_eq!(full, 1, "the store was listed once");
}

#[tokio::test]
async fn a_store_with_selectors_passes_while_objects_enter_and_leave_it() {
    let api = server(|store| {
        store.put(service("in", json!({"pool": "p"}))).unwrap();
        store.put(service("out", json!({"pool": "q"}))).unwrap();
    });
    let narrow = Collection { label_selector: "pool=p".to_owned(), ..collection("/api/v1/services") };
    let mut checked = checked(api.await, narrow, None);
    checked.synced().await;
    for round in 1..5 {
        let (one, other) = if round % 2 == 0 { ("p", "q") } else { ("q", "p") };
        checked.api.store().put(service("in", json!({"pool": one}))).unwrap();
        checked.api.store().put(service("out", json!({"pool": other}))).unwrap();
        checked.same(round).await;
    }
    assert!(checked.findings.try_recv().is_err());
}

#[tokio::test]
async fn an_object_that_the_api_server_does_not_have_is_found_and_removed() {
    let mut checked = checked(one_pool().await, collection(POOLS), None);
    checked.synced().await;
    let object = checked.store.snapshot().objects.values().next().unwrap().clone();
    let ghost = Object { key: StoreKey::new("", "ghost"), version: object.version + 1, ..Object::clone(&object) };
    checked.store.apply(vec![Delta::Put(ghost)]);
    let found = checked.finding().await;
    assert_eq!((found.store.as_str(), found.peer), ("the store", None));
    checked.until(|store| store.snapshot().objects.size() == 1).await;
    assert_eq!(checked.names(), ["p"]);
}

#[tokio::test]
async fn content_that_was_changed_at_the_same_version_is_found_and_repaired() {
    let mut checked = checked(one_pool().await, collection(POOLS), None);
    checked.synced().await;
    let snapshot = checked.store.snapshot();
    let forged = snapshot.objects.values().map(|object| forged(object)).collect();
    checked.store.set_foreign();
    checked.store.replace(snapshot.format.clone(), forged, snapshot.version);
    assert_eq!(checked.finding().await.difference, Difference::Content(StoreKey::new("", "p")));
    let is_right = |store: &ResourceStore| {
        store.snapshot().objects.values().all(|object| String::from_utf8_lossy(&object.bytes).contains("Edge"))
    };
    checked.until(is_right).await;
}

#[tokio::test]
async fn a_store_that_is_ahead_of_the_api_server_is_listed_again() {
    let mut checked = checked(one_pool().await, collection(POOLS), None);
    checked.synced().await;
    let future = checked.store.snapshot().version + 1_000_000;
    checked.store.apply(vec![Delta::Bookmark(future)]);
    let found = checked.finding().await.difference;
    assert!(matches!(found, Difference::Ahead { version, .. } if version == future), "{found}");
    checked.until(|store| store.snapshot().version < future).await;
}

#[tokio::test]
async fn a_peer_whose_objects_differ_is_left_for_a_while() {
    // Also one that says nothing after its list, so that it is not the source any more when the difference is found.
    for is_behind in [false, true] {
        let forger = server(|store| {
            store.put(pool("p")).unwrap();
            store.put(pool("forged")).unwrap();
        });
        let (forger, api) = (forger.await, one_pool().await);
        let peer = peer_at(forger.url());
        while api.store().revision() < forger.store().revision() + u64::from(is_behind) {
            api.store().advance();
        }
        let mut first = checked(api, collection(POOLS), Some(&peer));
        first.synced().await;
        let found = first.finding().await;
        assert!(is_behind || found.peer.as_deref() == Some("edge-b"), "{found:?}");
        first.until(|store| store.peer().is_none() && store.snapshot().objects.size() == 1).await;
        assert_eq!(first.names(), ["p"]);
        assert!(!peer.is_distrusted(), "it may have relayed what it was sent");
    }
}

/// An object as an API server made it, which an earlier one had in another form.
fn typed(name: &str, of: &str) -> serde_json::Value {
    let mut pool = pool(name);
    pool["spec"]["type"] = json!(of);
    pool["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    pool
}

#[tokio::test]
async fn a_peer_is_distrusted_only_if_what_it_sends_after_a_new_list_differs_again() {
    let (api, relay) = (server(|_| {}).await, server(|_| {}).await);
    // The API server's form has changed at the same version, as after an upgrade.
    relay.store().put(typed("p", "Older")).unwrap();
    api.store().put(typed("p", "Edge")).unwrap();
    let peer = peer_at(relay.url());
    let mut first = checked(api, collection(POOLS), Some(&peer));
    let found = first.finding().await;
    assert_eq!(found.difference, Difference::Content(StoreKey::new("", "p")));
    let mut requests = relay.request_count();
    let is_right = |store: &ResourceStore| {
        store.snapshot().objects.values().all(|object| !String::from_utf8_lossy(&object.bytes).contains("Older"))
    };
    let (store, same) = (first.store.clone(), first.checks("same"));
    within(async {
        while !(store.peer().is_some() && is_right(&store) && first.checks("same") > same) {
            let _ = tokio::time::timeout(FAST, requests.changed()).await;
        }
    })
    .await;
    relay.store().put(typed("q", "Edge")).unwrap();
    first.api.store().put(typed("q", "Edge")).unwrap();
    first.same(first.checks("same") + 3).await;
    assert_eq!((first.checks("different"), peer.is_distrusted()), (1, false), "it relays what the API server has");
    relay.store().put(typed("r", "Evil")).unwrap();
    first.api.store().put(typed("r", "Edge")).unwrap();
    assert_eq!(first.finding().await.difference, Difference::Content(StoreKey::new("", "r")));
    within(peer.until_distrusted()).await;
    relay.clear_requests();
    let second = checked(one_pool().await, collection(POOLS), Some(&peer));
    second.synced().await;
    first.until(|store| store.peer().is_none()).await;
    let asked = relay.requests().iter().filter(|request| request.query.contains("limit=")).count();
    assert_eq!((second.store.peer(), asked), (None, 0));
}

#[tokio::test]
async fn a_peer_that_lets_a_store_list_again_and_again_is_found() {
    let (api, forger) = (Arc::new(one_pool().await), server(|_| {}).await);
    let real = api.clone();
    // Each list is behind the API server, and the next one leads over what the API server has now.
    forger.on_request(move |request| {
        if request.query.contains("watch=") {
            return Action::json(410, "{}");
        }
        real.store().advance();
        let version = real.store().advance() - 1;
        let ghost =
            json!({"metadata": {"name": "ghost", "uid": "u", "resourceVersion": "2"}, "spec": {"type": "Evil"}});
        let list = json!({
            "kind": "NodePoolList", "apiVersion": "apps.openyurt.io/v1beta2",
            "metadata": {"resourceVersion": version.to_string()}, "items": [ghost],
        });
        Action::json(200, list.to_string())
    });
    let peer = peer_at(forger.url());
    let mut checked = checked(api, collection(POOLS), Some(&peer));
    checked.finding().await;
    checked.until(|store| store.snapshot().objects.keys().all(|key| key.name() == "p")).await;
}

#[tokio::test]
async fn a_peer_of_which_nothing_is_certain_is_left_for_a_while() {
    let api = Arc::new(one_pool().await);
    let peer = peer_at(api.url());
    let (count, real) = (std::sync::atomic::AtomicU64::default(), Arc::downgrade(&api));
    api.on_request(move |request| {
        let is_comparison = request.header("accept").contains("Partial") && request.query.contains("NotOlderThan");
        if let Some(api) = real.upgrade().filter(|_| is_comparison) {
            for _ in 0..2 {
                let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                api.store().put(pool(&format!("n{n}"))).unwrap();
            }
        }
        Action::Serve
    });
    let mut checked = checked(api, collection(POOLS), Some(&peer));
    // Of two events in a row, the earlier one is not there any more.
    checked.store.limit_history(0);
    checked.synced().await;
    assert!(checked.store.peer().is_some());
    checked.until(|store| store.peer().is_none()).await;
    assert!(checked.checks("unclear") >= 3 && !peer.is_distrusted());
    assert!(checked.findings.try_recv().is_err());
}

#[tokio::test]
async fn an_honest_peer_is_kept() {
    let api = one_pool().await;
    let peer = peer_at(api.url());
    let checked = checked(api, collection(POOLS), Some(&peer));
    checked.synced().await;
    checked.api.store().put(pool("q")).unwrap();
    checked.same(3).await;
    assert_eq!((checked.checks("different"), checked.store.peer().as_deref()), (0, Some("edge-b")));
}

#[tokio::test]
async fn a_peer_whose_objects_take_too_much_memory_is_left() {
    let large = "x".repeat(1 << 20);
    let items: Vec<_> = (0..70)
        .map(|n| json!({"metadata": {"name": format!("p{n}"), "resourceVersion": "5"}, "spec": {"x": large}}))
        .collect();
    let list = json!({
        "kind": "NodePoolList", "apiVersion": "apps.openyurt.io/v1beta2", "metadata": {"resourceVersion": "9"}, "items": items,
    });
    let forger = server(|_| {}).await;
    let list = bytes::Bytes::from(list.to_string());
    forger.on_request(move |_| Action::json(200, list.clone()));
    let peer = peer_at(forger.url());
    let checked = checked(one_pool().await, collection(POOLS), Some(&peer));
    checked.synced().await;
    assert_eq!((checked.names(), checked.store.peer()), (vec!["p".to_owned()], None));
    assert_eq!(forger.requests().len(), 1);
}

#[tokio::test]
async fn a_list_that_is_refused_or_not_answered_is_no_finding() {
    let mut checked = checked(one_pool().await, collection(POOLS), None);
    checked.synced().await;
    checked.same(1).await;
    checked.api.on_request(|request| match request.header("accept").contains("Partial") {
        true => Action::json(500, "{}"),
        false => Action::Serve,
    });
    let mut requests = checked.api.request_count();
    within(async {
        while checked.checks("unclear") < 3 {
            requests.changed().await.unwrap();
        }
    })
    .await;
    assert!(checked.findings.try_recv().is_err());
}
