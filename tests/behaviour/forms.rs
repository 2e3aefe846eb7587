//! The encodings and shapes of reads: protobuf, Tables, metadata only. The upstream request asks for the same as the
//! client.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_apiserver::{Action, ApiServer, Gzip};
use weir_tests::client::{Client, names};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;
use weir_tests::protobuf::{CLIENT_GO, Frames, PROTOBUF, items, read};

use super::{NO_LOAD_BALANCERS, edge, only, service};

const SERVICES: &str = "/api/v1/services";
const SHOP: &str = "/api/v1/namespaces/default/services/shop";
const WEB: &str = "/api/v1/namespaces/default/services/web";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const PROTOBUF_METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

async fn dropping() -> (ApiServer, Daemon) {
    dropping_as(|setup| setup).await
}

async fn dropping_as(change: impl FnOnce(Setup) -> Setup) -> (ApiServer, Daemon) {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = change(setup).start_ready().await;
    (server, weir)
}

/// masterservice edits the Service `kubernetes`.
async fn editing() -> (ApiServer, Daemon) {
    let server = edge().await;
    let filters = only("masterservice", "    match: ['*/services']\n");
    let weir = Setup::new(server.url()).filters(&filters).bundled("masterservice").start_ready().await;
    (server, weir)
}

fn asking(weir: &Daemon, accept: &str) -> Client {
    weir.client("kube-proxy").with("accept", accept)
}

fn direct(server: &ApiServer, accept: &str) -> Client {
    Client::new(server.url(), "test").with("accept", accept)
}

fn row_names(table: &Value) -> Vec<&str> {
    table["rows"].as_array().unwrap().iter().map(|row| row["cells"][0].as_str().unwrap()).collect()
}

/// A Table without its Age column, which changes every second.
fn ageless(mut table: Value) -> Value {
    let columns = table["columnDefinitions"].as_array().unwrap();
    let age = columns.iter().position(|column| column["name"] == "Age").unwrap();
    for row in table["rows"].as_array_mut().unwrap() {
        row["cells"].as_array_mut().unwrap().remove(age);
    }
    table
}

#[tokio::test]
async fn a_protobuf_list_stays_protobuf_and_kept_items_keep_their_bytes() {
    let (server, weir) = dropping().await;
    let through = asking(&weir, CLIENT_GO).get(SERVICES).await;
    assert_eq!(through.headers["content-type"], PROTOBUF);
    assert_eq!(through.headers["content-length"], through.body.len().to_string().as_str());
    assert_eq!(names(&read(&through.body)), ["dashboard", "kubernetes", "web"]);
    let all = direct(&server, CLIENT_GO).get(SERVICES).await;
    let kept = items(&through.body);
    let came = items(&all.body);
    assert_eq!(came.len(), 4);
    assert_eq!(kept.len(), 3);
    assert!(kept.iter().all(|item| came.contains(item)));
    assert_eq!(read(&through.body)["metadata"], read(&all.body)["metadata"]);
    assert!(server.requests().iter().rev().any(|request| request.header("accept") == CLIENT_GO));
}

#[tokio::test]
async fn a_protobuf_list_without_hidden_items_equals_the_servers_byte_for_byte() {
    let (server, weir) = dropping().await;
    server.store().delete("v1", "Service", "default", "shop").unwrap();
    let through = asking(&weir, CLIENT_GO).get(SERVICES).await;
    assert_eq!(through.body, direct(&server, CLIENT_GO).get(SERVICES).await.body);
}

#[tokio::test]
async fn a_filter_edits_protobuf_and_json_alike() {
    let (_server, weir) = editing().await;
    for path in [SERVICES, "/api/v1/namespaces/default/services/kubernetes"] {
        let binary = asking(&weir, CLIENT_GO).get(path).await;
        assert_eq!(binary.headers["content-type"], PROTOBUF);
        let (binary, text) = (read(&binary.body), weir.client("kube-proxy").json(path).await);
        let spec = |answer: &Value| match answer["items"].as_array() {
            Some(items) => items.iter().find(|item| item["metadata"]["name"] == "kubernetes").unwrap()["spec"].clone(),
            None => answer["spec"].clone(),
        };
        assert_eq!(spec(&binary)["clusterIP"], "169.254.20.10");
        for field in ["clusterIP", "clusterIPs", "ports"] {
            assert_eq!(spec(&binary)[field], spec(&text)[field], "{path} {field}");
        }
    }
}

#[tokio::test]
async fn a_protobuf_get_is_the_servers_or_a_status_in_protobuf() {
    let (server, weir) = dropping().await;
    let client = asking(&weir, CLIENT_GO);
    assert_eq!(client.get(WEB).await.body, direct(&server, CLIENT_GO).get(WEB).await.body);
    let hidden = client.get(SHOP).await;
    assert_eq!((hidden.status.as_u16(), &hidden.headers["content-type"]), (404, &PROTOBUF.parse().unwrap()));
    let status = read(&hidden.body);
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("NotFound")));
    assert_eq!(status["message"], "services \"shop\" not found");
    let missing = client.get("/api/v1/namespaces/default/services/nobody").await;
    assert_eq!(read(&missing.body)["details"]["kind"], status["details"]["kind"]);
}

#[tokio::test]
async fn a_protobuf_watch_is_filtered_frame_by_frame() {
    let (server, weir) = dropping_as(Setup::uncached).await;
    let client = asking(&weir, CLIENT_GO);
    let from = async |version: u64| {
        client.watch(&format!("{SERVICES}?watch=1&allowWatchBookmarks=1&resourceVersion={version}")).await
    };
    // What a client holds whose version is older than the chain version is unknown.
    let mut events = Frames::of(from(server.store().revision()).await);
    let mut present = Vec::new();
    for _ in 0..4 {
        present.push(events.next_named().await);
    }
    present.sort();
    assert_eq!(present, ["DELETED shop", "MODIFIED dashboard", "MODIFIED kubernetes", "MODIFIED web"]);
    let bookmark = events.next().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Service")));
    weir.settled(&server).await;
    let events = from(server.store().advance()).await;
    assert_eq!(events.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut events = Frames::of(events);
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    server.store().put(service("seen", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED seen");
    let retype = |name, kind: &str| {
        server.store().edit("v1", "Service", "default", name, |object| object["spec"]["type"] = json!(kind)).unwrap();
    };
    retype("shop", "ClusterIP");
    assert_eq!(events.next_named().await, "ADDED shop");
    server.store().delete("v1", "Service", "default", "shop").unwrap();
    assert_eq!(events.next_named().await, "DELETED shop");
    retype("seen", "LoadBalancer");
    assert_eq!(events.next_named().await, "DELETED seen");
}

#[tokio::test]
async fn a_failing_filter_gives_a_status_in_protobuf() {
    let server = edge().await;
    let filters = only("exit", "    match: ['*/services']\n");
    let weir = Setup::new(server.url()).filters(&filters).module("exit", &hostile("exit")).start_ready().await;
    let client = asking(&weir, CLIENT_GO);
    for path in [SERVICES, WEB] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 500, "{path}");
        assert_eq!(read(&answer.body)["details"]["causes"][0]["reason"], "exit", "{path}");
    }
    let mut events = Frames::of(client.watch(&format!("{SERVICES}?watch=1")).await);
    assert_eq!(events.next_named().await, "ERROR 500");
}

#[tokio::test]
async fn a_kind_without_protobuf_is_requested_and_returned_as_json() {
    let server = edge().await;
    let filters = only("discardcloudservice", "    match: ['*/nodepools.apps.openyurt.io']\n");
    let weir = Setup::new(server.url()).filters(&filters).bundled("discardcloudservice").start_ready().await;
    let answer = asking(&weir, CLIENT_GO).get("/apis/apps.openyurt.io/v1beta2/nodepools").await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(names(&answer.json()), ["beijing", "hangzhou"]);
}

#[tokio::test]
async fn a_table_lacks_only_the_rows_of_hidden_objects() {
    let (server, weir) = dropping().await;
    for include in ["", "?includeObject=None", "?includeObject=Metadata", "?includeObject=Object"] {
        let path = format!("{SERVICES}{include}");
        let through = ageless(asking(&weir, TABLE).json(&path).await);
        let mut expected = ageless(direct(&server, TABLE).json(&path).await);
        expected["rows"].as_array_mut().unwrap().retain(|row| row["cells"][0] != "shop");
        assert_eq!(through, expected, "{path}");
        assert_eq!(row_names(&through), ["dashboard", "kubernetes", "web"], "{path}");
    }
}

#[tokio::test]
async fn a_table_of_one_object_is_returned_or_not_found() {
    let (server, weir) = dropping().await;
    let client = asking(&weir, TABLE);
    assert_eq!(ageless(client.json(WEB).await), ageless(direct(&server, TABLE).json(WEB).await));
    assert_eq!(client.get(SHOP).await.status, 404);
}

#[tokio::test]
async fn if_a_filter_edits_an_object_of_a_table_the_response_is_the_objects_instead() {
    let (_server, weir) = editing().await;
    let client = asking(&weir, TABLE);
    let list = client.json(SERVICES).await;
    assert_eq!(list["kind"], "ServiceList");
    let plain = weir.client("kube-proxy").json(SERVICES).await;
    assert_eq!(list["metadata"]["resourceVersion"], plain["metadata"]["resourceVersion"]);
    assert_eq!(names(&list), names(&plain));
    let specs =
        |list: &Value| list["items"].as_array().unwrap().iter().map(|item| item["spec"].clone()).collect::<Vec<_>>();
    assert_eq!(specs(&list), specs(&plain));
    let one = client.json("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!((&one["kind"], &one["spec"]["clusterIP"]), (&json!("Service"), &json!("169.254.20.10")));
    let untouched = client.json(WEB).await;
    assert_eq!(untouched["kind"], "Table");
}

#[tokio::test]
async fn pages_of_a_table_keep_the_servers_continue_token_and_belong_to_one_list() {
    let (server, weir) = dropping().await;
    let client = asking(&weir, TABLE);
    let (mut seen, mut from) = (Vec::new(), String::new());
    let last = loop {
        let page = client.json(&format!("{SERVICES}?limit=1{from}")).await;
        seen.extend(row_names(&page).into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => from = format!("&continue={token}"),
            _ => break page,
        }
    };
    assert_eq!(seen, ["dashboard", "kubernetes", "web"]);
    let version = last["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = client.watch(&format!("{SERVICES}?watch=1&resourceVersion={version}")).await;
    server
        .store()
        .edit("v1", "Service", "default", "shop", |object| object["metadata"]["labels"] = json!({"a": "b"}))
        .unwrap();
    server.store().put(service("next", "ClusterIP")).unwrap();
    // Whether it was on the screen is not known.
    for (kind, name) in [("DELETED", "shop"), ("ADDED", "next")] {
        let event = events.next().await;
        assert_eq!((&event["type"], row_names(&event["object"])), (&json!(kind), vec![name]));
    }
}

#[tokio::test]
async fn a_watch_of_tables_defines_its_columns_once_and_sends_edited_objects_as_objects() {
    let server = edge().await;
    let filters = format!(
        "{}  - {{name: masterservice, module: masterservice.wasm, match: ['*/services']}}\n",
        only("discardcloudservice", "    match: ['*/services']\n")
    );
    let weir = Setup::new(server.url())
        .filters(&filters)
        .bundled("discardcloudservice")
        .bundled("masterservice")
        .start_ready()
        .await;
    let list = weir.client("kube-proxy").json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = asking(&weir, TABLE).watch(&format!("{SERVICES}?watch=1&resourceVersion={version}")).await;
    // The first event defines the columns. Its object is hidden.
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    server.store().put(service("one", "ClusterIP")).unwrap();
    server.store().put(service("two", "ClusterIP")).unwrap();
    let (one, two) = (events.next().await, events.next().await);
    assert_eq!(row_names(&one["object"]), ["one"]);
    assert!(one["object"]["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty()), "{one}");
    assert_eq!(one["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!((row_names(&two["object"]), &two["object"]["columnDefinitions"]), (vec!["two"], &Value::Null));
    server
        .store()
        .edit("v1", "Service", "default", "kubernetes", |object| object["metadata"]["labels"] = json!({"a": "b"}))
        .unwrap();
    let edited = events.next().await;
    assert_eq!(edited["object"]["kind"], "Service");
    assert_eq!(edited["object"]["spec"]["clusterIP"], "169.254.20.10");
    server.store().delete("v1", "Service", "default", "two").unwrap();
    let deleted = events.next().await;
    assert_eq!((&deleted["type"], row_names(&deleted["object"])), (&json!("DELETED"), vec!["two"]));
    assert!(deleted["object"]["rows"][0]["object"].get("spec").is_none());
}

#[tokio::test]
async fn tables_without_objects_are_requested_again_as_objects() {
    let (server, weir) = dropping().await;
    server.on_request(|request| {
        // An older server, or one behind an aggregator, that does not support includeObject.
        if request.header("accept").starts_with("application/json;as=Table") {
            let row = |name: &str| json!({"cells": [name], "object": {"kind": "PartialObjectMetadata", "metadata": {"name": name}}});
            let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "1"},
                "columnDefinitions": [], "rows": [row("shop"), row("web")]});
            let one = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
                "columnDefinitions": [], "rows": [row("web")]});
            let named = request.target().contains("/web");
            return Action::json(200, if named { one } else { table }.to_string());
        }
        Action::Serve
    });
    let client = asking(&weir, TABLE);
    assert_eq!(names(&client.json(SERVICES).await), ["dashboard", "kubernetes", "web"]);
    assert_eq!(client.json(WEB).await["spec"]["type"], "ClusterIP");
    assert_eq!(client.get(SHOP).await.status, 404);
}

#[tokio::test]
async fn metadata_of_visible_objects_only_is_returned() {
    let (server, weir) = dropping().await;
    let list = asking(&weir, METADATA).json(SERVICES).await;
    assert_eq!(list, {
        let mut expected = direct(&server, METADATA).json(SERVICES).await;
        expected["items"].as_array_mut().unwrap().retain(|item| item["metadata"]["name"] != "shop");
        expected
    });
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(asking(&weir, METADATA).json(WEB).await, direct(&server, METADATA).json(WEB).await);
    assert_eq!(asking(&weir, METADATA).get(SHOP).await.status, 404);
}

#[tokio::test]
async fn metadata_in_protobuf_equals_the_servers() {
    let (server, weir) = dropping().await;
    let through = asking(&weir, PROTOBUF_METADATA).get(SERVICES).await;
    assert_eq!(through.headers["content-type"], PROTOBUF);
    let (shown, mut expected) =
        (read(&through.body), read(&direct(&server, PROTOBUF_METADATA).get(SERVICES).await.body));
    expected["items"].as_array_mut().unwrap().retain(|item| item["metadata"]["name"] != "shop");
    assert_eq!(shown, expected);
    assert_eq!(shown["kind"], "PartialObjectMetadataList");
    let one = asking(&weir, PROTOBUF_METADATA).get(WEB).await;
    assert_eq!(read(&one.body), read(&direct(&server, PROTOBUF_METADATA).get(WEB).await.body));
}

#[tokio::test]
async fn metadata_watches_have_bookmarks_of_their_own_kind() {
    let (server, weir) = dropping().await;
    let whole = "?watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=12";
    let mut text = asking(&weir, METADATA).watch(&format!("{SERVICES}{whole}")).await;
    let mut binary = Frames::of(asking(&weir, PROTOBUF_METADATA).watch(&format!("{SERVICES}{whole}")).await);
    for _ in 0..3 {
        let (text, binary) = (text.next().await, binary.next().await.unwrap());
        for event in [&text, &binary] {
            assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("PartialObjectMetadata")));
            assert!(event["object"].get("spec").is_none() && event["object"]["metadata"]["name"] != "shop", "{event}");
        }
        assert_eq!(text["object"]["metadata"]["uid"], binary["object"]["metadata"]["uid"]);
    }
    server.store().put(service("seen", "ClusterIP")).unwrap();
    for event in [text.next().await, binary.next().await.unwrap()] {
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("seen")));
    }
    // Two seconds before its end; else once a minute, which is as long as a test waits.
    for event in [text.next().await, binary.next().await.unwrap()] {
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("BOOKMARK"), &json!("PartialObjectMetadata")));
    }
}

#[tokio::test]
async fn a_list_too_large_to_hold_is_requested_as_plain_json() {
    let server = edge().await;
    for n in 0..200 {
        let mut large = service(&format!("s-{n:03}"), "ClusterIP");
        large["metadata"]["annotations"] = json!({"filler": "x".repeat(2000)});
        server.store().put(large).unwrap();
    }
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .flag("--response-memory", "64Ki")
        .start_ready()
        .await;
    for accept in [CLIENT_GO, TABLE] {
        let answer = asking(&weir, accept).get(SERVICES).await;
        assert_eq!(answer.headers["content-type"], "application/json", "{accept}");
        assert_eq!(names(&answer.json()).len(), 203, "{accept}");
    }
    let page = asking(&weir, CLIENT_GO).get(&format!("{SERVICES}?limit=10")).await;
    assert_eq!(page.headers["content-type"], PROTOBUF, "what fits is not converted");
}

#[tokio::test]
async fn large_responses_are_gzipped_if_the_client_accepts_it() {
    let server = edge().await;
    for n in 0..200 {
        let mut large = service(&format!("s-{n:03}"), "ClusterIP");
        large["metadata"]["annotations"] = json!({"filler": "x".repeat(2000)});
        server.store().put(large).unwrap();
    }
    server.set_gzip(Gzip::Always);
    let start = |policy: &'static str| {
        Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").flag("--compress", policy)
    };
    for (policy, packed) in [("remote", false), ("never", false), ("always", true)] {
        let weir = start(policy).start_ready().await;
        for accept in ["application/json", CLIENT_GO] {
            let answer = asking(&weir, accept).with("accept-encoding", "gzip").get(SERVICES).await;
            assert_eq!(answer.headers.contains_key("content-encoding"), packed, "{policy} {accept}");
            let body = if packed { gunzip(&answer.body) } else { answer.body.clone() };
            let list = if accept == CLIENT_GO { read(&body) } else { serde_json::from_slice(&body).unwrap() };
            assert_eq!(names(&list).len(), 203, "{policy} {accept}");
        }
        let small = asking(&weir, CLIENT_GO).with("accept-encoding", "gzip").get(WEB).await;
        assert!(!small.headers.contains_key("content-encoding"));
    }
}

fn gunzip(packed: &[u8]) -> Bytes {
    use std::io::Read;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    plain.into()
}

#[tokio::test]
async fn invalid_protobuf_is_a_bad_gateway_and_never_a_shorter_list() {
    let (server, weir) = dropping().await;
    let good = direct(&server, CLIENT_GO).get(SERVICES).await.body;
    let client = asking(&weir, CLIENT_GO);
    let bodies = [
        b"not protobuf at all".to_vec(),
        Vec::new(),
        good[..good.len() / 2].to_vec(),
        [&good[..], b"\x0b"].concat(),
        [&good[..4], b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"].concat(),
    ];
    for body in bodies {
        let length = body.len();
        server.on_request(move |_| Action::answer(200, PROTOBUF, body.clone()));
        let answer = client.get(SERVICES).await;
        assert_eq!(answer.status, 502, "a body of {length} bytes");
        assert_eq!(read(&answer.body)["kind"], "Status");
        assert_eq!(client.get(WEB).await.status, 502, "a body of {length} bytes");
    }
    server.on_request(|_| {
        Action::answer(200, "application/vnd.kubernetes.protobuf;stream=watch", b"\xff\xff\xff\xff".to_vec())
    });
    let answer = client.get(&format!("{SERVICES}?watch=1")).await;
    assert_eq!((answer.status.as_u16(), &read(&answer.body)["kind"]), (502, &json!("Status")));
    server.clear_hook();
    assert_eq!(names(&read(&client.get(SERVICES).await.body)).len(), 3);
}
