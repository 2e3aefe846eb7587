//! A node without its API server: who gets what from the cache.

use http::Method;
use serde_json::json;
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant_kubelets;
use weir_tests::pki::Authority;

use super::NO_LOAD_BALANCERS;

/// What kubelet reads for one Secret of a pod.
const SECRET: &str = "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dweb&limit=500&resourceVersion=0";
const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/web/token";

struct Edge {
    server: ApiServer,
    weir: Daemon,
    kubelet: Client,
    /// Another node.
    stranger: Client,
}

/// Two kubelets with client certificates.
async fn edge() -> Edge {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    grant_kubelets(&server);
    for kind in ["Secret", "ServiceAccount"] {
        let metadata = json!({"name": "web", "namespace": "default"});
        server.store().put(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap();
    }
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .start_ready()
        .await;
    let url = weir.secure_url().await;
    let client = |user| {
        let pair = clients.client(user, "system:nodes");
        Client::trusting(&url, "kubelet", Some(ca.pem()), Some(&pair)).with("content-type", "application/json")
    };
    let (kubelet, stranger) = (client("system:node:edge-a"), client("system:node:edge-b"));
    Edge { server, weir, kubelet, stranger }
}

#[tokio::test]
async fn kubelets_secrets_are_listed_and_watched_once_with_its_own_rights() {
    let edge = edge().await;
    edge.server.clear_requests();
    for _ in 0..3 {
        let list = edge.kubelet.json(SECRET).await;
        assert_eq!(list["items"][0]["metadata"]["name"], "web");
    }
    let reads = edge.server.requests();
    let reads: Vec<_> = reads.iter().filter(|request| request.target().contains("/secrets")).collect();
    let lists: Vec<_> = reads.iter().filter(|request| !request.target().contains("watch=true")).collect();
    assert_eq!(lists.len(), 1, "{:?}", reads.iter().map(|request| request.target()).collect::<Vec<_>>());
    assert!(lists[0].header("user-agent").starts_with("weir/"));
    assert_eq!(lists[0].header("impersonate-user"), "system:node:edge-a");
}

#[tokio::test]
async fn without_the_api_server_kubelet_gets_its_secrets_services_and_tokens_and_a_stranger_does_not() {
    let edge = edge().await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
    let token = async |client: &Client| {
        whole(client.send(Method::POST, TOKEN, request.clone()).await).await.unwrap().status.as_u16()
    };
    assert_eq!(token(&edge.kubelet).await, 201);
    for path in [SECRET, SERVICES] {
        assert_eq!(edge.kubelet.get(path).await.status, 200, "{path}");
    }
    drop(edge.server);
    edge.weir.logged("the API server is down").await;
    for path in [SECRET, SERVICES] {
        assert_eq!(edge.kubelet.get(path).await.status, 200, "{path}");
        assert_eq!(edge.stranger.get(path).await.status, 503, "{path}");
    }
    assert_eq!((token(&edge.kubelet).await, token(&edge.stranger).await), (201, 503));
    // The Secrets of the namespace were never read, so that nothing is known of their absence.
    assert_eq!(edge.kubelet.get("/api/v1/namespaces/default/secrets?resourceVersion=0").await.status, 503);
    assert!(edge.weir.metric("weir_offline_responses_total").await >= 3.0);
}

#[tokio::test]
async fn a_secret_that_was_read_by_name_is_remembered_for_kubelet_alone() {
    let edge = edge().await;
    let tool = edge.kubelet.clone().with("user-agent", "kubectl/v1.34");
    let (secret, node) = ("/api/v1/namespaces/default/secrets/web", "/api/v1/nodes/edge-a");
    for path in [secret, node] {
        for client in [&edge.kubelet, &tool] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
    }
    drop(edge.server);
    edge.weir.logged("the API server is down").await;
    assert_eq!(edge.kubelet.get(secret).await.status, 200);
    assert_eq!(tool.get(secret).await.status, 503);
    assert_eq!(tool.get(node).await.status, 200, "what is not confidential is remembered of each client of the node");
}

#[tokio::test]
async fn a_resource_that_the_daemon_may_not_list_is_forwarded() {
    let server = super::edge().await;
    server.add_token("mine", "reader", &[]);
    server.enforce(weir_apiserver::Enforce::Everybody);
    server.set_policy(|request| request.resource != "services" || request.user.name == "reader");
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let client = weir.client("tool").with("authorization", "Bearer mine");
    assert_eq!(client.names(SERVICES).await.len(), 4);
    let mut events = client.watch("/api/v1/services?watch=true").await;
    assert!(events.next_named().await.starts_with("ADDED "));
}

#[tokio::test]
async fn an_empty_value_turns_caching_off() {
    let server = super::edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").uncached().start_ready().await;
    server.clear_requests();
    for _ in 0..2 {
        weir.client("tool").names(SERVICES).await;
    }
    let forwarded = server.requests().iter().filter(|request| request.header("user-agent").starts_with("tool")).count();
    assert_eq!(forwarded, 2);
}
