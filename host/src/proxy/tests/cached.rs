//! Lists and watches from views: what informers of a node see, and what that costs the API server.

use std::sync::Mutex;

use weir_apiserver::{Action, End};
use weir_document::{Document, Path, TypeMeta};
use weir_runtime::Outcome;
use weir_store::{DelegatedClients, ReflectorClient, ReflectorTiming, ResourceStores, ResourceStoresConfig};
use weir_upstream::refusals;

use super::*;
use weir_view::{CachedResources, Views, ViewsConfig};

mod jumps;
mod last_good_outcome;
mod moving;
mod older_versions;
mod open_views;
mod options;

const SERVICES: &str = "/api/v1/services";

/// A proxy whose Services are cached, and a filter that hides the Services of these types.
async fn cached() -> (ProxyFixture, Script, Arc<Mutex<Vec<String>>>) {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    let hidden: Arc<Mutex<Vec<String>>> = Arc::new(Mutex::new(vec!["LoadBalancer".to_owned()]));
    let types = hidden.clone();
    let script = Script::new(move |document| {
        let kind = document.text(&Path::parse("spec.type").unwrap()).unwrap().unwrap_or_default().into_owned();
        if types.lock().unwrap().contains(&kind) { Outcome::Hidden } else { Outcome::Unchanged }
    });
    fixture.filter("*/services", &script);
    for (name, kind) in [("a", "ClusterIP"), ("b", "LoadBalancer"), ("c", "ClusterIP")] {
        fixture.service(name, kind);
    }
    (fixture, script, hidden)
}

async fn informer_list(fixture: &ProxyFixture) -> Value {
    fixture.settle(&format!("{SERVICES}?resourceVersion=0")).await
}

async fn informer_watch(fixture: &ProxyFixture, from: &str) -> EventReader {
    fixture.watch(&format!("{SERVICES}?watch=1&allowWatchBookmarks=true&resourceVersion={from}")).await
}

/// How often the reflector listed and watched. Stamps are read beside it.
fn upstream_reads(fixture: &ProxyFixture) -> (usize, usize) {
    let targets: Vec<_> = fixture.server.requests().iter().map(|request| request.target()).collect();
    let services = targets.iter().filter(|target| target.starts_with(SERVICES) && !target.contains("limit=1"));
    let watches = services.clone().filter(|target| target.contains("watch=")).count();
    (services.count() - watches, watches)
}

#[tokio::test]
async fn any_number_of_informers_cost_one_list_and_one_watch() {
    let (fixture, _script, _) = cached().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        let list = informer_list(&fixture).await;
        assert_eq!(names(&list), ["a", "c"]);
        assert_eq!(list["kind"], "ServiceList");
        all.push(informer_watch(&fixture, version(&list)).await);
    }
    fixture.service("d", "ClusterIP");
    for events in &mut all {
        assert_eq!(events.next_summary().await, "ADDED d");
    }
    assert_eq!(upstream_reads(&fixture), (1, 1));
}

#[tokio::test]
async fn hiding_and_showing_an_object_are_events_and_no_watch_ends() {
    let (fixture, script, hidden) = cached().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    for _ in 0..3 {
        hidden.lock().unwrap().push("ClusterIP".to_owned());
        script.change();
        let deleted = events.next().await.unwrap();
        assert_eq!((&deleted["type"], &deleted["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("a")));
        assert_eq!(deleted["object"]["spec"]["type"], "ClusterIP", "the last state that the client was shown");
        assert_eq!(events.next_summary().await, "DELETED c");
        let bookmark = events.next().await.unwrap();
        assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Service")));
        hidden.lock().unwrap().pop();
        script.change();
        assert_eq!(events.next_summary().await, "ADDED a");
        assert_eq!(events.next_summary().await, "ADDED c");
        assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    }
    assert_eq!(upstream_reads(&fixture), (1, 1));
}

#[tokio::test]
async fn a_watch_sends_the_version_before_it_ends() {
    let (fixture, _script, _) = cached().await;
    let list = informer_list(&fixture).await;
    let path =
        format!("{SERVICES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.service("hidden", "LoadBalancer");
    let bookmark = events.next().await.unwrap();
    let newest = fixture.server.store().revision().to_string();
    assert_eq!((&bookmark["type"], version(&bookmark["object"])), (&json!("BOOKMARK"), newest.as_str()));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_new_filter_set_without_another_outcome_is_not_noticed() {
    let (fixture, _script, hidden) = cached().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    let types = hidden.clone();
    let other = Script::new(move |document| {
        let kind = document.text(&Path::parse("spec.type").unwrap()).unwrap().unwrap_or_default().into_owned();
        if types.lock().unwrap().contains(&kind) { Outcome::Hidden } else { Outcome::Unchanged }
    });
    fixture.filter("*/services", &other);
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d", "no event precedes it");
}

#[tokio::test]
async fn a_watch_that_opens_a_view_gets_the_present_state_once_and_without_filters_nothing() {
    for filtered in [true, false] {
        let (fixture, _script, _) = cached().await;
        if !filtered {
            fixture.no_filters();
        }
        // The list goes to the API server, and the watch opens the view.
        let (_, list) = fixture.json(&format!("{SERVICES}?limit=500")).await;
        let mut events = informer_watch(&fixture, version(&list)).await;
        let state = ["MODIFIED a", "DELETED b", "MODIFIED c", "BOOKMARK "];
        for expected in state.iter().filter(|_| filtered) {
            assert_eq!(events.next_summary().await, *expected);
        }
        fixture.service("d", "ClusterIP");
        assert_eq!(events.next_summary().await, "ADDED d", "filtered: {filtered}");
    }
}

#[tokio::test]
async fn a_client_between_two_watches_gets_what_changed_meanwhile() {
    let (fixture, script, hidden) = cached().await;
    informer_list(&fixture).await;
    // Clients of an earlier process may hold any version up to the first one of the view.
    fixture.service("a", "ClusterIP");
    let newest = fixture.server.store().revision();
    let (_, list) = fixture.json(&format!("{SERVICES}?resourceVersion={newest}")).await;
    let mut other = informer_watch(&fixture, version(&list)).await;
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    assert_eq!(other.next_summary().await, "DELETED a");
    let mut events = informer_watch(&fixture, version(&list)).await;
    for expected in ["DELETED a", "DELETED b", "DELETED c"] {
        assert_eq!(events.next_summary().await, expected);
    }
}

#[tokio::test]
async fn an_upstream_change_that_hides_an_object_deletes_it_at_the_version_of_the_event() {
    let (fixture, _script, _) = cached().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    fixture.service("a", "LoadBalancer");
    let deleted = events.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["spec"]["type"], "ClusterIP");
    let version: u64 = deleted["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert_eq!(version, fixture.server.store().revision());
    fixture.service("a", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED a");
    fixture.server.store().delete("v1", "Service", "default", "b").unwrap();
    fixture.server.store().delete("v1", "Service", "default", "c").unwrap();
    assert_eq!(events.next_summary().await, "DELETED c", "the deletion of a hidden object is silence");
}

#[tokio::test]
async fn a_watch_list_starts_with_all_objects_and_marks_their_end() {
    let (fixture, _script, _) = cached().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = fixture.watch(&format!("{SERVICES}?{query}")).await;
    assert_eq!(events.next_summary().await, "ADDED a");
    assert_eq!(events.next_summary().await, "ADDED c");
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");

    let unmarked = query.trim_end_matches("&allowWatchBookmarks=true");
    let mut events = fixture.watch(&format!("{SERVICES}?{unmarked}")).await;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.insert(events.next_summary().await);
    }
    assert_eq!(seen, ["ADDED a", "ADDED c", "ADDED d"].map(str::to_owned).into(), "as the API server does");
    fixture.service("e", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED e", "no BOOKMARK in between");
}

#[tokio::test]
async fn selectors_and_namespaces_narrow_a_view_without_further_requests() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    for (query, expected) in [
        ("/api/v1/services?resourceVersion=0&fieldSelector=metadata.name%3Dc", vec!["c"]),
        ("/api/v1/services?resourceVersion=0&fieldSelector=spec.type%21%3DClusterIP", vec![]),
        ("/api/v1/services?resourceVersion=0&labelSelector=%21app", vec!["a", "c"]),
        ("/api/v1/services?resourceVersion=0&labelSelector=app", vec![]),
        ("/api/v1/namespaces/default/services?resourceVersion=0", vec!["a", "c"]),
        ("/api/v1/namespaces/other/services?resourceVersion=0", vec![]),
    ] {
        let (status, list) = fixture.json(query).await;
        assert_eq!((status, names(&list)), (StatusCode::OK, expected), "{query}");
    }
    assert_eq!(upstream_reads(&fixture).0, 1);
}

#[tokio::test]
async fn a_cached_list_is_what_the_api_server_answers_in_every_encoding() {
    let (fixture, _script, _) = cached().await;
    fixture.no_filters();
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let read = async |path: &str| {
        let answer = fixture.send(path, &accept).await;
        assert_eq!(answer.headers()["content-type"], "application/vnd.kubernetes.protobuf", "{path}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        protobuf_items(&body)
    };
    let direct = read(SERVICES).await;
    assert_eq!(direct.len(), 3);
    assert_eq!(read(&format!("{SERVICES}?resourceVersion=0")).await, direct);
    // The in-memory API server leaves out zero values of JSON that was written so. The protobuf form has them.
    let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Service".into() });
    let direct: Vec<Value> = direct
        .into_iter()
        .map(|item| Document::protobuf(item, type_meta.clone()).unwrap().to_json_item().unwrap())
        .map(|json| serde_json::from_slice(&json).unwrap())
        .collect();
    assert_eq!(informer_list(&fixture).await["items"], json!(direct));
}

#[tokio::test]
async fn a_list_that_is_requested_again_follows_each_change_of_its_objects() {
    let (fixture, script, hidden) = cached().await;
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    for n in 0..200 {
        fixture.service(&format!("n{n:03}"), "ClusterIP");
    }
    let mut events = informer_watch(&fixture, version(&informer_list(&fixture).await)).await;
    for round in 0..6 {
        let expected = match round {
            0 => None,
            1 => Some("MODIFIED n100"),
            2 | 4 => Some("DELETED n100"),
            3 => Some("ADDED n100"),
            _ => Some("ADDED n100a"),
        };
        match round {
            1 => fixture.service("n100", "NodePort"),
            2 => hidden.lock().unwrap().push("NodePort".to_owned()),
            3 => drop(hidden.lock().unwrap().pop()),
            4 => drop(fixture.server.store().delete("v1", "Service", "default", "n100").unwrap()),
            5 => fixture.service("n100a", "ClusterIP"),
            _ => {}
        }
        script.change();
        while let Some(expected) = expected {
            if events.next_summary().await == expected {
                break;
            }
        }
        for selector in ["", "&fieldSelector=metadata.name%21%3Dn007"] {
            let latest = format!("{SERVICES}?{}", selector.trim_start_matches('&'));
            let (_, direct) = fixture.json(&latest).await;
            let cached = format!("{SERVICES}?resourceVersion={}{selector}", version(&direct));
            let direct_items = protobuf_items(&read(&fixture, &latest, &protobuf).await);
            for again in 0..4 {
                let (_, list) = fixture.json(&cached).await;
                assert!(versions(&list) == versions(&direct), "{again} in round {round}: {selector}");
                let items = protobuf_items(&read(&fixture, &cached, &protobuf).await);
                assert!(items == direct_items, "{again} in round {round}: {selector}");
            }
        }
    }
}

/// The names and versions of a list's objects.
fn versions(list: &Value) -> Vec<(Value, Value)> {
    let metadata = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
    metadata.map(|metadata| (metadata["name"].clone(), metadata["resourceVersion"].clone())).collect()
}

/// The body of a response.
async fn read(fixture: &ProxyFixture, path: &str, headers: &[(&str, &str)]) -> Bytes {
    fixture.send(path, headers).await.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn who_may_not_read_gets_the_api_servers_refusal() {
    let (fixture, _script, _) = cached().await;
    let allowed = [("authorization", "Bearer good")];
    let denied = [("authorization", "Bearer bad")];
    fixture.server.add_token("good", "reader", &[]);
    fixture.server.add_token("bad", "stranger", &[]);
    fixture.server.enforce(weir_apiserver::Enforce::Everybody);
    fixture.server.set_policy(|asked| asked.user.name != "stranger" || asked.resource != "services");
    let path = format!("{SERVICES}?resourceVersion=0");
    assert_eq!(fixture.send(&path, &allowed).await.status(), StatusCode::OK);
    assert_eq!(fixture.send(&path, &denied).await.status(), StatusCode::FORBIDDEN);
}

impl FixtureConfig {
    /// The views: shared ones of the cached resources, private ones of all.
    pub(super) fn views(
        &self,
        upstream: &Arc<Upstream>,
        served: &weir_runtime::ServingReceiver,
        tasks: &Tasks,
    ) -> Arc<Views> {
        let daemon =
            ReflectorClient { client: upstream.client(), connectivity: upstream.connectivity(), delegated: None };
        let timing = ReflectorTiming::default();
        let resources = CachedResources::Only(self.cached.clone());
        let (disk, shared) = (self.disk.clone(), resources.shared());
        let daemon = Some(daemon);
        let (clients, connectivity, (refused, _)) = (upstream.clone(), upstream.connectivity(), refusals());
        let delegated: DelegatedClients = Arc::new(move |credential| ReflectorClient {
            client: clients.client_with_delegated(credential.clone(), refused.clone()),
            connectivity: connectivity.clone(),
            delegated: Some(credential),
        });
        let delegated = Some(delegated);
        let stores =
            ResourceStoresConfig { daemon, delegated, timing, disk, shared, ..ResourceStoresConfig::default() };
        let stores = ResourceStores::new(stores, tasks.clone());
        let (metrics, watch_memory) = (self.metrics.clone(), self.watch_memory);
        let config = ViewsConfig {
            resources,
            secrets_for: Vec::new(),
            stores,
            client: upstream.client(),
            metrics,
            watch_memory,
            ledger: self.ledger.clone(),
        };
        Views::new(config, served.clone(), tasks.clone())
    }
}

#[tokio::test]
async fn without_an_api_server_reads_are_answered_with_a_warning_and_watches_stay_open() {
    let (mut fixture, script, hidden) = cached().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    let discovery = fixture.json("/api/v1").await;
    fixture.server = ApiServer::builder().start().await.unwrap();
    // Also for the request that finds out.
    let answer = fixture.send(SERVICES, &[]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers()["warning"].to_str().unwrap().starts_with("299 - "));
    let (_, list) = fixture.json(&format!("{SERVICES}?limit=500")).await;
    assert_eq!(names(&list), ["a", "c"]);
    let object = |name: &str| format!("/api/v1/namespaces/default/services/{name}");
    assert_eq!(fixture.json(&object("a")).await.1["metadata"]["name"], "a");
    assert_eq!(fixture.json(&object("b")).await.0, StatusCode::NOT_FOUND, "it is hidden");
    assert_eq!(fixture.json(&object("none")).await.0, StatusCode::NOT_FOUND, "the cache is complete");
    assert_eq!(fixture.json("/api/v1/pods").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fixture.json("/api/v1").await, discovery, "it is remembered");
    for path in [SERVICES.to_owned(), object("a")] {
        let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
        let body = fixture.send(&path, &accept).await.into_body().collect().await.unwrap().to_bytes();
        let table: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")), "{path}");
        let columns: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(columns, ["Name", "Age"]);
        let row = &table["rows"][0];
        assert_eq!((&row["cells"][0], &row["object"]["kind"]), (&json!("a"), &json!("PartialObjectMetadata")));
        assert_eq!(row["object"]["metadata"]["name"], "a");
        let refused = fixture.send(&path, &[("accept", "text/html")]).await;
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE, "as the API server does: {path}");
    }
    let proxied = fixture.send(&format!("{}/proxy/", object("a")), &[("accept", "text/html")]).await;
    assert_eq!(proxied.status(), StatusCode::SERVICE_UNAVAILABLE, "a backend has other media types");
    hidden.lock().unwrap().clear();
    script.change();
    assert_eq!(events.next_summary().await, "ADDED b", "filters apply offline");
}

#[tokio::test]
async fn a_server_that_answers_is_asked_although_it_is_not_ready() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    let probes = tokio::sync::watch::Sender::new(0);
    let counted = probes.clone();
    fixture.server.on_request(move |request| match request.path.as_str() {
        "/readyz" => {
            counted.send_modify(|probes| *probes += 1);
            Action::json(500, "{}")
        }
        "/api/v1/pods" => Action::Hang,
        _ => Action::Serve,
    });
    // A request that gets no answer makes the daemon probe the server.
    let waits = fixture.json("/api/v1/pods");
    let checks = async {
        // Before the second probe the daemon has the result of the first.
        probes.subscribe().wait_for(|probes| *probes > 1).await.unwrap();
        let answer = fixture.send(SERVICES, &[]).await;
        assert_eq!((answer.status(), answer.headers().get("warning")), (StatusCode::OK, None));
    };
    tokio::select! {
        () = checks => {}
        answer = waits => panic!("{answer:?}"),
    }
}
