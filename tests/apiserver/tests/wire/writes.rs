//! create, update, patch, delete: results, conflicts, errors.

use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{pool, service, services, start};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn a_created_object_gets_the_fields_that_the_server_sets() {
    let (server, client) = start().await;
    let mut object = service("a", json!({}));
    object["metadata"]["uid"] = "mine".into();
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}});
    let answer = client.post(SERVICES, &object).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let made = answer.json();
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_eq!(made["metadata"]["resourceVersion"], server.store().revision().to_string());
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    assert_eq!(made["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
    assert_eq!(client.get(&format!("{SERVICES}/a")).await.json(), made);

    let again = client.post(SERVICES, &object).await;
    assert_eq!((again.status, again.reason().as_str()), (StatusCode::CONFLICT, "AlreadyExists"));
}

#[tokio::test]
async fn generated_names_differ() {
    let (_server, client) = start().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-"}});
    let path = "/api/v1/namespaces/default/configmaps";
    let names = [client.post(path, &object).await.json(), client.post(path, &object).await.json()];
    assert!(names[0]["metadata"]["name"].as_str().unwrap().starts_with("c-"));
    assert_ne!(names[0]["metadata"]["name"], names[1]["metadata"]["name"]);
}

#[tokio::test]
async fn mismatched_objects_are_refused() {
    let (_server, client) = start().await;
    let changed = |pointer: &str, value: Value| {
        let mut object = service("a", json!({}));
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    for (object, status) in [
        (changed("/kind", "Pod".into()), StatusCode::BAD_REQUEST),
        (changed("/apiVersion", "v2".into()), StatusCode::BAD_REQUEST),
        (changed("/metadata/namespace", "other".into()), StatusCode::BAD_REQUEST),
        (changed("/metadata/name", "A_B".into()), StatusCode::UNPROCESSABLE_ENTITY),
        (changed("/metadata/name", "".into()), StatusCode::UNPROCESSABLE_ENTITY),
        (changed("/metadata/labels", json!({"a": 1})), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(client.post(SERVICES, &object).await.status, status, "{object}");
    }
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let answer = client.post("/api/v1/namespaces/none/configmaps", &elsewhere).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.json()["details"]["kind"], "namespaces");
    let broken = client.send(http::Method::POST, SERVICES, "application/json", "{").await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
    let unknown = client.send(http::Method::POST, SERVICES, "text/csv", "a,b").await;
    assert_eq!(unknown.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let huge = client.send(http::Method::POST, SERVICES, "application/json", vec![b' '; 4 << 20]).await;
    assert_eq!(huge.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(client.post("/api/v1/services", &service("a", json!({}))).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn an_update_of_an_old_version_conflicts() {
    let (server, client) = start().await;
    services(&server, 1);
    let path = format!("{SERVICES}/s0000");
    let mut object = client.get(&path).await.json();
    object["spec"]["type"] = "NodePort".into();
    assert_eq!(client.put(&path, &object).await.status, StatusCode::OK);
    let stale = client.put(&path, &object).await;
    assert_eq!((stale.status, stale.reason().as_str()), (StatusCode::CONFLICT, "Conflict"));
    object["metadata"]["resourceVersion"] = "".into();
    assert_eq!(client.put(&path, &object).await.status, StatusCode::OK);
    object["metadata"]["uid"] = "other".into();
    assert_eq!(client.put(&path, &object).await.status, StatusCode::CONFLICT);
    assert_eq!(
        client.put(&format!("{SERVICES}/none"), &service("none", json!({}))).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_version() {
    let (server, client) = start().await;
    services(&server, 1);
    let path = format!("{SERVICES}/s0000");
    client.patch(&path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let before = server.store().revision();
    let answer = client.patch(&path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(server.store().revision(), before);
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let (server, client) = start().await;
    server.store().put(pool("hz", &["a"])).unwrap();
    let path = format!("{POOLS}/hz");
    let mut object = client.get(&path).await.json();
    object["status"]["nodes"] = json!(["z"]);
    object["spec"]["type"] = "Cloud".into();
    let main = client.put(&path, &object).await.json();
    assert_eq!((&main["status"]["nodes"], &main["spec"]["type"]), (&json!(["a"]), &json!("Cloud")));
    assert_eq!(main["metadata"]["generation"], 1);
    object["metadata"]["resourceVersion"] = main["metadata"]["resourceVersion"].clone();
    object["spec"]["type"] = "Edge".into();
    let status = client.put(&format!("{path}/status"), &object).await.json();
    assert_eq!((&status["status"]["nodes"], &status["spec"]["type"]), (&json!(["z"]), &json!("Cloud")));
    let patched = client.patch(&format!("{path}/status"), MERGE, &json!({"status": {"nodes": ["y"]}})).await.json();
    assert_eq!(patched["status"]["nodes"], json!(["y"]));
    assert_eq!(patched["metadata"]["generation"], 1);
}

#[tokio::test]
async fn all_four_patch_types_are_supported() {
    let (server, client) = start().await;
    services(&server, 1);
    let path = format!("{SERVICES}/s0000");
    let done =
        client.patch(&path, JSON, &json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}])).await.json();
    assert_eq!(done["spec"]["ports"][0]["port"], 81);
    let done = client.patch(&path, MERGE, &json!({"spec": {"ports": [{"port": 90}], "clusterIP": null}})).await.json();
    assert_eq!(done["spec"]["ports"].as_array().unwrap().len(), 1);
    let done = client.patch(&path, STRATEGIC, &json!({"spec": {"ports": [{"port": 91}]}})).await.json();
    assert_eq!(done["spec"]["ports"].as_array().unwrap().len(), 2);
    let config =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s0000", "labels": {"by": "apply"}}});
    let done = client.patch(&format!("{path}?fieldManager=test&force=true"), APPLY, &config).await;
    assert_eq!(done.json()["metadata"]["labels"], json!({"by": "apply"}));

    assert_eq!(client.patch(&path, APPLY, &config).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(client.patch(&path, "application/x", &config).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        client.patch(&path, JSON, &json!([{"op": "remove", "path": "/no"}])).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    assert_eq!(
        client.patch(&path, MERGE, &json!({"metadata": {"name": "other"}})).await.status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        client.patch(&path, MERGE, &json!({"metadata": {"resourceVersion": "1"}})).await.status,
        StatusCode::CONFLICT
    );
    assert_eq!(client.patch(&format!("{SERVICES}/none"), MERGE, &json!({})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn apply_creates_and_custom_kinds_refuse_strategic_patches() {
    let (server, client) = start().await;
    let yaml = "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata:\n  name: hz\nspec:\n  type: Edge\n";
    let path = format!("{POOLS}/hz");
    let made = client.send(http::Method::PATCH, &format!("{path}?fieldManager=test"), APPLY, yaml).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(server.store().get("apps.openyurt.io/v1beta2", "NodePool", "", "hz").unwrap()["spec"]["type"], "Edge");
    assert_eq!(client.patch(&path, STRATEGIC, &json!({})).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_dry_run_returns_the_result_and_writes_nothing() {
    let (server, client) = start().await;
    let before = server.store().revision();
    let answer = client.post(&format!("{SERVICES}?dryRun=All"), &service("a", json!({}))).await;
    assert_eq!((answer.status, &answer.json()["metadata"]["name"]), (StatusCode::CREATED, &json!("a")));
    services(&server, 1);
    assert_eq!(client.delete(&format!("{SERVICES}/s0000?dryRun=All")).await.status, StatusCode::OK);
    assert_eq!(server.store().revision(), before + 1);
}

#[tokio::test]
async fn deletion_respects_preconditions_and_finalizers() {
    let (server, client) = start().await;
    let mut object = pool("hz", &[]);
    object["metadata"]["finalizers"] = json!(["test/hold"]);
    server.store().put(object).unwrap();
    let path = format!("{POOLS}/hz");
    let wrong = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    let refused = client.send(http::Method::DELETE, &path, "application/json", wrong.to_string()).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let marked = client.delete(&path).await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(client.get(&path).await.status, StatusCode::OK);
    client.patch(&path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(client.get(&path).await.status, StatusCode::NOT_FOUND);

    services(&server, 1);
    let gone = client.delete(&format!("{SERVICES}/s0000")).await.json();
    assert_eq!(
        (&gone["kind"], &gone["status"], &gone["details"]["name"]),
        (&json!("Status"), &json!("Success"), &json!("s0000"))
    );
    assert_eq!(client.delete(&format!("{SERVICES}/s0000")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_a_namespace_with_its_objects() {
    let (server, client) = start().await;
    server.store().put(service("a", json!({"app": "dns"}))).unwrap();
    server.store().put(service("b", json!({}))).unwrap();
    let deleted = client.delete(&format!("{SERVICES}?labelSelector=app")).await;
    assert_eq!((deleted.names(), &deleted.json()["kind"]), (vec!["a".to_owned()], &json!("ServiceList")));
    assert_eq!(client.get(SERVICES).await.names(), ["b"]);
    assert_eq!(client.delete("/api/v1/namespaces/default").await.status, StatusCode::OK);
    assert_eq!(client.get(SERVICES).await.names().len(), 0);
}

#[tokio::test]
async fn subresources_of_kubelet_and_scheduler_have_stand_ins() {
    let (server, client) = start().await;
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": {}});
    server.store().put(object).unwrap();
    let pod = "/api/v1/namespaces/default/pods/p";
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}});
    assert_eq!(client.post(&format!("{pod}/binding"), &binding).await.status, StatusCode::CREATED);
    assert_eq!(client.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.names(), ["p"]);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(client.post(&format!("{pod}/eviction"), &eviction).await.status, StatusCode::CREATED);
    assert_eq!(client.get(pod).await.status, StatusCode::NOT_FOUND);
}
