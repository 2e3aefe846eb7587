//! The reflector of a watch cache against an API server that misbehaves, and after a long outage.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use weir_apiserver::{Action, End, Gzip};
use weir_kube::RequestInfo;

use super::*;
use crate::cache::{Collection, Delta, ResourceReflector, ResourceStore};
use crate::peers::PeerOrder;
use crate::{CheckConfig, PeerClient};
use weir_upstream::{Upstream, UpstreamConfig};

/// A store of all Services, and the tasks that fill it.
pub(super) struct Reflected {
    pub(super) api: ApiServer,
    pub(super) store: Arc<ResourceStore>,
    _tasks: Tasks,
}

fn collection(path: &str) -> Collection {
    let request = RequestInfo::parse(&http::Method::GET, &path.parse().unwrap()).unwrap();
    Collection::whole(request.resource().unwrap())
}

fn reflect(api: ApiServer, path: &str, timing: ReflectorTiming, uplink: Option<UplinkLimit>) -> Reflected {
    let client = ReflectorClient { client: client(api.url()), connectivity: Connectivity::default(), delegated: None };
    let reflector = ResourceReflector::new(client, collection(path), timing).with_uplink_limit(uplink);
    let (store, tasks) = (reflector.store(), Tasks::default());
    tasks.spawn_until_stop(reflector.check(CheckConfig::default(), String::new()).run());
    tasks.spawn_until_stop(reflector.consistent_reads().run());
    tasks.spawn_until_stop(reflector.run());
    Reflected { api, store, _tasks: tasks }
}

pub(super) async fn services() -> Reflected {
    let api = ApiServer::builder().start().await.unwrap();
    for name in ["a", "b"] {
        api.store().put(service(name, json!({}))).unwrap();
    }
    let reflected = reflect(api, "/api/v1/services", TIMING, None);
    reflected.synced().await;
    reflected
}

impl Reflected {
    async fn synced(&self) {
        within(self.store.state().wait_for(|state| state.synced)).await.unwrap();
        within(self.api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    }

    async fn until(&self, condition: impl Fn(&ResourceStore) -> bool) {
        until(&self.store, condition).await;
    }

    async fn error(&self, text: &str) {
        let mut state = self.store.state();
        let failed = state.wait_for(|state| state.error.as_ref().is_some_and(|error| error.to_string().contains(text)));
        within(failed).await.unwrap();
    }

    fn names(&self) -> Vec<String> {
        self.store.snapshot().objects.keys().map(|key| key.name().to_owned()).collect()
    }
}

fn page(version: u64, items: &[&str], next: &str) -> Action {
    let items: Vec<_> = items
        .iter()
        .map(|name| json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": "5"}}))
        .collect();
    let list = json!({
        "kind": "NodePoolList", "apiVersion": "apps.openyurt.io/v1beta2",
        "metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items,
    });
    Action::json(200, list.to_string())
}

const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";

#[tokio::test]
async fn a_list_that_changes_between_two_pages_is_refused() {
    let api = ApiServer::builder().start().await.unwrap();
    api.on_request(|request| match request.target().contains("continue=") {
        false => page(10, &["a"], "next"),
        true => page(11, &["b"], ""),
    });
    let reflected = reflect(api, POOLS, TIMING, None);
    reflected.error("changed between two pages").await;
    assert!(reflected.names().is_empty() && !reflected.store.state().borrow().synced);
}

#[tokio::test]
async fn a_list_that_never_ends_is_refused() {
    let api = ApiServer::builder().start().await.unwrap();
    let pages = Arc::new(AtomicUsize::new(0));
    api.on_request(move |_| page(10, &[], &format!("next-{}", pages.fetch_add(1, Ordering::Relaxed))));
    let reflected = reflect(api, POOLS, TIMING, None);
    reflected.error("does not end").await;
}

#[tokio::test]
async fn repeated_and_older_events_change_nothing() {
    let reflected = services().await;
    let (before, position) = reflected.store.snapshot_and_position();
    let a = before.objects.values().next().unwrap().clone();
    let older = crate::cache::Object { version: a.version - 1, ..crate::cache::Object::clone(&a) };
    reflected.store.apply(vec![
        Delta::Put(crate::cache::Object::clone(&a)),
        Delta::Put(older),
        Delta::Remove(a.key.clone(), a.version - 1),
        Delta::Remove(StoreKey::new("default", "unknown"), before.version + 1),
        // It was deleted before the store's version.
        Delta::Put(crate::cache::Object { key: StoreKey::new("default", "gone"), ..crate::cache::Object::clone(&a) }),
        Delta::Bookmark(before.version - 1),
    ]);
    let (after, end) = reflected.store.snapshot_and_position();
    assert_eq!(
        (after.version, end, reflected.names()),
        (before.version, position, vec!["a".to_owned(), "b".to_owned()])
    );
}

#[tokio::test]
async fn an_object_of_a_list_exists_whatever_its_version() {
    let reflected = services().await;
    let before = reflected.store.snapshot();
    let mut objects: Vec<_> = before.objects.values().map(|object| crate::cache::Object::clone(object)).collect();
    objects.push(crate::cache::Object { key: StoreKey::new("default", "missed"), ..objects[0].clone() });
    reflected.store.replace(before.format.clone(), objects, before.version + 1);
    assert_eq!(reflected.names(), ["a", "b", "missed"]);
}

#[tokio::test]
async fn an_object_that_is_added_after_a_bookmark_from_the_future_is_kept() {
    let reflected = services().await;
    let future = reflected.store.snapshot().version + 1_000_000;
    reflected.store.apply(vec![Delta::Bookmark(future)]);
    for name in ["c", "d"] {
        reflected.api.store().put(service(name, json!({}))).unwrap();
    }
    reflected.until(|store| store.snapshot().objects.size() == 4).await;
    assert_eq!(reflected.store.snapshot().version, future, "no version goes backwards");
    let object = |name: &str| {
        let snapshot = reflected.store.snapshot();
        crate::cache::Object::clone(snapshot.objects.get(&StoreKey::new("default", name)).unwrap())
    };
    let (first, last) = (object("c"), object("d"));
    reflected.store.apply(vec![Delta::Remove(first.key.clone(), last.version + 1), Delta::Put(first)]);
    assert_eq!(reflected.names(), ["a", "b", "d"], "a repeated event does not bring a deleted object back");
}

#[tokio::test]
async fn a_bookmark_from_the_future_does_not_stop_a_store_for_ever() {
    let api = ApiServer::builder().start().await.unwrap();
    api.store().put(service("a", json!({}))).unwrap();
    let timing = ReflectorTiming { watch_timeout: Duration::from_secs(1), ..TIMING };
    let reflected = reflect(api, "/api/v1/services", timing, None);
    reflected.synced().await;
    let future = reflected.store.snapshot().version + 1_000_000;
    reflected.store.apply(vec![Delta::Bookmark(future)]);
    reflected.api.store().put(service("b", json!({}))).unwrap();
    reflected.api.close_watches(End::Clean);
    reflected.until(|store| store.snapshot().version < future).await;
    reflected.until(|store| store.snapshot().objects.size() == 2).await;
    reflected.api.store().put(service("c", json!({}))).unwrap();
    reflected.until(|store| store.snapshot().objects.size() == 3).await;
}

#[tokio::test]
async fn a_peer_that_lacks_what_a_client_waits_for_is_left() {
    let (api, peer) = (ApiServer::builder().start().await.unwrap(), ApiServer::builder().start().await.unwrap());
    for server in [&api, &peer] {
        server.store().put(service("a", json!({}))).unwrap();
    }
    let upstream = Upstream::new(&UpstreamConfig::new(kube::Config::new(peer.url().parse().unwrap())), Arc::default());
    let peers = PeerOrder { peers: vec![PeerClient::new("edge-b", Arc::new(upstream.unwrap()))], before: 1 };
    let timing = ReflectorTiming { first_bookmark: Duration::from_secs(1), ..TIMING };
    let client = ReflectorClient { client: client(api.url()), connectivity: Connectivity::default(), delegated: None };
    let reflector = ResourceReflector::new(client, collection("/api/v1/services"), timing).with_peers(peers);
    let (store, tasks) = (reflector.store(), Tasks::default());
    tasks.spawn_until_stop(reflector.run());
    let reflected = Reflected { api, store, _tasks: tasks };
    within(reflected.store.state().wait_for(|state| state.synced)).await.unwrap();
    assert_eq!(reflected.store.peer().as_deref(), Some("edge-b"));
    reflected.api.store().put(service("b", json!({}))).unwrap();
    reflected.store.want(reflected.api.store().revision());
    reflected.until(|store| store.snapshot().objects.size() == 2).await;
    assert_eq!(reflected.store.peer(), None, "it is read from the API server");
}

/// A Service whose metadata is a small part of it.
fn large(n: usize, change: usize) -> serde_json::Value {
    let ports: Vec<_> = (0..80).map(|port| json!({"name": format!("p{port}-{}", (n * 7919 + port * 104_729 + change) % 99_991), "port": 1000 + port, "protocol": "TCP"})).collect();
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": format!("s{n:04}")}, "spec": {"type": "ClusterIP", "ports": ports}})
}

#[tokio::test]
async fn after_an_outage_only_what_has_changed_is_fetched() {
    let api = ApiServer::builder().gzip(Gzip::Always).start().await.unwrap();
    for n in 0..500 {
        api.store().put(large(n, 0)).unwrap();
    }
    let reflected = reflect(api, "/api/v1/services", TIMING, None);
    reflected.synced().await;
    let full = reflected.store.received().bytes();
    let api = &reflected.api;
    api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    api.close_watches(End::Abort);
    within(api.open_watches().wait_for(|open| *open == 0)).await.unwrap();
    for n in 0..5 {
        api.store().put(large(n * 50, 1)).unwrap();
    }
    api.store().delete("v1", "Service", "default", "s0499").unwrap();
    api.compact();
    api.clear_requests();
    api.clear_hook();
    let newest = api.store().revision();
    reflected.until(|store| store.snapshot().version >= newest).await;
    reflected.synced().await;
    let again = reflected.store.received().bytes() - full;
    assert!(again * 100 <= full * 15, "{again} bytes instead of {full}");
    let snapshot = reflected.store.snapshot();
    assert_eq!(snapshot.objects.size(), 499);
    for n in [0, 50, 51] {
        let (_, object) =
            api.store().get("v1", "Service", "default", &format!("s{n:04}")).map(|object| ((), object)).unwrap();
        let known = snapshot.objects.get(&StoreKey::new("default", &format!("s{n:04}"))).unwrap();
        assert_eq!(object["metadata"]["resourceVersion"], known.version.to_string(), "{n}");
    }
    let lists = api
        .requests()
        .iter()
        .filter(|request| !request.target().contains("watch=") && !request.target().contains("fieldSelector"))
        .filter(|request| !request.target().ends_with("limit=1"))
        .count();
    assert_eq!(lists, 1, "one list of metadata, no full list");
}

#[tokio::test]
async fn a_list_of_many_changes_is_fetched_as_a_whole() {
    let api = ApiServer::builder().start().await.unwrap();
    for n in 0..100 {
        api.store().put(large(n, 0)).unwrap();
    }
    let reflected = reflect(api, "/api/v1/services", TIMING, None);
    reflected.synced().await;
    let api = &reflected.api;
    api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    api.close_watches(End::Abort);
    within(api.open_watches().wait_for(|open| *open == 0)).await.unwrap();
    for n in 0..100 {
        api.store().put(large(n, 1)).unwrap();
    }
    api.compact();
    api.clear_requests();
    api.clear_hook();
    let newest = api.store().revision();
    reflected.until(|store| store.snapshot().version >= newest).await;
    assert!(api.requests().iter().all(|request| !request.target().contains("fieldSelector")));
}

#[tokio::test]
async fn lists_take_no_more_than_the_rate_of_the_uplink() {
    let api = ApiServer::builder().gzip(Gzip::Always).start().await.unwrap();
    for n in 0..300 {
        api.store().put(large(n, 0)).unwrap();
    }
    let rate = 60_000;
    let started = tokio::time::Instant::now();
    let limit = UplinkLimit::new(NonZeroU64::new(rate).unwrap());
    let reflected = reflect(api, "/api/v1/services", TIMING, Some(limit));
    reflected.synced().await;
    let (bytes, took) = (reflected.store.received().bytes(), started.elapsed());
    // One second of the rate is burst.
    assert!(took.as_secs_f64() + 1.0 >= bytes as f64 / rate as f64, "{bytes} bytes in {took:?}");
    assert!(reflected.api.requests().len() > 3, "pages of a slow link are small");
}

#[tokio::test]
async fn a_version_without_an_event_is_reached_when_a_reader_waits_for_it() {
    let reflected = services().await;
    let version = reflected.api.store().advance();
    reflected.store.want(version);
    reflected.until(|store| store.snapshot().version >= version).await;
    within(reflected.api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    let requests = reflected.api.requests();
    assert_eq!(requests.iter().filter(|request| request.query.contains("limit=")).count(), 1, "no list");
}

#[tokio::test]
async fn a_version_that_may_never_exist_costs_one_short_watch() {
    let reflected = services().await;
    let (seconds, mut watches) = tokio::sync::watch::channel(Vec::new());
    reflected.api.on_request(move |request| {
        if let Some((_, value)) = request.query.split_once("timeoutSeconds=") {
            seconds.send_modify(|seen| seen.push(value.to_owned()));
        }
        Action::Serve
    });
    reflected.store.want(u64::MAX);
    let seen = within(watches.wait_for(|seen| seen.len() == 2)).await.unwrap().clone();
    assert_eq!(seen[0], TIMING.first_bookmark.as_secs().to_string());
    assert_ne!(seen[1], seen[0], "the next watch lasts");
}

const NODE_POOLS: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";

/// An API server whose lists never end: only a reader that counts before the end of a page gives one up.
async fn endless_lists() -> ApiServer {
    let api = ApiServer::builder().start().await.unwrap();
    api.on_request(|request| match request.path.as_str() {
        NODE_POOLS => {
            let item = r#"{"metadata":{"name":"a","resourceVersion":"1"},"x":"y"},"#.repeat(100);
            let head = r#"{"kind":"NodePoolList","apiVersion":"apps.openyurt.io/v1beta1","metadata":{"resourceVersion":"9"},"items":["#;
            let more = futures_util::stream::repeat(item).map(bytes::Bytes::from);
            let chunks = futures_util::stream::iter([bytes::Bytes::from(head)]).chain(more);
            let body = http_body_util::StreamBody::new(chunks.map(|chunk| Ok(http_body::Frame::data(chunk))));
            let mut response = http::Response::new(body.boxed_unsync());
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Action::Stream(response)
        }
        _ => Action::Serve,
    });
    api
}

#[tokio::test]
async fn a_page_counts_while_it_arrives() {
    let api = endless_lists().await;
    let reflected = reflect(api, NODE_POOLS, ReflectorTiming { max_list: 1 << 20, ..TIMING }, None);
    let mut state = reflected.store.state();
    let failed = within(state.wait_for(|state| state.error.is_some())).await.unwrap().error.clone().unwrap();
    // It may be a lookup, a cache of all objects, or what one client selects.
    let expected = "listing nodepools.apps.openyurt.io failed: its objects exceed 1048576 bytes: select fewer, look up metadata only, \
                    or leave the resource out of --cache-resources";
    assert_eq!(failed.to_string(), expected);
}

#[tokio::test]
async fn a_list_ends_where_its_reader_has_no_room_left() {
    let api = endless_lists().await;
    let reflected = reflect(api, NODE_POOLS, TIMING, None);
    let (seen, mut most) = tokio::sync::watch::channel(0);
    let store = reflected.store.clone();
    reflected.store.room().limit(move |bytes| {
        seen.send_modify(|seen| *seen = bytes.max(*seen));
        // The store reports the events that have arrived.
        store.status().arriving as u64 == bytes && bytes <= 1 << 20
    });
    let mut state = reflected.store.state();
    let failed = within(state.wait_for(|state| state.error.is_some())).await.unwrap().error.clone().unwrap();
    assert!(matches!(failed, crate::ReflectorError::NoRoom { .. }), "{failed}");
    let most = *most.borrow_and_update();
    assert!((1 << 20..4 << 20).contains(&most), "{most}");
}

#[tokio::test]
async fn a_server_that_answers_in_json_is_taken_as_it_answers() {
    let services = weir_apiserver::Resource::new("", "v1", "services", "Service");
    let api = ApiServer::builder().without_resource("", "services").resource(services).start().await.unwrap();
    api.store().put(service("a", json!({}))).unwrap();
    let reflected = reflect(api, "/api/v1/services", TIMING, None);
    reflected.synced().await;
    reflected.api.store().put(service("b", json!({}))).unwrap();
    reflected.until(|store| store.snapshot().objects.size() == 2).await;
    assert_eq!(reflected.store.snapshot().format.encoding, weir_kube::Encoding::Json);
    let requests = reflected.api.requests();
    assert!(requests.iter().all(|request| request.header("accept").contains("protobuf")), "{requests:?}");
}
