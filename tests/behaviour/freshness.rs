//! How new what a view serves is: reads that ask for what the API server has now, and what comes with them.

use std::time::Instant;

use http::HeaderValue;
use serde_json::Value;
use weir_apiserver::{Action, ApiServer, End, Recorded};
use weir_tests::client::{Client, Events};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::until;

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";
const WATCH_LIST: &str = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A daemon whose view of Services has reached all that was written.
async fn viewed() -> (ApiServer, Daemon, Client) {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.start_ready().await;
    let client = weir.client("kube-proxy");
    client.names(&format!("{SERVICES}?resourceVersion=0")).await;
    until!(server.requests().iter().any(|request| of_weir(&request) && request.query.contains("watch=")));
    weir.settled(&server).await;
    server.clear_requests();
    (server, weir, client)
}

/// The names of the initial events, and the version of the BOOKMARK at their end.
async fn initial(events: &mut Events) -> (Vec<String>, u64) {
    let mut names = Vec::new();
    loop {
        let event = events.next().await;
        let metadata = &event["object"]["metadata"];
        if event["type"] == "BOOKMARK" {
            assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
            return (names, metadata["resourceVersion"].as_str().unwrap().parse().unwrap());
        }
        names.push(metadata["name"].as_str().unwrap().to_owned());
    }
}

fn of_weir(request: &&Recorded) -> bool {
    request.path == SERVICES && request.header("user-agent").starts_with("weir")
}

fn is_metadata(request: &Recorded) -> bool {
    request.header("accept").contains("PartialObjectMetadataList")
}

#[tokio::test]
async fn a_watch_list_without_a_version_is_at_the_newest_one() {
    let (server, _weir, client) = viewed().await;
    let newest = server.store().advance();
    let mut events = client.watch(&format!("{SERVICES}?{WATCH_LIST}")).await;
    let (names, version) = initial(&mut events).await;
    assert!(names.contains(&"web".to_owned()) && !names.contains(&"shop".to_owned()), "{names:?}");
    assert!(version >= newest, "{version}, and the API server was at {newest}");
    let requests = server.requests();
    let own: Vec<_> = requests.iter().filter(of_weir).collect();
    assert!(
        requests.iter().all(|request| !request.header("user-agent").starts_with("kube-proxy")),
        "a view serves it: {requests:?}"
    );
    assert_eq!(own.iter().filter(|request| request.query == "limit=1").count(), 1, "{own:?}");
    assert_eq!(own.iter().filter(|request| is_metadata(request) && request.query != "limit=1").count(), 1, "{own:?}");
    // Where nothing was written meanwhile, the version itself is all that is asked for.
    server.clear_requests();
    let mut again = client.watch(&format!("{SERVICES}?{WATCH_LIST}")).await;
    assert_eq!(initial(&mut again).await, (names, version));
    let requests = server.requests();
    assert_eq!(requests.iter().filter(of_weir).count(), 1, "{requests:?}");
    // Any version is any: nothing is asked for.
    server.store().advance();
    server.clear_requests();
    let mut any = client.watch(&format!("{SERVICES}?{WATCH_LIST}&resourceVersion=0")).await;
    assert_eq!(initial(&mut any).await.1, version);
    assert_eq!(server.requests().iter().filter(of_weir).count(), 0);
}

#[tokio::test]
async fn a_view_that_is_behind_serves_no_watch_without_a_version() {
    let (server, weir, client) = viewed().await;
    let client = client.with("authorization", "Bearer own");
    let is_watch = |request: &Recorded| request.path == SERVICES && request.query.contains("watch=");
    // The shared reflector's, not that of the client's own store.
    server.on_request(move |request| match is_watch(request) && request.header("authorization") != "Bearer own" {
        true => Action::json(503, "{}"),
        false => Action::Serve,
    });
    server.clear_requests();
    server.close_watches(End::Clean);
    // The reflector has lost its watch, and gets no other one.
    until!(server.requests().iter().any(|request| of_weir(&request) && request.query.contains("watch=")));
    server.store().put(service("new", "ClusterIP")).unwrap();
    for query in [WATCH_LIST, "watch=true"] {
        let mut events = client.watch(&format!("{SERVICES}?{query}")).await;
        let mut names = Vec::new();
        while !names.contains(&"ADDED new".to_owned()) {
            names.push(events.next_named().await);
        }
    }
    // The events arrive while the watch waits for them.
    server.store().put(service("later", "ClusterIP")).unwrap();
    server.clear_requests();
    let watch = async {
        let mut events = client.watch(&format!("{SERVICES}?{WATCH_LIST}")).await;
        initial(&mut events).await.0
    };
    let release = async {
        until!(server.requests().iter().any(|request| of_weir(&request) && is_metadata(request)));
        server.clear_hook();
    };
    let (names, ()) = tokio::join!(watch, release);
    assert!(names.contains(&"later".to_owned()), "{names:?}: {}", weir.log_text());
}

#[tokio::test]
async fn a_list_at_a_version_of_another_resource_waits_for_no_bookmark() {
    let (server, _weir, client) = viewed().await;
    let mut took = Vec::new();
    for _ in 0..5 {
        let newest = server.store().advance();
        let begun = Instant::now();
        let list = client.json(&format!("{SERVICES}?resourceVersion={newest}")).await;
        took.push(begun.elapsed());
        let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version >= newest);
    }
    println!("lists at a version of another resource: {took:?}");
    let requests = server.requests();
    assert!(requests.iter().filter(of_weir).all(|request| !request.query.contains("watch=")), "{requests:?}");
}

#[tokio::test]
async fn a_version_that_the_api_server_has_not_reached_is_refused_and_holds_nobody_back() {
    let (server, _weir, client) = viewed().await;
    let version = server.store().revision() + 1000;
    let answer = client.get(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (410, &Value::from("Expired")));
    for version in [version, u64::MAX] {
        for query in [String::new(), format!("&{WATCH_LIST}")] {
            let answer = client.get(&format!("{SERVICES}?resourceVersion={version}{query}")).await;
            let cause = &answer.json()["details"]["causes"][0]["reason"];
            assert_eq!((answer.status.as_u16(), cause), (504, &Value::from("ResourceVersionTooLarge")), "{query}");
        }
    }
    // One that it has reached is waited for.
    let newest = server.store().advance();
    let mut events = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={newest}")).await;
    server.store().put(service("new", "ClusterIP")).unwrap();
    let mut named = String::new();
    while named != "ADDED new" {
        named = events.next_named().await;
    }
}

#[tokio::test]
async fn a_parameter_that_weir_does_not_know_reaches_the_api_server() {
    let (server, _weir, client) = viewed().await;
    let unknown = "shardSelector=shardRange(metadata.uid,0,1)";
    let names = client.names(&format!("{SERVICES}?resourceVersion=0&{unknown}")).await;
    assert!(names.contains(&"web".to_owned()) && !names.contains(&"shop".to_owned()), "it is filtered: {names:?}");
    let mut events = client.watch(&format!("{SERVICES}?watch=true&resourceVersion=0&{unknown}")).await;
    events.next_named().await;
    let is_sharded = |request: &&Recorded| request.query.contains("shardSelector=shardRange");
    let reaches =
        |query: &str| server.requests().iter().filter(is_sharded).any(|request| request.query.starts_with(query));
    assert!(reaches("resourceVersion=0") && reaches("limit=500"), "{:?}", server.requests());
    until!(reaches("watch=true"));
    // What client-go sends beside the options is known.
    server.clear_requests();
    client.names(&format!("{SERVICES}?resourceVersion=0&timeout=7m5s&pretty=false")).await;
    assert_eq!(server.requests().iter().filter(|request| request.path == SERVICES).count(), 0);
}

#[tokio::test]
async fn a_short_watch_ends_with_a_bookmark() {
    let (server, _weir, client) = viewed().await;
    let newest = server.store().put(service("new", "ClusterIP")).unwrap();
    for seconds in [1, 2] {
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={newest}");
        let mut events = client.watch(&format!("{SERVICES}?{query}")).await;
        let mut last = Value::Null;
        while let Some(event) = events.try_next().await.unwrap() {
            last = event;
        }
        assert_eq!(last["type"], "BOOKMARK", "{seconds}: {last}");
        let version: u64 = last["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version >= newest, "{seconds}: {version}");
    }
    let mut events = client.watch(&format!("{SERVICES}?watch=true&timeoutSeconds=1&resourceVersion={newest}")).await;
    assert_eq!(events.try_next().await, Ok(None), "who does not ask for BOOKMARKs gets none");
}

#[tokio::test]
async fn what_the_api_server_warns_of_comes_with_cached_reads() {
    const DEPRECATED: &str = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    let server = edge().await;
    server.on_request(|request| match request.path.ends_with("/endpoints") {
        true => Action::Warn(HeaderValue::from_static(DEPRECATED)),
        false => Action::Serve,
    });
    let weir = Setup::new(server.url()).start_ready().await;
    let client = weir.client("kube-proxy");
    for query in ["resourceVersion=0", "watch=true&resourceVersion=0&timeoutSeconds=1"] {
        let answer = client.get(&format!("/api/v1/endpoints?{query}")).await;
        assert_eq!(answer.headers.get("warning").map(HeaderValue::as_bytes), Some(DEPRECATED.as_bytes()), "{query}");
        let other = client.get(&format!("{SERVICES}?{query}")).await;
        assert_eq!(other.headers.get("warning"), None, "{query}");
    }
    let read = |request: &&Recorded| {
        request.path.ends_with("/endpoints") && request.header("user-agent").starts_with("kube-proxy")
    };
    assert_eq!(server.requests().iter().filter(read).count(), 0, "a view answers");
}
