//! Gets: one object, filtered as in a list.

use weir_tests::daemon::Setup;

use super::{NO_LOAD_BALANCERS, edge, only};

#[tokio::test]
async fn a_hidden_object_is_not_found() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    let hidden = client.get("/api/v1/namespaces/default/services/shop").await;
    let missing = client.get("/api/v1/namespaces/default/services/nobody").await;
    assert_eq!((hidden.status, missing.status), (http::StatusCode::NOT_FOUND, http::StatusCode::NOT_FOUND));
    let (hidden, missing) = (hidden.json(), missing.json());
    for field in ["kind", "status", "reason", "code"] {
        assert_eq!(hidden[field], missing[field], "{field}");
    }
    assert_eq!(hidden["message"], "services \"shop\" not found");
    assert_eq!(client.json("/api/v1/namespaces/default/services/web").await["metadata"]["name"], "web");
}

#[tokio::test]
async fn no_spelling_of_a_path_reaches_a_hidden_object() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    for path in [
        "/api/v1/namespaces/default/services/shop/",
        "/api/v1/namespaces/default//services/shop",
        "//api/v1/namespaces/default/services/shop",
        "/api/v1/namespaces/default/./services/shop",
        "/api/v1/namespaces/x/../default/services/shop",
        "/api/v1/namespaces/default/services%2fshop",
        "/api/v1/namespaces/default/services/%73hop",
        "/api/v1/namespaces/default/%73ervices/shop",
        "/api/v1/namespaces/default/services/shop/status",
        "/api/v1/watch/namespaces/default/services/shop?timeoutSeconds=1",
        "/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Dshop",
    ] {
        let answer = client.get(path).await;
        assert!(!answer.text().contains("10.96.10.12"), "{path}: {} {}", answer.status, answer.text());
    }
}

#[tokio::test]
async fn a_get_and_a_list_are_edited_alike() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters(&only("masterservice", "")).bundled("masterservice").start_ready().await;
    let one = weir.client("kubelet").json("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(one["spec"]["clusterIP"], "169.254.20.10");
    assert_eq!(one["spec"]["ports"][0]["port"], 10268);
    let list = weir.client("kubelet").json("/api/v1/services").await;
    let listed = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "kubernetes");
    assert_eq!(listed.unwrap()["spec"], one["spec"]);
    assert_eq!(one["kind"], "Service");
}

#[tokio::test]
async fn head_is_a_get_without_a_body() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    let answer = client.send(http::Method::HEAD, "/api/v1/namespaces/default/services/shop", "").await;
    assert_eq!(answer.status(), 404);
    let answer = client.send(http::Method::HEAD, "/api/v1/namespaces/default/services/web", "").await;
    assert_eq!(answer.status(), 200);
}
