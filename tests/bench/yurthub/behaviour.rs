//! What clients see of a Service that a filter hides, in each form of a read, and what they get while the API server is
//! unreachable.

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::json;
use weir_tests::client::{Answer, Client, whole};

use super::{Scene, program, service, start};
use crate::data;
use crate::table::Table;

const SERVICES: usize = 100;
/// A Service that the filter discardcloudservice hides from kube-proxy.
const HIDDEN: &str = "service-00001";
/// YurtHub notices after up to four heartbeats of ten seconds.
const UNREACHABLE: Duration = Duration::from_secs(50);
const AS_TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const AS_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// What a client gets, by row.
type Rows = Vec<(String, String)>;

/// Prints both side by side.
pub(crate) async fn behaviour(table: &mut Table) {
    let Some(yurthub) = program() else { return };
    table.heading("What clients get, and what without the API server");
    println!("  {:<76}{:>24}{:>24}", "", "Weir", "YurtHub");
    let (weir, hub) = tokio::join!(rows(None), rows(Some(&yurthub)));
    for ((what, weir), (_, hub)) in weir.into_iter().zip(hub) {
        println!("  {what:<76}{weir:>24}{hub:>24}");
    }
}

async fn rows(yurthub: Option<&Path>) -> Rows {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": data::NODE, "containers": [{"name": "web", "image": "web"}]}
    });
    let scene = Scene::new((0..SERVICES).flat_map(|n| [service(n), data::slice(n, 10)]).chain([pod])).await;
    let proxy = start(&scene, yurthub).await;
    let url = proxy.url();
    let mut rows = Rows::new();
    reads(&url, "", &mut rows).await;
    scene.server.stop().await;
    tokio::time::sleep(UNREACHABLE).await;
    reads(&url, "without the API server: ", &mut rows).await;
    writes(&url, &mut rows).await;
    rows
}

async fn reads(url: &str, when: &str, rows: &mut Rows) {
    let list = "/api/v1/services?resourceVersion=0";
    let one = format!("/api/v1/namespaces/team-01/services/{HIDDEN}");
    for (component, what, path, accept) in [
        ("kube-proxy", "list of Services", list, "application/json"),
        ("kube-proxy", "get of a Service", one.as_str(), "application/json"),
        ("kube-proxy", "list of Services as Table", list, AS_TABLE),
        ("kube-proxy", "list of Services as PartialObjectMetadata", list, AS_METADATA),
        ("kubectl", "list of Services as Table", "/api/v1/services?limit=500", AS_TABLE),
        ("kubectl", "list of Pods as Table", "/api/v1/pods?limit=500", AS_TABLE),
    ] {
        let answer = Client::new(url, component).with("accept", accept).try_get(path).await;
        let seen = match answer {
            Err(_) => "no response".to_owned(),
            Ok(answer) if answer.status != 200 => answer.status.as_u16().to_string(),
            Ok(answer) if path.contains("pods") => format!("200, {}", present(&answer, "web")),
            Ok(answer) => format!("200, {}", present(&answer, HIDDEN)),
        };
        rows.push((format!("{when}{component}, {what}"), seen));
    }
}

fn present(answer: &Answer, name: &str) -> &'static str {
    if answer.text().contains(&format!("\"{name}\"")) { "object there" } else { "object left out" }
}

async fn writes(url: &str, rows: &mut Rows) {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": "default"}});
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "new", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"}, "reason": "Started", "type": "Normal"
    });
    for (component, what, path, body) in [
        ("kubectl", "ConfigMap", "/api/v1/namespaces/default/configmaps", config),
        ("kubelet", "Event", "/api/v1/namespaces/default/events", event),
    ] {
        let client = Client::new(url, component).with("content-type", "application/json");
        let answer = match client.try_send(Method::POST, path, body.to_string()).await {
            Ok(answer) => whole(answer).await.map(|answer| answer.status.as_u16().to_string()),
            Err(error) => Err(error),
        };
        rows.push((
            format!("without the API server: {component} creates a {what}"),
            answer.unwrap_or_else(|_| "no response".to_owned()),
        ));
    }
}
