//! Writes: a client cannot overwrite fields that a filter edits for it. Responses to writes are filtered as reads are.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Answer, Client, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;
use weir_tests::protobuf::{PROTOBUF, read};

use super::{edge, service};

const SERVICES: &str = "/api/v1/namespaces/default/services";
/// For clients that masterservice matches, its address is the daemon's.
const EDITED: &str = "/api/v1/namespaces/default/services/kubernetes";
/// A LoadBalancer.
const HIDDEN: &str = "/api/v1/namespaces/default/services/shop";
const UNTOUCHED: &str = "/api/v1/namespaces/default/services/web";

async fn filtering(writes: &str) -> (ApiServer, Daemon, Client) {
    let server = edge().await;
    let filters = format!(
        "filters:
  - {{name: gateway, module: masterservice.wasm, match: ['*/services']{writes}}}
  - {{name: no-clouds, module: discardcloudservice.wasm, match: ['*/services']{writes}}}
"
    );
    let weir = Setup::new(server.url())
        .filters(&filters)
        .bundled("masterservice")
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    let client = weir.client("tool");
    server.clear_requests();
    (server, weir, client)
}

async fn send(client: &Client, method: Method, path: &str, media: &'static str, body: &Value) -> Answer {
    let client = client.clone().with("content-type", media);
    whole(client.send(method, path, body.to_string()).await).await.unwrap()
}

fn replacing() -> [(Method, &'static str, Value); 3] {
    [
        (Method::PUT, "application/json", service("kubernetes", "ClusterIP")),
        (
            Method::PATCH,
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 1}]),
        ),
        (Method::PATCH, "application/merge-patch+json; charset=utf-8", json!({"spec": {"ports": [{"port": 1}]}})),
    ]
}

#[tokio::test]
async fn a_client_cannot_overwrite_fields_that_a_filter_edits_for_it() {
    let (server, _weir, client) = filtering("").await;
    let store = |path: &str| server.store().get("v1", "Service", "default", path.rsplit('/').next().unwrap()).unwrap();
    for (path, filter) in [(EDITED, "gateway"), (HIDDEN, "no-clouds")] {
        let before = store(path);
        for (method, media, body) in replacing() {
            let answer = send(&client, method.clone(), path, media, &body).await;
            let status = answer.json();
            assert_eq!((answer.status, &status["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")), "{media}");
            assert!(status["message"].as_str().unwrap().contains(filter), "{media}: {status}");
            assert_eq!(status["details"]["name"], path.rsplit('/').next().unwrap());
        }
        assert_eq!(store(path), before);
    }
    // Whose credential it is is asked by a POST.
    let requests = server.requests();
    let mut sent = requests.iter().filter(|request| !request.path.ends_with("reviews"));
    assert!(sent.all(|request| request.method == Method::GET), "nothing else went up");
    // An object that the filter leaves unchanged for the client can be written back.
    let mut web = client.json(UNTOUCHED).await;
    web["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(send(&client, Method::PUT, UNTOUCHED, "application/json", &web).await.status, 200);
    let patch = json!({"metadata": {"labels": {"a": "c"}}});
    assert_eq!(send(&client, Method::PATCH, UNTOUCHED, "application/merge-patch+json", &patch).await.status, 200);
    assert_eq!(store(UNTOUCHED)["metadata"]["labels"]["a"], "c");
}

#[tokio::test]
async fn writes_that_name_their_fields_pass_and_so_do_sub_resources_and_deletion() {
    let (server, _weir, client) = filtering("").await;
    let labels = |value: &str| json!({"metadata": {"labels": {"by": value}}});
    let answer =
        send(&client, Method::PATCH, EDITED, "application/strategic-merge-patch+json", &labels("strategic")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let stored = server.store().get("v1", "Service", "default", "kubernetes").unwrap();
    assert_eq!(stored["metadata"]["labels"]["by"], "strategic");
    let own = stored["spec"]["clusterIP"].clone();
    let mut applied = labels("apply");
    applied["apiVersion"] = json!("v1");
    applied["kind"] = json!("Service");
    applied["metadata"]["name"] = json!("kubernetes");
    let path = format!("{EDITED}?fieldManager=test&force=true");
    let answer = send(&client, Method::PATCH, &path, "application/apply-patch+yaml", &applied).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let status = json!({"status": {"conditions": []}});
    let answer =
        send(&client, Method::PATCH, &format!("{EDITED}/status"), "application/merge-patch+json", &status).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let stored = server.store().get("v1", "Service", "default", "kubernetes").unwrap();
    assert_eq!(stored["spec"]["clusterIP"], own, "the filter's address never reached the cluster");
    assert_eq!(answer.json()["spec"]["clusterIP"], "169.254.20.10", "the response equals a read");
    assert_eq!(send(&client, Method::DELETE, HIDDEN, "application/json", &json!({})).await.status, 200);
    assert!(server.store().get("v1", "Service", "default", "shop").is_none());
}

#[tokio::test]
async fn a_filter_may_allow_writes() {
    let (server, _weir, client) = filtering(", writes: pass").await;
    let mut object = server.store().get("v1", "Service", "default", "kubernetes").unwrap();
    object["metadata"]["labels"] = json!({"a": "b"});
    let answer = send(&client, Method::PUT, EDITED, "application/json", &object).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["spec"]["clusterIP"], "169.254.20.10");
}

#[tokio::test]
async fn a_created_object_is_returned_even_if_the_filter_hides_it() {
    let (server, _weir, client) = filtering("").await;
    let cloud = service("cloud", "LoadBalancer");
    let answer = send(&client, Method::POST, SERVICES, "application/json", &cloud).await;
    assert_eq!((answer.status.as_u16(), answer.json()["metadata"]["name"].as_str()), (201, Some("cloud")));
    assert_eq!(client.get(&format!("{SERVICES}/cloud")).await.status, 404);
    let conflict = send(&client, Method::POST, SERVICES, "application/json", &cloud).await;
    assert_eq!((conflict.status.as_u16(), conflict.json()["reason"].as_str()), (409, Some("AlreadyExists")));
    let none = format!("{SERVICES}/none");
    let gone = send(&client, Method::PUT, &none, "application/json", &service("none", "ClusterIP")).await;
    assert_eq!(gone.status, 404, "the server's own response");
    assert!(server.store().get("v1", "Service", "default", "none").is_none());
}

#[tokio::test]
async fn the_response_has_the_requested_format() {
    let (_server, _weir, client) = filtering("").await;
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let strategic = "application/strategic-merge-patch+json";
    let answer = send(&client.clone().with("accept", PROTOBUF), Method::PATCH, EDITED, strategic, &patch).await;
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    assert_eq!(read(&answer.body)["spec"]["clusterIP"], "169.254.20.10");
    let partial = client.clone().with("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let answer = send(&partial, Method::PATCH, EDITED, strategic, &patch).await.json();
    assert_eq!((answer["kind"].as_str(), &answer["spec"]), (Some("PartialObjectMetadata"), &Value::Null));
    let table = client.clone().with("accept", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json");
    let answer = send(&table, Method::PATCH, EDITED, strategic, &patch).await.json();
    assert_eq!(answer["kind"], "Service", "its cells would show the server's address");
}

#[tokio::test]
async fn a_deleted_collection_returns_a_list_of_the_visible_objects() {
    let (_server, _weir, client) = filtering("").await;
    let answer = whole(client.send(Method::DELETE, SERVICES, "").await).await.unwrap();
    assert_eq!(answer.status, 200);
    let list = answer.json();
    assert_eq!(weir_tests::client::names(&list), ["dashboard", "kubernetes", "shop", "web"], "none is hidden");
    let kubernetes = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "kubernetes");
    assert_eq!(kubernetes.unwrap()["spec"]["clusterIP"], "169.254.20.10");
}

#[tokio::test]
async fn a_filter_that_fails_on_a_response_keeps_the_write_and_adds_a_warning() {
    let server = edge().await;
    let filters = "filters:
  - {name: gateway, module: masterservice.wasm, match: ['*/services']}
  - {name: bad-handle, module: bad-handle.wasm, match: ['*/services']}
";
    let weir = Setup::new(server.url())
        .filters(filters)
        .bundled("masterservice")
        .module("bad-handle", &hostile("bad-handle"))
        .start_ready()
        .await;
    let client = weir.client("tool");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let answer = send(&client, Method::PATCH, EDITED, "application/strategic-merge-patch+json", &patch).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["spec"]["clusterIP"], "169.254.20.10", "the edits before the failure");
    let warning = answer.headers["warning"].to_str().unwrap();
    assert!(warning.starts_with("299 - \"weir: ") && warning.contains("bad-handle"), "{warning}");
    let stored = server.store().get("v1", "Service", "default", "kubernetes").unwrap();
    assert_eq!(stored["metadata"]["labels"]["a"], "b");
    // The filtered object of this client is unknown, so the write is refused.
    let refused = send(&client, Method::PUT, UNTOUCHED, "application/json", &service("web", "ClusterIP")).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(refused.text().contains("bad-handle"));
}

#[tokio::test]
async fn without_read_permission_only_the_server_decides_about_a_write() {
    let (server, _weir, client) = filtering("").await;
    server.set_policy(|request| request.verb != "get");
    server.enforce(weir_apiserver::Enforce::UserAgent("tool".to_owned()));
    let object = server.store().get("v1", "Service", "default", "kubernetes").unwrap();
    assert_eq!(send(&client, Method::PUT, EDITED, "application/json", &object).await.status, 200);
}
