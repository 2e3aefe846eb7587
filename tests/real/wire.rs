//! The bytes of reads: what a real kube-apiserver answers, Weir answers, though a filter matches every object. The in-memory server
//! of the other tests answers the same, but for what [`SIMPLIFIED`] lists.

use std::fmt::Write as _;

use futures_util::stream::{self, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::{Answer, Client, whole};
use weir_tests::daemon::Setup;
use weir_tests::plane::Plane;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// As client-go asks for built-in kinds.
const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const ONLY_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

const SERVICES: &str = "/api/v1/namespaces/wire/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/wire/endpointslices";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";

/// How many requests are compared at a time: watches take a second each.
const PARALLEL: usize = 16;
/// How often an answer is compared again whose state has changed meanwhile.
const ATTEMPTS: usize = 20;

/// What a filter reads of every object, and leaves as it is.
const KEEP: &str = "
filters:
  - name: keep
    module: guest.wasm
    match: ['*/services', '*/endpointslices.discovery.k8s.io', '*/configmaps', '*/nodepools.apps.openyurt.io']
    settings: {ops: [{read: [0, name]}, {read: [0, json]}]}
";

/// The requests: `Accept` (`None`: no header) and path.
fn requests() -> Vec<(Option<&'static str>, String)> {
    let mut requests = Vec::new();
    let accepts = [
        None,
        Some(""),
        Some(JSON),
        Some(PROTOBUF),
        Some(EITHER),
        Some(TABLE),
        Some(ONLY_TABLE),
        Some("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"),
        Some(METADATA),
        Some(METADATA_LIST),
        Some(PROTOBUF_METADATA),
        Some("*/*"),
        Some("application/*"),
        Some("text/plain"),
        Some("text/html,application/json;q=0.9,*/*;q=0.8"),
        Some("application/json;q=0"),
        Some("application/json;as=Nothing;v=v1;g=meta.k8s.io"),
        Some("application/json;as=Table;v=v2;g=meta.k8s.io"),
        Some("application/json;stream=other"),
        Some("nonsense"),
    ];
    for accept in accepts {
        requests.push((accept, format!("{SERVICES}/one")));
        requests.push((accept, SERVICES.to_owned()));
        requests.push((accept, format!("{SERVICES}?watch=1&timeoutSeconds=1&resourceVersion=0")));
    }
    for path in [SLICES, POOLS] {
        for accept in [JSON, PROTOBUF, EITHER, TABLE, METADATA_LIST] {
            requests.push((Some(accept), path.to_owned()));
            requests.push((Some(accept), format!("{path}?resourceVersion=0")));
        }
    }
    let queries = [
        "resourceVersion=0",
        "resourceVersion=1",
        "resourceVersion=999999999",
        "resourceVersion=999999999&resourceVersionMatch=NotOlderThan",
        "resourceVersion=1&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Nonsense",
        "resourceVersion=x",
        "resourceVersion=-1",
        "limit=1",
        "limit=-1",
        "limit=x",
        "continue=nonsense",
        "continue=nonsense&resourceVersion=1",
        "fieldSelector=metadata.name%3Done",
        "fieldSelector=spec.nonsense%3Done",
        "fieldSelector=metadata.name",
        "labelSelector=app%3Done",
        "labelSelector=%3D%3D",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=x",
        "timeoutSeconds=x",
        "timeoutSeconds=-1",
        "watch=x&timeoutSeconds=1",
        "pretty=true",
        "unknown=1",
        "watch=1&timeoutSeconds=1&resourceVersion=x",
        "watch=1&timeoutSeconds=1&resourceVersion=999999999",
        "watch=1&timeoutSeconds=1&resourceVersionMatch=Exact&resourceVersion=1",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "watch=1&timeoutSeconds=1&fieldSelector=spec.nonsense%3Done&resourceVersion=0",
    ];
    for query in queries {
        requests.push((Some(JSON), format!("{SERVICES}?{query}")));
    }
    for include in ["None", "Metadata", "Object", "nonsense", ""] {
        requests.push((Some(ONLY_TABLE), format!("{SERVICES}?includeObject={include}")));
    }
    for path in ["/absent", "/one?resourceVersion=0", "/one?resourceVersion=x", "/one?resourceVersion=999999999"] {
        requests.push((Some(JSON), format!("{SERVICES}{path}")));
    }
    requests
}

/// What differs between the in-memory server and the real one, by a part of the request: nothing that Weir reads depends on it.
const SIMPLIFIED: &[(&str, &str)] = &[
    (
        "as=PartialObjectMetadata;v=v1;g=meta.k8s.io /api/v1/namespaces/wire/services",
        "it takes the kind of an object for a list",
    ),
    (
        "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io /api/v1/namespaces/wire/services/one",
        "and that of a list for an object",
    ),
    (
        "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io /api/v1/namespaces/wire/services?watch",
        "which ends a real watch at once",
    ),
    ("resourceVersionMatch=Nonsense", "the cause has another reason"),
    ("limit=-1", "a negative limit is refused instead of ignored"),
    ("fieldSelector=spec.nonsense", "it does not know which fields select"),
    ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "it allows watch-lists' options on lists"),
    ("services?sendInitialEvents=", "it allows watch-lists' options on lists"),
    ("timeoutSeconds=x", "it ignores an invalid timeout"),
    ("watch=1&timeoutSeconds=1&resourceVersion=x", "the error is in the head of the response instead of an event"),
    ("watch=1&timeoutSeconds=1&resourceVersionMatch=Exact", "the cause has another reason"),
    ("includeObject=nonsense", "it takes an unknown value for the default"),
    ("one?resourceVersion=x", "a get ignores an invalid version"),
];

/// What is different through Weir on purpose, with the status there.
const DIFFERENT: &[(&str, u16, &str)] = &[
    (
        "watch=1&timeoutSeconds=1&resourceVersion=999999999",
        410,
        "410, so that the client lists: the API server waits for the version",
    ),
    (
        "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io /api/v1/namespaces/wire/services?watch",
        200,
        "events: the API server ends the watch at once",
    ),
];

/// An answer as it is compared: its documents, whatever the order of their keys and of the events of one state, or its bytes.
#[derive(Debug, PartialEq)]
struct Shown {
    status: u16,
    media: String,
    documents: Vec<Value>,
    bytes: Vec<u8>,
}

fn shown(answer: &Answer) -> Shown {
    let header = answer.headers.get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let (status, media) = (answer.status.as_u16(), header.unwrap_or_default());
    if !media.starts_with(JSON) {
        return Shown { status, media, documents: Vec::new(), bytes: answer.body.to_vec() };
    }
    let documents = serde_json::Deserializer::from_slice(&answer.body).into_iter::<Value>();
    let mut documents: Vec<_> = documents.map(|document| document.unwrap()).collect();
    for document in &mut documents {
        // The API server gives lists of custom resources an empty token.
        if document["metadata"]["continue"] == "" {
            drop(document["metadata"].as_object_mut().unwrap().remove("continue"));
        }
        // The first event of a Table has the columns, whichever that is.
        if let Some(table) = document["object"].as_object_mut() {
            drop(table.remove("columnDefinitions"));
        }
        for table in ["", "/object"] {
            let rows = document.pointer_mut(&format!("{table}/rows")).and_then(Value::as_array_mut);
            for cell in rows.into_iter().flatten().filter_map(|row| row["cells"].as_array_mut()).flatten() {
                if cell.as_str().is_some_and(is_age) {
                    *cell = Value::Null;
                }
            }
        }
    }
    documents.sort_by_key(|event| {
        let [object, row] = [&event["object"], &event["object"]["rows"][0]["object"]];
        [object, row].map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
    });
    Shown { status, media, documents, bytes: Vec::new() }
}

/// Whether a cell is an age, which grows between two requests.
fn is_age(cell: &str) -> bool {
    cell.strip_suffix('s').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'm'))
}

/// Where two answers differ first.
fn difference(expected: &Shown, got: &Shown) -> String {
    if expected.status != got.status || expected.documents.len() != got.documents.len() {
        return format!("  the API server: {expected:?}\n  through Weir:   {got:?}");
    }
    let (mut wanted, mut found) = (json!(expected.documents), json!(got.documents));
    let mut place = String::new();
    loop {
        let step = match (&wanted, &found) {
            (Value::Object(wanted), Value::Object(found)) => {
                let mut names = wanted.keys().chain(found.keys());
                names.find(|name| wanted.get(*name) != found.get(*name)).cloned()
            }
            (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
                (0..wanted.len()).find(|index| wanted[*index] != found[*index]).map(|index| index.to_string())
            }
            _ => None,
        };
        let Some(step) = step else { break };
        let next = |value: &Value| match step.parse::<usize>() {
            Ok(index) if value.is_array() => value[index].clone(),
            _ => value[&step].clone(),
        };
        (wanted, found) = (next(&wanted), next(&found));
        place += &format!("/{step}");
    }
    let bytes = [&expected.bytes, &got.bytes].map(|bytes| bytes.escape_ascii().to_string());
    format!(
        "  {place}: {wanted} from the API server, {found} through Weir; {} and {}; {bytes:?}",
        expected.media, got.media
    )
}

async fn ask(client: &Client, accept: Option<&str>, path: &str) -> Answer {
    let client = match accept {
        Some(accept) => client.clone().with("accept", accept),
        None => client.clone(),
    };
    client.get(path).await
}

/// Two Services, a slice and a pool, with fields of all kinds.
fn objects() -> Vec<(&'static str, Value)> {
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "wire", "labels": {"app": name}, "annotations": {"text": "a\"\\\u{2028}<&>é"}},
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
                "selector": {"app": name}, "sessionAffinity": "ClientIP"}})
    };
    vec![
        ("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "wire"}})),
        (SERVICES, service("one")),
        (SERVICES, service("two")),
        (
            SLICES,
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "one-1", "namespace": "wire", "labels": {"kubernetes.io/service-name": "one"}},
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.244.1.7"], "nodeName": "edge-a", "conditions": {"ready": true}}]}),
        ),
        (
            POOLS,
            json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "wire"},
                "spec": {"type": "Edge"}}),
        ),
    ]
}

/// Creates the objects of the test.
async fn create(client: &Client) {
    let client = client.clone().with("content-type", JSON);
    for (path, object) in objects() {
        let answer = whole(client.send(Method::POST, path, object.to_string()).await).await.unwrap();
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    }
}

/// What an answer consists of: its status, media type, the kinds and names of its objects, and why it is an error.
fn outline(answer: &Answer) -> String {
    let header = answer.headers.get("content-type").map(|value| value.to_str().unwrap());
    let mut text = format!("{} {header:?}", answer.status);
    if !header.unwrap_or_default().starts_with(JSON) {
        return text;
    }
    for document in serde_json::Deserializer::from_slice(&answer.body).into_iter::<Value>() {
        let document = document.unwrap();
        let event = document["type"].as_str().filter(|_| document["object"].is_object());
        let object = if event.is_some() { &document["object"] } else { &document };
        let rows = object["rows"].as_array().into_iter().flatten().map(|row| &row["object"]);
        let items = object["items"].as_array().into_iter().flatten().chain(rows);
        let names: Vec<_> = items.map(|item| format!("{} {}", item["kind"], item["metadata"]["name"])).collect();
        let (kind, name, reason) = (&object["kind"], &object["metadata"]["name"], &object["reason"]);
        let causes = &object["details"]["causes"];
        let _ = write!(text, "\n    {event:?} {kind} {} {name} {reason} {causes} {names:?}", object["apiVersion"]);
    }
    text
}

#[tokio::test]
async fn the_in_memory_server_answers_as_the_api_server_but_for_what_is_listed() {
    let Some(plane) = Plane::own() else { return };
    let real = plane.admin();
    create(&real).await;
    let server = ApiServer::builder().start().await.unwrap();
    let in_memory = Client::new(server.url(), "test");
    create(&in_memory).await;
    let asked = stream::iter(requests()).map(async |(accept, path)| {
        let (expected, got) = tokio::join!(ask(&real, accept, &path), ask(&in_memory, accept, &path));
        (format!("{} {path}", accept.unwrap_or_default()), outline(&expected), outline(&got))
    });
    let answers: Vec<_> = asked.buffered(PARALLEL).collect().await;
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = SIMPLIFIED.to_vec();
    for (request, expected, got) in answers {
        if expected == got {
            continue;
        }
        unused.retain(|(part, _)| !request.contains(part));
        if !SIMPLIFIED.iter().any(|(part, _)| request.contains(part)) {
            wrong.push(format!("{request}\n  the API server: {expected}\n  in memory:      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "these no longer differ: {unused:?}");
}

#[tokio::test]
async fn reads_through_a_filter_have_the_bytes_of_the_api_server() {
    let Some(plane) = Plane::own() else { return };
    let direct = plane.admin();
    create(&direct).await;
    let cache = tempfile::tempdir().unwrap();
    let guest = std::fs::read(built::target().join("guest.wasm")).unwrap();
    let weir = Setup::kubeconfig(&plane.kubeconfig("weir"))
        .on_disk(cache.path())
        .module("guest", &guest)
        .filters(KEEP)
        .start_ready()
        .await;
    let token = std::fs::read_to_string(plane.token("admin")).unwrap();
    let through = weir.client("test").with("authorization", &format!("Bearer {}", token.trim()));
    let compared = stream::iter(requests()).map(async |(accept, path)| {
        let mut attempts = 0;
        let (expected, got) = loop {
            attempts += 1;
            let before = shown(&ask(&direct, accept, &path).await);
            let got = shown(&ask(&through, accept, &path).await);
            if before == got || attempts == ATTEMPTS {
                break (before, got);
            }
            // The API server's cache may know a version that Weir's learns with the next BOOKMARK. A read that asks for it is not
            // answered before.
            let collection =
                path.strip_suffix("?resourceVersion=0").or_else(|| path.strip_suffix("?resourceVersion=1"));
            let version = before.documents.first().and_then(|list| list["metadata"]["resourceVersion"].as_str());
            if let Some((collection, version)) = collection.zip(version) {
                ask(&through, accept, &format!("{collection}?resourceVersion={version}")).await;
                continue;
            }
            // Something was written in between: its version is in the answers.
            if before == shown(&ask(&direct, accept, &path).await) {
                break (before, got);
            }
        };
        let request = format!("{} {path}", accept.unwrap_or_default());
        (expected != got).then(|| (got.status, format!("{request}\n{}", difference(&expected, &got)), request))
    });
    let differences: Vec<_> = compared.buffer_unordered(PARALLEL).filter_map(std::future::ready).collect().await;
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = DIFFERENT.to_vec();
    for (status, difference, request) in differences {
        unused.retain(|(part, ..)| !request.contains(part));
        if !DIFFERENT.iter().any(|(part, expected, _)| request.contains(part) && status == *expected) {
            wrong.push(difference);
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "these no longer differ: {unused:?}");
    let seen = weir.metric("weir_filter_objects_total{filter=\"keep\",outcome=\"kept\"").await;
    assert!(seen > 40.0, "the filter has kept {seen} objects");
}
