//! Protobuf responses, decoded and compared with the JSON responses.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use weir_apiserver::{Action, ApiServer, Gzip};
use weir_document::json::EventType;
use weir_document::list::{self, Piece};
use weir_document::protobuf::{Envelope, FrameSplitter, ListSplitter};
use weir_document::{Document, SplitError, TypeMeta};

use crate::client::{Answer, Client, pool, soon, start};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const SERVICES: &str = "/api/v1/services";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";

/// The events of a protobuf watch.
struct Frames {
    body: Incoming,
    headers: HeaderMap,
    splitter: FrameSplitter,
}

fn decoded(type_meta: TypeMeta, object: Bytes) -> Value {
    let document = Document::protobuf(object, Arc::new(type_meta)).expect("a kind of the schema");
    serde_json::from_str(&document.to_json().unwrap()).unwrap()
}

/// Decodes an object in its envelope to JSON.
fn opened(body: Bytes) -> Value {
    let envelope = Envelope::open(body).unwrap();
    decoded(envelope.type_meta().clone(), envelope.object())
}

/// Decodes a list in its envelope: the version and the items.
fn listed(answer: &Answer) -> (String, Vec<Value>) {
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    let (list, items) = split(&answer.bytes);
    (list.meta().resource_version.clone().unwrap(), items)
}

fn split(body: &Bytes) -> (ListSplitter, Vec<Value>) {
    let mut bytes = Vec::new();
    let list = list::split(ListSplitter::new(), [body.clone()], |piece| {
        if let Piece::Batch(batch) = piece {
            bytes.extend((0..batch.items.len()).map(|i| batch.item(i).unwrap()));
        }
        Ok::<_, SplitError>(())
    });
    let list = list.unwrap();
    let item_type = list.item_type().unwrap();
    let items = bytes.into_iter().map(|item| decoded(item_type.clone(), item)).collect();
    (list, items)
}

/// The items of a JSON list with apiVersion and kind, which lists of built-in kinds omit.
fn typed(list: &Value, api_version: &str, kind: &str) -> Vec<Value> {
    let items = list["items"].as_array().unwrap().iter().cloned();
    items
        .map(|mut item| {
            item["apiVersion"] = json!(api_version);
            item["kind"] = json!(kind);
            item
        })
        .collect()
}

/// A Service with every field that Go always writes, so that both encodings are equal.
fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name, "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "x"}, "annotations": {"description": "y".repeat(640)},
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:type": {}}}}],
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.1", "sessionAffinity": "None",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web"}, {"port": 81, "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn slice(name: &str, endpoints: usize) -> Value {
    let endpoint = |n: usize| json!({"addresses": [format!("10.0.0.{n}")], "conditions": {"ready": !n.is_multiple_of(7)}, "nodeName": "n"});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    })
}

async fn watch(client: &Client, path: &str) -> Frames {
    let response = client.try_send(Method::GET, path, "", Bytes::new()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (parts, body) = response.into_parts();
    Frames { body, headers: parts.headers, splitter: FrameSplitter::new() }
}

impl Frames {
    /// The next event; `None` at a clean end between two events.
    async fn event(&mut self) -> Option<(EventType, Value)> {
        loop {
            if let Some(frame) = self.splitter.next().unwrap() {
                return Some((frame.event, opened(frame.object_bytes())));
            }
            match soon(self.body.frame()).await {
                Some(frame) => self.splitter.push(frame.unwrap().into_data().unwrap()),
                None => {
                    self.splitter.finish();
                    assert!(self.splitter.next().unwrap().is_none());
                    return None;
                }
            }
        }
    }
}

#[tokio::test]
async fn an_object_is_equal_in_both_encodings() {
    let (server, client) = start().await;
    server.store().put(service("a")).unwrap();
    server.store().put(slice("a", 100)).unwrap();
    for path in [
        "/api/v1/namespaces/default/services/a",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/a",
        "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices/a",
        "/api/v1/namespaces/default",
    ] {
        let expected = client.get(path).await.json();
        let answer = Client::of(&server)
            .header("accept", "application/vnd.kubernetes.protobuf,application/json")
            .get(path)
            .await;
        assert_eq!(answer.headers["content-type"], PROTOBUF);
        assert_eq!(answer.headers["content-length"], answer.bytes.len().to_string());
        assert_eq!(opened(answer.bytes), expected, "{path}");
    }
}

#[tokio::test]
async fn a_list_of_any_length_is_equal_in_both_encodings() {
    let server = ApiServer::builder().start().await.unwrap();
    for client in [Client::of(&server), Client::http2(&server)] {
        let client = client.header("accept", PROTOBUF);
        for count in [0, 1, 3, 700] {
            for index in 0..count {
                server.store().put(service(&format!("s{index:04}"))).unwrap();
            }
            let json = Client::of(&server).get(SERVICES).await.json();
            let answer = client.get(SERVICES).await;
            assert_eq!(answer.headers["content-length"], answer.bytes.len().to_string());
            let (version, items) = listed(&answer);
            assert_eq!(json!(version), json["metadata"]["resourceVersion"]);
            assert_eq!(items, typed(&json, "v1", "Service"));
        }
        for index in 0..700 {
            server.store().delete("v1", "Service", "default", &format!("s{index:04}")).unwrap();
        }
    }
}

#[tokio::test]
async fn a_large_list_is_never_older_than_the_last_write() {
    let (server, client) = start().await;
    for index in 0..1500 {
        server.store().put(service(&format!("s{index:04}"))).unwrap();
    }
    let protobuf = Client::of(&server).header("accept", PROTOBUF);
    for round in 0..3 {
        let json = client.get(SERVICES).await;
        assert!(json.bytes.len() > 1024 * 1024);
        let first = protobuf.get(SERVICES).await;
        assert_eq!(listed(&first).1, typed(&json.json(), "v1", "Service"));
        assert_eq!(json.json()["metadata"]["resourceVersion"], server.store().revision().to_string());
        assert_eq!(json.json()["items"][7]["metadata"]["labels"]["app"], if round == 0 { "x" } else { "changed" });
        // Again, and with a selector, for which the cached list must not be used.
        assert_eq!(client.get(SERVICES).await.bytes, json.bytes);
        assert_eq!(protobuf.get(&format!("{SERVICES}?resourceVersion=0")).await.bytes, first.bytes);
        assert_eq!(listed(&protobuf.get(&format!("{SERVICES}?limit=3")).await).1.len(), 3);
        assert_eq!(client.get(&format!("{SERVICES}?labelSelector=app%3Dnone")).await.names().len(), 0);
        assert_eq!(client.get("/api/v1/namespaces/other/services").await.names().len(), 0);
        let mut changed = service("s0007");
        changed["metadata"]["labels"]["app"] = json!("changed");
        server.store().put(changed).unwrap();
    }
}

#[tokio::test]
async fn pages_carry_their_token_and_the_remaining_count() {
    let (server, client) = start().await;
    for name in ["a", "b", "c"] {
        server.store().put(service(name)).unwrap();
    }
    let path = format!("{SERVICES}?limit=2");
    let json = client.get(&path).await.json();
    assert_eq!(json["metadata"]["remainingItemCount"], 1);
    let client = client.header("accept", PROTOBUF);
    let first = client.get(&path).await;
    let token = split(&first.bytes).0.meta().continue_token.clone().unwrap();
    assert_eq!(json!(token), json["metadata"]["continue"]);
    // The last record of its metadata, {4 remainingItemCount} = 1, before the first item.
    let item = first.bytes.windows(token.len() + 4).find(|bytes| bytes.starts_with(token.as_bytes())).unwrap();
    assert_eq!(item[token.len()..], [4 << 3, 1, 2 << 3 | 2, item[token.len() + 3]]);
    let (_, rest) = listed(&client.get(&format!("{path}&continue={token}")).await);
    assert_eq!(rest[0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn large_lists_are_gzipped_in_protobuf_too() {
    let (server, client) = start().await;
    for index in 0..400 {
        server.store().put(service(&format!("s{index:04}"))).unwrap();
    }
    let plain = client.header("accept", PROTOBUF).get(SERVICES).await;
    assert!(plain.bytes.len() > 128 * 1024);
    let client = Client::of(&server).header("accept", PROTOBUF).header("accept-encoding", "gzip");
    let packed = client.get(SERVICES).await;
    assert_eq!((packed.text("content-encoding"), packed.text("content-type")), ("gzip", PROTOBUF));
    assert!(packed.headers.get("content-length").is_none());
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.bytes[..]), &mut bytes).unwrap();
    assert_eq!(bytes, plain.bytes);
    server.set_gzip(Gzip::Never);
    assert_eq!(client.get(SERVICES).await.bytes, plain.bytes);
}

#[tokio::test]
async fn a_protobuf_watch_has_frames_of_all_event_types() {
    let (server, client) = start().await;
    server.store().put(service("a")).unwrap();
    let path =
        format!("{SERVICES}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut json = client.stream(&path).await;
    let mut frames =
        watch(&Client::of(&server).header("accept", "application/vnd.kubernetes.protobuf,application/json"), &path)
            .await;
    assert_eq!(frames.headers["content-type"], WATCH);
    assert_eq!(json.headers["content-type"], "application/json");
    let mut types = Vec::new();
    let mut next = async || {
        let (event, object) = frames.event().await.unwrap();
        let expected = json.event().await;
        assert_eq!(event.as_str(), expected["type"]);
        if event == EventType::Bookmark {
            assert_eq!(object["kind"], expected["object"]["kind"]);
            let (metadata, wanted) = (&object["metadata"], &expected["object"]["metadata"]);
            assert_eq!(metadata["resourceVersion"], wanted["resourceVersion"]);
            assert_eq!(metadata["annotations"], wanted["annotations"]);
        } else {
            assert_eq!(object, expected["object"]);
        }
        types.push(event);
    };
    next().await;
    next().await;
    let mut changed = service("a");
    changed["metadata"]["labels"]["app"] = json!("other");
    server.store().put(changed).unwrap();
    next().await;
    server.store().delete("v1", "Service", "default", "a").unwrap();
    next().await;
    server.send_bookmarks();
    next().await;
    use EventType::{Added, Bookmark, Deleted, Modified};
    assert_eq!(types, [Added, Bookmark, Modified, Deleted, Bookmark]);
    server.close_watches(weir_apiserver::End::Clean);
    assert!(frames.event().await.is_none());
}

#[tokio::test]
async fn an_error_event_is_a_status_in_its_envelope() {
    let (server, client) = start().await;
    server.store().put(service("a")).unwrap();
    server.compact();
    let path = format!("{SERVICES}?watch=1&resourceVersion=1");
    let expected = client.stream(&path).await.event().await;
    let mut frames = watch(&client.header("accept", WATCH), &path).await;
    let (event, status) = frames.event().await.unwrap();
    assert_eq!(event, EventType::Error);
    assert_eq!((&status["reason"], &status["code"]), (&json!("Expired"), &json!(410)));
    assert_eq!(status, expected["object"]);
    assert!(frames.event().await.is_none());
}

#[tokio::test]
async fn errors_are_a_status_in_the_negotiated_type() {
    let (server, client) = start().await;
    server.store().put(service("a")).unwrap();
    let of_protobuf = Client::of(&server).header("accept", "application/vnd.kubernetes.protobuf,application/json");
    for (path, code) in [
        ("/api/v1/namespaces/default/services/none", StatusCode::NOT_FOUND),
        ("/api/v1/services?limit=x", StatusCode::BAD_REQUEST),
        ("/api/v1/services?resourceVersion=999999", StatusCode::GATEWAY_TIMEOUT),
        ("/api/v1/services?resourceVersionMatch=Exact", StatusCode::UNPROCESSABLE_ENTITY),
        // Errors of a CRD too, although its objects are JSON.
        ("/apis/apps.openyurt.io/v1beta2/nodepools/none", StatusCode::NOT_FOUND),
    ] {
        let answer = of_protobuf.get(path).await;
        assert_eq!((answer.status, answer.text("content-type")), (code, PROTOBUF), "{path}");
        assert_eq!(opened(answer.bytes), client.get(path).await.json(), "{path}");
    }
    let deleted = of_protobuf.delete("/api/v1/namespaces/default/services/a").await;
    let status = opened(deleted.bytes);
    assert_eq!((&status["status"], &status["details"]["name"]), (&json!("Success"), &json!("a")));
}

#[tokio::test]
async fn kinds_of_crds_are_json_or_not_acceptable() {
    let (server, client) = start().await;
    server.store().put(pool("hz", &["n"])).unwrap();
    let both = client.header("accept", "application/vnd.kubernetes.protobuf,application/json");
    let answer = both.get(POOLS).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.json()["items"][0]["metadata"]["name"], "hz");
    let only = Client::of(&server).header("accept", PROTOBUF);
    for path in [POOLS.to_owned(), format!("{POOLS}/hz"), format!("{POOLS}?watch=1")] {
        let answer = only.get(&path).await;
        assert_eq!((answer.status, answer.text("content-type")), (StatusCode::NOT_ACCEPTABLE, PROTOBUF));
        assert_eq!(opened(answer.bytes)["reason"], "NotAcceptable");
    }
}

#[tokio::test]
async fn metadata_comes_as_protobuf_for_crds_too() {
    let (server, client) = start().await;
    server.store().put(service("a")).unwrap();
    server.store().put(pool("hz", &["n"])).unwrap();
    let json_client = client.header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let client = Client::of(&server).header("accept", METADATA);
    for (list, name) in [("/api/v1/namespaces/default/services", "a"), (POOLS, "hz")] {
        let answer = client.get(list).await;
        let envelope = Envelope::open(answer.bytes.clone()).unwrap();
        let of = envelope.type_meta();
        assert_eq!((of.api_version.as_str(), of.kind.as_str()), ("meta.k8s.io/v1", "PartialObjectMetadataList"));
        let expected = json_client.get(list).await.json();
        assert_eq!(json!(listed(&answer).1), expected["items"]);
        let one = format!("{list}/{name}");
        let expected = json_client.get(&one).await.json();
        assert_eq!(opened(client.get(&one).await.bytes), expected);
        let mut frames = watch(&client, &format!("{list}?watch=1&allowWatchBookmarks=true")).await;
        assert_eq!(frames.headers["content-type"], WATCH);
        assert_eq!(frames.event().await.unwrap(), (EventType::Added, expected));
        server.send_bookmarks();
        let (event, object) = frames.event().await.unwrap();
        assert_eq!((event, &object["kind"]), (EventType::Bookmark, &json!("PartialObjectMetadata")));
    }
}

#[tokio::test]
async fn a_written_object_is_returned_as_protobuf() {
    let (server, client) = start().await;
    let client = client.header("accept", "application/vnd.kubernetes.protobuf,application/json");
    let created = client.post("/api/v1/namespaces/default/services", &service("a")).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(opened(created.bytes)["metadata"]["name"], "a");
    let patch = json!({"metadata": {"labels": {"app": "z"}}});
    let patched = client.patch("/api/v1/namespaces/default/services/a", "application/merge-patch+json", &patch).await;
    assert_eq!(opened(patched.bytes)["metadata"]["labels"]["app"], "z");
    let only = Client::of(&server).header("accept", PROTOBUF);
    assert_eq!(only.post(POOLS, &pool("hz", &[])).await.status, StatusCode::NOT_ACCEPTABLE);
    assert!(server.store().get("apps.openyurt.io/v1beta2", "NodePool", "", "hz").is_none());
}

#[tokio::test]
async fn an_object_that_the_schema_cannot_represent_is_an_internal_error() {
    let (server, client) = start().await;
    let mut odd = service("odd");
    odd["spec"]["unheardOf"] = json!(1);
    server.store().put(odd).unwrap();
    let client = client.header("accept", PROTOBUF);
    let answer = client.get(SERVICES).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(opened(answer.bytes)["message"].as_str().unwrap().contains("Service \"odd\""));
    let (event, status) = watch(&client, &format!("{SERVICES}?watch=1")).await.event().await.unwrap();
    assert_eq!((event, &status["reason"]), (EventType::Error, &json!("InternalError")));
}

#[tokio::test]
async fn a_hook_can_return_invalid_protobuf_and_headers_are_recorded() {
    let (server, client) = start().await;
    server.on_request(|request| match request.header("accept") {
        PROTOBUF => Action::answer(200, PROTOBUF, &b"k8s\0\x0a\xff"[..]),
        _ => Action::Serve,
    });
    let client = client.header("accept", PROTOBUF).header("accept-encoding", "gzip, br");
    let answer = client.get(SERVICES).await;
    assert_eq!((answer.text("content-type"), &answer.bytes[..]), (PROTOBUF, &b"k8s\0\x0a\xff"[..]));
    assert!(Envelope::open(answer.bytes).is_err());
    let seen = server.requests().pop().unwrap();
    assert_eq!((seen.header("accept"), seen.header("accept-encoding")), (PROTOBUF, "gzip, br"));
}
