//! The apiVersion and kind of the objects that filters see, whatever the API server leaves out or sends late.

use weir_apiserver::Action;
use weir_document::{Document, Path};

use super::*;
use weir_runtime::Outcome;

/// Hides LoadBalancer Services, as a filter does that looks at the kind first.
fn hide_load_balancers() -> Script {
    Script::new(|document: &Document| {
        let balanced = document.text(&Path::parse("spec.type").unwrap()).unwrap();
        let hidden = document.kind().unwrap() == "Service" && balanced.as_deref() == Some("LoadBalancer");
        if hidden { Outcome::Hidden } else { Outcome::Unchanged }
    })
}

async fn answering(rule: &str, body: &'static str) -> Rig {
    let rig = rig().await;
    rig.filter(rule, &hide_load_balancers());
    rig.server.on_request(move |_| Action::json(200, body));
    rig
}

#[tokio::test]
async fn a_list_that_names_its_kind_after_its_items_is_filtered_by_the_kind_of_its_resource() {
    let rig = answering(
        "*/services",
        r#"{"apiVersion":"v1","items":[
            {"metadata":{"name":"a"},"spec":{"type":"ClusterIP"}},
            {"metadata":{"name":"b"},"spec":{"type":"LoadBalancer"}}
        ],"kind":"ServiceList","metadata":{"resourceVersion":"1"}}"#,
    )
    .await;
    let (status, list) = rig.json("/api/v1/services").await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a"]));
}

#[tokio::test]
async fn an_object_without_a_kind_is_filtered_by_the_kind_of_its_resource() {
    let object = r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"type":"LoadBalancer"}}"#;
    let rig = answering("*/services", object).await;
    assert_eq!(rig.json("/api/v1/namespaces/default/services/b").await.0, StatusCode::NOT_FOUND);
    let rig = answering(
        "*/services",
        r#"{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"default"},"spec":{"type":"LoadBalancer"}}}
"#,
    )
    .await;
    assert_eq!(rig.watch("/api/v1/services?watch=1").await.next().await, None);
}

#[tokio::test]
async fn objects_of_no_known_kind_fail_the_answer() {
    let pools = "/apis/apps.openyurt.io/v1beta2/nodepools";
    let listed = r#"{"apiVersion":"apps.openyurt.io/v1beta2","items":[{"metadata":{"name":"a"}}],"kind":"NodePoolList","metadata":{}}"#;
    let rig = answering("*/nodepools", listed).await;
    let (status, refusal) = rig.json(pools).await;
    assert_eq!((status, &refusal["kind"]), (StatusCode::BAD_GATEWAY, &json!("Status")));
    assert!(refusal["message"].as_str().unwrap().contains("names no apiVersion and kind"), "{refusal}");
    let rig = answering("*/nodepools", r#"{"metadata":{"name":"a"}}"#).await;
    assert_eq!(rig.json(&format!("{pools}/a")).await.0, StatusCode::BAD_GATEWAY);
    let rig = answering(
        "*/nodepools",
        r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}
"#,
    )
    .await;
    assert_eq!(rig.watch(&format!("{pools}?watch=1")).await.told().await, "ERROR 502");
}

#[tokio::test]
async fn a_crd_list_names_its_kind_late_and_its_items_name_their_own() {
    let rig = answering(
        "*/nodepools",
        r#"{"apiVersion":"apps.openyurt.io/v1beta2","items":[
            {"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"a"}}
        ],"kind":"NodePoolList","metadata":{"resourceVersion":"1"}}"#,
    )
    .await;
    let (status, list) = rig.json("/apis/apps.openyurt.io/v1beta2/nodepools").await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a"]));
}
