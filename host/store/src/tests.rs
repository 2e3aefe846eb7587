//! The feeds against a served API. Nothing here sleeps: each test waits for the change, state or request that it is about.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_apiserver::{Action, ApiServer, End, Enforce, Gzip, Resource};

use super::*;
use weir_kube::Lookup;
use weir_upstream::{Reach, Tasks};

/// A served API and feeds on it.
struct Scene {
    api: ApiServer,
    feeds: Feeds,
}

const TIMING: Timing = Timing {
    back_off: Duration::from_millis(5),
    back_off_most: Duration::from_millis(50),
    missing: Duration::from_millis(20),
    answer: Duration::from_secs(10),
    watch: Duration::from_secs(60),
};

/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

async fn scene() -> Scene {
    let api = ApiServer::builder().start().await.unwrap();
    let feeds = feeds_on(api.url());
    Scene { api, feeds }
}

/// A client that shows each failure at once.
pub(super) fn client(url: &str) -> kube::Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

fn feeds_on(url: &str) -> Feeds {
    Feeds::with_timing(Some(Server { client: client(url), reach: Reach::default() }), Tasks::default(), TIMING)
}

impl Scene {
    fn put(&self, object: Value) {
        self.api.store().put(object).unwrap();
    }

    async fn open(&self, lookup: &Lookup) -> FeedHandle {
        let handle = self.feeds.open(lookup);
        within(handle.synced()).await.unwrap();
        handle
    }

    /// Waits until the snapshot is as wanted.
    async fn until(&self, changes: &mut Changes, wanted: impl Fn(&Snapshot) -> bool) {
        within(async {
            while !wanted(&self.feeds.snapshot()) {
                changes.next().await.unwrap();
            }
        })
        .await;
    }

    fn targets(&self, part: &str) -> Vec<String> {
        let targets = self.api.requests().into_iter().map(|request| request.target());
        targets.filter(|target| target.contains(part)).collect()
    }

    /// One watch is open upstream.
    async fn watching(&self, count: usize) {
        within(self.api.open_watches().wait_for(|open| *open == count)).await.unwrap();
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

fn service(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name, "labels": labels}, "spec": {"type": "ClusterIP"}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": "p"}}, "status": {"phase": "big"}})
}

fn names(snapshot: &Snapshot, lookup: &Lookup) -> Vec<String> {
    let found = snapshot.find(lookup, None, "").unwrap();
    found.objects().iter().map(|object| object.document().name().unwrap().into_owned()).collect()
}

#[tokio::test]
async fn a_synced_feed_answers_with_whole_typed_objects() {
    let scene = scene().await;
    scene.put(service("b", json!({"app": "x"})));
    scene.put(service("a", json!({"app": "y"})));
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    let snapshot = scene.feeds.snapshot();
    assert_eq!(names(&snapshot, &lookup), ["a", "b"]);
    let object = snapshot.get(&lookup, Some("default"), "a").unwrap();
    assert_eq!(object.document().kind().unwrap(), "Service", "items of a typed list take the list's kind");
    assert_eq!(object.document().api_version().unwrap(), "v1");
    assert_eq!(snapshot.find(&lookup, Some("default"), "app=x").unwrap().objects().len(), 1);
    assert!(snapshot.get(&lookup, Some("other"), "a").is_none());
}

#[tokio::test]
async fn changes_are_followed_and_told_by_key_and_an_old_snapshot_stays() {
    let scene = scene().await;
    scene.put(service("a", json!({})));
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    scene.watching(1).await;
    let before = scene.feeds.snapshot();
    let mut changes = scene.feeds.changes();
    scene.put(service("b", json!({"app": "x"})));
    let change = within(changes.next()).await.unwrap();
    let key = ObjectKey { namespace: "default".into(), name: "b".into() };
    assert_eq!(*change, Change::Objects { lookup: Arc::new(lookup.clone()), keys: vec![key] });
    assert_eq!(names(&scene.feeds.snapshot(), &lookup), ["a", "b"], "the snapshot is there before the change is told");
    scene.api.store().delete("v1", "Service", "default", "a").unwrap();
    scene.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["b"]).await;
    assert_eq!(names(&before, &lookup), ["a"]);
}

#[tokio::test]
async fn after_a_gap_that_the_server_has_forgotten_the_difference_is_listed() {
    let scene = scene().await;
    scene.put(service("stays", json!({})));
    scene.put(service("goes", json!({})));
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    scene.watching(1).await;
    let mut changes = scene.feeds.changes();
    scene.api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    scene.api.close_watches(End::Abort);
    scene.watching(0).await;
    scene.api.store().delete("v1", "Service", "default", "goes").unwrap();
    scene.put(service("comes", json!({})));
    scene.api.compact();
    scene.api.clear_hook();
    scene.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["comes", "stays"]).await;
    assert!(scene.targets("watch=").len() > 1);
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_without_a_list() {
    let scene = scene().await;
    scene.put(service("a", json!({})));
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    scene.watching(1).await;
    let mut changes = scene.feeds.changes();
    for (i, end) in [End::Clean, End::Abort].into_iter().enumerate() {
        scene.api.close_watches(end);
        scene.put(service(&format!("b{i}"), json!({})));
        scene.until(&mut changes, |snapshot| names(snapshot, &lookup).len() == i + 2).await;
    }
    assert_eq!(scene.targets("limit=").len(), 1, "{:?}", scene.targets("limit="));
}

#[tokio::test]
async fn a_kind_that_the_server_lacks_is_empty_and_is_looked_for() {
    let scene = scene().await;
    scene.api.remove_resource("apps.openyurt.io", "nodepools");
    let lookup = Lookup::all("nodepools".parse().unwrap());
    let handle = scene.open(&lookup).await;
    assert_eq!(handle.state(), FeedState { synced: true, problem: None });
    assert!(names(&scene.feeds.snapshot(), &lookup).is_empty());
    let mut changes = scene.feeds.changes();
    scene.api.add_resource(Resource::new("apps.openyurt.io", "v1beta2", "nodepools", "NodePool").cluster_scoped());
    scene.put(json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "p"}}));
    scene.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["p"]).await;
    scene.api.remove_resource("apps.openyurt.io", "nodepools");
    scene.api.close_watches(End::Clean);
    scene.until(&mut changes, |snapshot| names(snapshot, &lookup).is_empty()).await;
}

#[tokio::test]
async fn forbidden_names_the_missing_rule_and_is_mended_without_a_restart() {
    let scene = scene().await;
    scene.put(node("n1"));
    scene.api.set_policy(|attributes| attributes.resource != "nodes");
    scene.api.enforce(Enforce::Everybody);
    let lookup = Lookup::all("nodes".parse().unwrap());
    let handle = scene.feeds.open(&lookup);
    let error = within(handle.synced()).await.unwrap_err();
    let wanted = r#"looking up nodes is forbidden: the daemon's role needs a rule with apiGroups [""], resources ["nodes"], verbs ["list", "watch"]"#;
    assert!(error.to_string().starts_with(wanted), "{error}");
    let seen = handle.state();
    scene.api.enforce(Enforce::Nobody);
    let state = within(handle.state_after(&seen)).await;
    assert_eq!(state, FeedState { synced: true, problem: None });
    assert_eq!(names(&scene.feeds.snapshot(), &lookup), ["n1"]);
}

#[tokio::test]
async fn metadata_only_is_asked_for_and_held_as_such() {
    let scene = scene().await;
    scene.put(node("n1"));
    let lookup = Lookup { metadata_only: true, ..Lookup::all("nodes".parse().unwrap()) };
    let _feed = scene.open(&lookup).await;
    scene.watching(1).await;
    let mut changes = scene.feeds.changes();
    scene.put(node("n2"));
    scene.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["n1", "n2"]).await;
    for object in scene.feeds.snapshot().find(&lookup, None, "pool=p").unwrap().objects() {
        assert!(!String::from_utf8_lossy(object.document().bytes()).contains("phase"));
    }
    for request in scene.api.requests().iter().filter(|request| request.path.ends_with("/nodes")) {
        assert!(request.header("accept").contains("as=PartialObjectMetadata"), "{}", request.header("accept"));
    }
}

#[tokio::test]
async fn two_lookups_of_one_kind_are_two_feeds_and_equal_ones_are_one() {
    let scene = scene().await;
    scene.put(service("a", json!({"app": "x"})));
    scene.put(service("b", json!({"app": "y"})));
    let whole = Lookup::all("services".parse().unwrap());
    let named = Lookup { name: Some("a".into()), ..whole.clone() };
    let selected = Lookup { label_selector: Some("app in (y)".into()), ..whole.clone() };
    let handles =
        [scene.open(&whole).await, scene.open(&named).await, scene.open(&selected).await, scene.open(&whole).await];
    scene.watching(3).await;
    let snapshot = scene.feeds.snapshot();
    assert_eq!(names(&snapshot, &whole), ["a", "b"]);
    assert_eq!(names(&snapshot, &named), ["a"]);
    assert_eq!(names(&snapshot, &selected), ["b"]);
    assert_eq!(scene.targets("fieldSelector=metadata.name%3Da").len(), 2, "list and watch are narrowed");
    assert_eq!(scene.targets("labelSelector=app%20in%20%28y%29").len(), 2);
    let [first, named, selected, second] = handles;
    drop((first, named, selected));
    scene.watching(1).await;
    assert_eq!(names(&scene.feeds.snapshot(), &whole), ["a", "b"], "one handle keeps a feed");
    drop(second);
    scene.watching(0).await;
    assert!(names(&scene.feeds.snapshot(), &whole).is_empty());
}

#[tokio::test]
async fn the_versions_that_the_filter_can_read_are_tried_in_its_order() {
    let scene = scene().await;
    let pools = |versions: &[&str]| Lookup {
        versions: versions.iter().map(ToString::to_string).collect(),
        ..Lookup::all("nodepools".parse().unwrap())
    };
    let _old = scene.open(&pools(&["v9", "v1beta1", "v1beta2"])).await;
    let _any = scene.open(&pools(&[])).await;
    scene.watching(2).await;
    assert_eq!(scene.targets("/v1beta1/nodepools?limit=").len(), 1);
    assert_eq!(scene.targets("/v1beta2/nodepools?limit=").len(), 1);
    assert!(scene.targets("/v9/").is_empty());
    let none = scene.open(&pools(&["v9"])).await;
    assert!(none.state().synced, "a version that is not served counts as a kind that is not");
}

#[tokio::test]
async fn long_lists_come_in_pages_and_compressed() {
    let scene = scene().await;
    scene.api.set_gzip(Gzip::Always);
    for i in 0..1100 {
        scene.put(service(&format!("s{i:04}"), json!({})));
    }
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    let found = names(&scene.feeds.snapshot(), &lookup);
    assert_eq!(
        (found.len(), found.first().unwrap().as_str(), found.last().unwrap().as_str()),
        (1100, "s0000", "s1099")
    );
    assert_eq!(scene.targets("limit=500").len(), 3);
    assert_eq!(scene.targets("&continue=").len(), 2);
}

#[tokio::test]
async fn a_list_whose_pages_expire_is_begun_again() {
    let scene = scene().await;
    for i in 0..600 {
        scene.put(service(&format!("s{i:04}"), json!({})));
    }
    let once = std::sync::atomic::AtomicBool::new(true);
    scene.api.on_request(move |request| {
        if request.query.contains("continue=") && once.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Action::json(410, r#"{"kind":"Status","code":410,"reason":"Expired"}"#);
        }
        Action::Serve
    });
    let lookup = Lookup::all("services".parse().unwrap());
    let _feed = scene.open(&lookup).await;
    assert_eq!(names(&scene.feeds.snapshot(), &lookup).len(), 600);
}

#[tokio::test]
async fn garbage_is_a_problem_that_is_told_and_never_an_empty_list() {
    for garbage in [
        r#"{"kind":"ServiceList"}"#,
        r#"{"items":[{}],"metadata":{"resourceVersion":"1"}}"#,
        "{\"items\":[",
        "x",
        r#"{"items":[]}"#,
    ] {
        let scene = scene().await;
        scene.put(service("a", json!({})));
        scene.api.on_request(move |_| Action::json(200, garbage));
        let lookup = Lookup::all("services".parse().unwrap());
        let handle = scene.feeds.open(&lookup);
        let state = within(handle.state_after(&FeedState::default())).await;
        assert!(
            matches!(state, FeedState { synced: false, problem: Some(FeedError::Malformed { .. }) }),
            "{garbage}: {state:?}"
        );
        scene.api.clear_hook();
        within(handle.synced()).await.unwrap();
        assert_eq!(names(&scene.feeds.snapshot(), &lookup), ["a"]);
    }
}

#[tokio::test]
async fn a_server_that_can_not_be_reached_is_waited_for_and_the_reason_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let feeds = feeds_on(&format!("http://{address}"));
    let handle = feeds.open(&Lookup::all("services".parse().unwrap()));
    let state = within(handle.state_after(&FeedState::default())).await;
    assert!(
        matches!(&state.problem, Some(problem @ FeedError::Unreachable { .. }) if !problem.needs_people()),
        "{state:?}"
    );
    let _api = ApiServer::builder().address(address).start().await.unwrap();
    within(handle.synced()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_somebody_else_reaches_again_is_asked_before_its_time() {
    let api = ApiServer::builder().start().await.unwrap();
    let reach = Reach::default();
    let server = Server { client: client(api.url()), reach: reach.clone() };
    let patient = Timing { missing: Duration::from_secs(3600), ..TIMING };
    let feeds = Feeds::with_timing(Some(server), Tasks::default(), patient);
    let mut lookup = Lookup::all("widgets.example.org".parse().unwrap());
    lookup.optional = true;
    let handle = feeds.open(&lookup);
    within(handle.synced()).await.unwrap();
    let mut requests = api.request_count();
    let asked = *requests.borrow_and_update();
    reach.lost();
    reach.answered();
    within(requests.wait_for(|count| *count > asked)).await.unwrap();
}

#[tokio::test]
async fn while_the_server_is_away_what_is_held_stays() {
    let scene = scene().await;
    scene.put(service("a", json!({})));
    let lookup = Lookup::all("services".parse().unwrap());
    let handle = scene.open(&lookup).await;
    scene.watching(1).await;
    let seen = handle.state();
    scene.api.on_request(|_| Action::json(503, r#"{"kind":"Status","code":503,"message":"etcd is away"}"#));
    scene.api.close_watches(End::Abort);
    let state = within(handle.state_after(&seen)).await;
    assert!(state.synced && state.problem.unwrap().to_string().contains("503: etcd is away"));
    assert_eq!(names(&scene.feeds.snapshot(), &lookup), ["a"]);
    assert_eq!(within(handle.synced()).await, Ok(()));
}

#[tokio::test]
async fn without_a_server_a_feed_says_so() {
    let feeds = Feeds::new(None, Tasks::default());
    let error = feeds.open(&Lookup::all("services".parse().unwrap())).synced().await.unwrap_err();
    assert_eq!(error.to_string(), "looking up services: there is no API server to ask");
}

#[tokio::test]
async fn a_receiver_that_is_too_slow_is_told_that_everything_may_have_changed() {
    let feeds = Feeds::new(None, Tasks::default());
    let mut changes = feeds.changes();
    for i in 0..2000_u16 {
        let ip = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, i).into();
        let address = weir_kube::Address { interface_name: "eth0".into(), ip, prefix_length: 64, default_route: false };
        feeds.set_addresses([address].into());
    }
    assert_eq!(changes.ready().as_deref(), Some(&Change::Everything));
    assert_eq!(changes.ready().as_deref(), Some(&Change::Addresses));
}
