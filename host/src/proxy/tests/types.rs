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
    let fixture = responding(
        "*/services",
        r#"{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"default"},"spec":{"type":"LoadBalancer"}}}
"#,
    )
    .await;
    assert_eq!(fixture.watch("/api/v1/services?watch=1").await.next().await, None);
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
    let fixture = responding(
        "*/nodepools",
        r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}
"#,
    )
    .await;
    assert_eq!(fixture.watch(&format!("{pools}?watch=1")).await.next_summary().await, "ERROR 502");
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
