//! Clients that write a request so that Weir and the API server read it otherwise.

use http::StatusCode;
use serde_json::json;
use weir_apiserver::{Action, ApiServer, Enforce};
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;

const SERVICES: &str = "/api/v1/services";

/// A daemon with its caches, and Services in front of whose view it stands. Alice may watch one of them, Bob all.
async fn caching() -> (ApiServer, Daemon) {
    let server = api_server().token("a", "alice", &[]).token("b", "bob", &[]).start().await.unwrap();
    for name in ["one", "two", "three"] {
        put(&server, name, "80");
    }
    server.set_policy(|asked| {
        asked.user.name != "alice" || asked.resource != "services" || (asked.name == "two" && asked.verb != "list")
    });
    server.enforce(Enforce::Token("a".to_owned()));
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let all = of(&weir, "b").names(&format!("{SERVICES}?resourceVersion=0")).await;
    assert_eq!(all.len(), 3);
    (server, weir)
}

fn of(weir: &Daemon, token: &str) -> Client {
    weir.client("tool").with("authorization", &format!("Bearer {token}"))
}

fn put(server: &ApiServer, name: &str, port: &str) {
    let metadata = json!({"name": name, "namespace": "shop", "labels": {"port": port}});
    server.store().put(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})).unwrap();
}

#[tokio::test]
async fn who_may_watch_one_object_sees_no_other_one_by_any_path() {
    let (server, weir) = caching().await;
    let alice = of(&weir, "a");
    for path in [
        "/api/v1/watch/namespaces/shop/services/two",
        "/api/v1/watch/namespaces/shop/services/two?labelSelector=port",
        "/api/v1/namespaces/shop/services?watch=1&fieldSelector=metadata.name%3Dtwo",
        "/api/v1/namespaces/shop/services?watch=1&fieldSelector=metadata.name%3D%3Dtwo,metadata.name%3Dtwo",
    ] {
        put(&server, "one", path);
        put(&server, "two", "80");
        let mut events = alice.watch(path).await;
        let first = events.next_named().await;
        assert!(first.ends_with("two"), "{path}: {first}");
        put(&server, "three", path);
        put(&server, "two", "81");
        let next = events.next_named().await;
        assert!(next.ends_with("two"), "{path}: {next}");
    }
    for path in ["/api/v1/watch/namespaces/shop/services", "/api/v1/watch/namespaces/shop/services/one", SERVICES] {
        assert_eq!(alice.get(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn what_the_api_server_refuses_is_answered_from_no_cache() {
    let (server, weir) = caching().await;
    let bob = of(&weir, "b");
    let queries = [
        ("fieldSelector", "fieldSelector=metadata.name!%3D%3Done"),
        ("fieldSelector", "fieldSelector=spec.nodeName%3Done"),
        ("labelSelector", "labelSelector=port%20in%20(80,,)"),
        ("labelSelector", "labelSelector=port%3D-"),
        ("limit", "limit=x"),
        ("timeoutSeconds", "timeoutSeconds=x"),
        ("sendInitialEvents", "sendInitialEvents=true"),
        ("timeoutSeconds", "watch=1&timeoutSeconds=9223372036854775807"),
        ("continue", "watch=1&continue=x"),
    ];
    server.on_request(|request| match request.path.as_str() {
        SERVICES if request.header("authorization") == "Bearer b" => {
            Action::json(400, r#"{"message": "its own answer"}"#)
        }
        _ => Action::Serve,
    });
    for (_, query) in queries {
        let answer = bob.get(&format!("{SERVICES}?resourceVersion=0&{query}")).await;
        assert_eq!(
            (answer.status, answer.json()["message"].as_str()),
            (StatusCode::BAD_REQUEST, Some("its own answer")),
            "{query}"
        );
    }
    assert_eq!(bob.names(&format!("{SERVICES}?resourceVersion=0&fieldSelector=metadata.name%3Do%0Ae")).await.len(), 0);
    drop(server);
    for (parameter, query) in queries {
        let answer = bob.get(&format!("{SERVICES}?resourceVersion=0&{query}")).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{query}: {}", answer.text());
        assert_eq!(answer.json()["details"]["causes"][0]["field"], parameter, "{query}");
    }
    assert_eq!(bob.names(SERVICES).await.len(), 3, "the daemon still serves");
}
