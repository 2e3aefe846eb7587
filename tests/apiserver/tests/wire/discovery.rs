//! Discovery, and requests for resources that the server lacks.

use http::StatusCode;
use serde_json::json;
use weir_apiserver::{ApiServer, Resource};

use crate::client::{Client, pool, start};

#[tokio::test]
async fn groups_versions_and_resources_are_discovered() {
    let (_server, client) = start().await;
    let core = client.get("/api/v1").await.json();
    assert_eq!(core["kind"], "APIResourceList");
    let services = core["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "services").unwrap();
    assert_eq!(services["namespaced"], true);
    assert!(services["verbs"].as_array().unwrap().contains(&json!("watch")));
    let groups = client.get("/apis").await.json();
    let yurt = groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == "apps.openyurt.io").unwrap();
    assert_eq!(yurt["preferredVersion"]["version"], "v1beta2");
    assert_eq!(client.get("/apis/apps.openyurt.io").await.json()["kind"], "APIGroup");
    assert_eq!(client.get("/version").await.json()["major"], "1");
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(client.get(path).await.bytes, "ok");
    }
}

#[tokio::test]
async fn an_unknown_path_gets_the_plain_404_of_kube_apiserver() {
    let (_server, client) = start().await;
    for path in ["/apis/none.example/v1/things", "/api/v1/foos", "/apis/none.example", "/nothing"] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.bytes, "404 page not found\n");
    }
}

#[tokio::test]
async fn kinds_come_and_go_at_run_time() {
    let server = ApiServer::builder().without_resource("apps.openyurt.io", "nodepools").start().await.unwrap();
    let client = Client::of(&server);
    let path = "/apis/apps.openyurt.io/v1beta2/nodepools";
    assert_eq!(client.get(path).await.status, StatusCode::NOT_FOUND);
    assert!(server.store().put(pool("hz", &[])).is_err());

    server.add_resource(Resource::new("apps.openyurt.io", "v1beta2", "nodepools", "NodePool").cluster_scoped());
    server.store().put(pool("hz", &["a"])).unwrap();
    assert_eq!(client.get(path).await.names(), ["hz"]);
    let mut watch = client.stream(&format!("{path}?watch=true")).await;
    assert_eq!(watch.brief().await.1, "hz");

    server.remove_resource("apps.openyurt.io", "nodepools");
    assert!(watch.ends().await);
    assert_eq!(client.get(path).await.bytes, "404 page not found\n");
}

#[tokio::test]
async fn versions_of_a_kind_share_their_objects() {
    let (server, client) = start().await;
    server.store().put(pool("hz", &["a"])).unwrap();
    for version in ["v1beta2", "v1beta1"] {
        let got = client.get(&format!("/apis/apps.openyurt.io/{version}/nodepools/hz")).await.json();
        assert_eq!(got["apiVersion"], format!("apps.openyurt.io/{version}"));
        assert_eq!(got["status"]["nodes"], json!(["a"]));
    }
    server.remove_version("apps.openyurt.io", "v1beta2", "nodepools");
    assert_eq!(client.get("/apis/apps.openyurt.io/v1beta2/nodepools/hz").await.status, StatusCode::NOT_FOUND);
    assert_eq!(client.get("/apis/apps.openyurt.io/v1beta1/nodepools/hz").await.status, StatusCode::OK);
}
