//! Start: nothing unfiltered is served before the first filter set. Matched requests wait, then get 503 with
//! Retry-After.

use weir_apiserver::Action;
use weir_tests::client::Client;
use weir_tests::daemon::{Setup, replace};
use weir_tests::edge::api_server;

use super::{NO_LOAD_BALANCERS, edge};

const SERVICES: &str = "/api/v1/services";

#[tokio::test]
async fn a_matched_read_waits_for_the_first_set_and_is_then_filtered() {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).flag("--start-wait", "60s");
    let module = setup.modules().join("discardcloudservice.wasm");
    let weir = setup.start().await;
    weir.logged("configuration refused").await;
    let client = weir.client("kube-proxy");
    let (list, one) = (client.clone(), client.clone());
    let waiting = [
        tokio::spawn(async move { list.get(SERVICES).await }),
        tokio::spawn(async move { one.get("/api/v1/namespaces/default/services/shop").await }),
    ];
    let mut events = {
        let client = client.clone();
        tokio::spawn(async move { client.watch(&format!("{SERVICES}?watch=true")).await })
    };
    // No rule matches it, so it does not wait.
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
    assert_eq!(client.get("/version").await.status, 200);
    assert!(waiting.iter().all(|request| !request.is_finished()) && !events.is_finished());
    assert_eq!(weir.admin().get("/readyz").await.status, 503);
    assert_eq!(weir.admin().get("/livez").await.status, 200);
    replace(&module, &std::fs::read(weir_tests::built::module("discardcloudservice")).unwrap());
    let [list, one] = waiting;
    assert_eq!(weir_tests::client::names(&list.await.unwrap().json()), ["dashboard", "kubernetes", "web"]);
    assert_eq!(one.await.unwrap().status, 404);
    let events = (&mut events).await.unwrap().next_named().await;
    assert_ne!(events, "ADDED shop");
    weir.ready().await;
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_503_with_retry_after() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).flag("--start-wait", "50ms").start().await;
    let answer = weir.client("kube-proxy").get(SERVICES).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["reason"], "ServiceUnavailable");
}

#[tokio::test]
async fn while_the_configuration_is_unknown_every_read_of_a_resource_waits() {
    let server = edge().await;
    server.on_request(|request| match request.target().contains("/configmaps") {
        true => Action::Hang,
        false => Action::Serve,
    });
    let weir = Setup::new(server.url()).flag("--start-wait", "50ms").start().await;
    for path in [SERVICES, "/api/v1/nodes", "/api/v1/namespaces/default/services/web", "/api/v1/services?watch=true"] {
        let answer = weir.client("anyone").get(path).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
    }
    assert_eq!(weir.client("anyone").get("/version").await.status, 200);
    let ready = weir.admin().get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("the configuration has not been read yet"), "{}", ready.text());
}

#[tokio::test]
async fn clients_that_connect_before_the_first_set_get_nothing_unfiltered() {
    let server = edge().await;
    for _ in 0..5 {
        let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start().await;
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let client = weir.client("kube-proxy");
                tokio::spawn(async move { client.names(SERVICES).await })
            })
            .collect();
        for client in clients {
            assert_eq!(client.await.unwrap(), ["dashboard", "kubernetes", "web"]);
        }
    }
}

#[tokio::test]
async fn sigterm_ends_it_with_exit_code_0() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let _events = weir.client("kube-proxy").watch(&format!("{SERVICES}?watch=true")).await;
    assert_eq!(weir.stop().await, Some(0));
}

#[tokio::test]
async fn an_api_server_that_starts_later_is_found() {
    let server = edge().await;
    let (url, address) = (server.url().to_owned(), server.address());
    server.stop().await;
    let weir = Setup::new(&url).flag("--start-wait", "50ms").start().await;
    assert_eq!(weir.client("kube-proxy").get("/version").await.status, 503);
    let server = api_server().address(address).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    weir.ready().await;
    assert_eq!(Client::new(weir.url(), "kube-proxy").names(SERVICES).await.len(), 4);
}
