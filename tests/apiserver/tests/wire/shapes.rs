//! Table, metadata only, and media types that are not acceptable.

use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{Client, service, services, start};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn a_table_has_a_row_per_object_with_its_metadata() {
    let (server, client) = start().await;
    services(&server, 2);
    let client = client.header("accept", TABLE);
    let table = client.get("/api/v1/services").await.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        cells.as_array().unwrap()[..5],
        [json!("s0000"), json!("ClusterIP"), json!("10.0.0.1"), json!("<none>"), json!("80/TCP")]
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"]["resourceVersion"], server.store().revision().to_string());

    let whole = client.get("/api/v1/services?includeObject=Object").await.json();
    assert_eq!(whole["rows"][0]["object"]["kind"], "Service");
    let none = client.get("/api/v1/services?includeObject=None").await.json();
    assert_eq!(none["rows"][0].get("object"), Some(&Value::Null));
    let one = client.get("/api/v1/namespaces/default/services/s0001").await.json();
    assert_eq!(one["rows"][0]["cells"][0], "s0001");
}

#[tokio::test]
async fn a_watch_of_tables_defines_its_columns_once() {
    let (server, client) = start().await;
    services(&server, 2);
    let mut watch = client.header("accept", TABLE).stream("/api/v1/services?watch=1").await;
    let first = watch.event().await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert!(first["object"]["columnDefinitions"].is_array());
    let second = watch.event().await;
    assert!(second["object"]["columnDefinitions"].is_null());
    assert_eq!(second["object"]["rows"][0]["cells"][0], "s0001");
    server.store().delete("v1", "Service", "default", "s0000").unwrap();
    assert_eq!(watch.event().await["type"], "DELETED");
}

#[tokio::test]
async fn metadata_clients_get_metadata_only() {
    let (server, client) = start().await;
    server.store().put(service("a", json!({"x": "y"}))).unwrap();
    let client = client.header("accept", METADATA);
    let list = client.get("/api/v1/services").await.json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["labels"], json!({"x": "y"}));
    assert!(list["items"][0].get("spec").is_none());
    let mut watch = client.stream("/api/v1/services?watch=1&allowWatchBookmarks=true").await;
    assert_eq!(watch.event().await["object"]["kind"], "PartialObjectMetadata");
    server.send_bookmarks();
    let bookmark = watch.event().await;
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("PartialObjectMetadata")));
}

#[tokio::test]
async fn unknown_media_types_are_not_acceptable() {
    let (server, client) = start().await;
    for accept in
        ["application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"]
    {
        let client = Client::of(&server).header("accept", accept);
        let answer = client.get("/api/v1/services").await;
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            "{accept}"
        );
    }
    let client = client.header("accept", "application/cbor, */*");
    assert_eq!(client.get("/api/v1/services").await.headers["content-type"], "application/json");
}

#[tokio::test]
async fn pretty_json_is_equal() {
    let (server, client) = start().await;
    services(&server, 3);
    let plain = client.get("/api/v1/services").await;
    let parameter = Client::of(&server).header("accept", "application/json;pretty=1").get("/api/v1/services").await;
    let option = client.get("/api/v1/services?pretty=true").await;
    assert!(parameter.bytes.starts_with(b"{\n  \"kind\": \"ServiceList\",\n"));
    assert_eq!(parameter.bytes, option.bytes);
    assert_eq!(parameter.json(), plain.json());
}
