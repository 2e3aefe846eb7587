//! Filters see the apiVersion and kind of each object, even if the API server omits them or sends them late.

use weir_apiserver::Action;
use weir_document::{Document, Path};

use super::*;
use weir_runtime::Outcome;

/// Hides LoadBalancer Services. Reads the kind first, as many filters do.
fn hide_load_balancers() -> Script {
    Script::new(|document: &Document| {
        let balanced = document.text(&Path::parse("spec.type").unwrap()).unwrap();
        let hidden = document.kind().unwrap() == "Service" && balanced.as_deref() == Some("LoadBalancer");
        if hidden { Outcome::Hidden } else { Outcome::Unchanged }
    })
}

async fn responding(rule: &str, body: &'static str) -> ProxyFixture {
    let fixture = fixture().await;
    fixture.filter(rule, &hide_load_balancers());
    fixture.server.on_request(move |_| Action::json(200, body));
    fixture
}

#[tokio::test]
async fn a_list_that_names_its_kind_after_its_items_is_filtered_by_the_kind_of_its_resource() {
    let fixture = responding(
        "*/services",
        r#"{"apiVersion":"v1","items":[
            {"metadata":{"name":"a"},"spec":{"type":"ClusterIP"}},
            {"metadata":{"name":"b"},"spec":{"type":"LoadBalancer"}}
        ],"kind":"ServiceList","metadata":{"resourceVersion":"1"}}"#,
    )
    .await;
    let (status, list) = fixture.json("/api/v1/services").await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a"]));
}

#[tokio::test]
async fn an_object_without_a_kind_is_filtered_by_the_kind_of_its_resource() {
    let object = r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"type":"LoadBalancer"}}"#;
    let fixture = responding("*/services", object).await;
    assert_eq!(fixture.json("/api/v1/namespaces/default/services/b").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_object_without_a_kind_is_hidden_from_a_watch_by_the_kind_of_its_resource() {
    let fixture = fixture().await;
    fixture.filter("*/services", &hide_load_balancers());
    let service = |name: &str, kind: &str, version: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "resourceVersion": version}, "spec": {"type": kind}
        })
    };
    let list = json!({
        "kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"},
        "items": [service("a", "ClusterIP", "1"), service("b", "LoadBalancer", "2")],
    });
    let events = [service("c", "LoadBalancer", "4"), service("d", "ClusterIP", "5")];
    let events: Vec<_> = events.iter().map(|object| json!({"type": "ADDED", "object": object}).to_string()).collect();
    let events = format!("{}\n", events.join("\n"));
    fixture.server.on_request(move |request| match request.query.contains("watch=") {
        true => Action::json(200, events.clone()),
        false => Action::json(200, list.to_string()),
    });
    let mut events = fixture.watch("/api/v1/services?watch=1").await;
    for name in ["a", "d"] {
        let mut event = events.next().await.unwrap();
        // As long as it is not known what the client was shown before.
        while event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "c" {
            event = events.next().await.unwrap();
        }
        let object = &event["object"];
        assert_eq!((&event["type"], &object["metadata"]["name"]), (&json!("ADDED"), &json!(name)), "{event}");
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("v1"), &json!("Service")), "{event}");
    }
}

#[tokio::test]
async fn objects_of_unknown_kind_fail_the_response() {
    let pools = "/apis/apps.openyurt.io/v1beta2/nodepools";
    let listed = r#"{"apiVersion":"apps.openyurt.io/v1beta2","items":[{"metadata":{"name":"a"}}],"kind":"NodePoolList","metadata":{}}"#;
    let fixture = responding("*/nodepools", listed).await;
    let (status, error) = fixture.json(pools).await;
    assert_eq!((status, &error["kind"]), (StatusCode::BAD_GATEWAY, &json!("Status")));
    assert!(error["message"].as_str().unwrap().contains("names no apiVersion and kind"), "{error}");
    let fixture = responding("*/nodepools", r#"{"metadata":{"name":"a"}}"#).await;
    assert_eq!(fixture.json(&format!("{pools}/a")).await.0, StatusCode::BAD_GATEWAY);
    let fixture = responding("*/nodepools", r#"{"items":[{"metadata":{"name":"a"}}],"metadata":{}}"#).await;
    assert_eq!(fixture.json(&format!("{pools}?watch=1")).await.0, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn items_of_custom_resources_name_their_own_kind() {
    let fixture = responding(
        "*/nodepools",
        r#"{"apiVersion":"apps.openyurt.io/v1beta2","items":[
            {"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"a"}}
        ],"kind":"NodePoolList","metadata":{"resourceVersion":"1"}}"#,
    )
    .await;
    let (status, list) = fixture.json("/apis/apps.openyurt.io/v1beta2/nodepools").await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a"]));
}
