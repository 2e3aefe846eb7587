//! Selectors and options that Weir does not read as the API server does: only the API server answers them.

use super::*;

/// Queries of Services that the API server refuses or that Weir cannot evaluate, and the invalid parameter.
const REFUSED: &[(&str, &str)] = &[
    ("fieldSelector=metadata.name!%3D%3Da", "fieldSelector"),
    ("fieldSelector=metadata.name%3Da%3Db", "fieldSelector"),
    ("fieldSelector=metadata.name%3D%5Ca", "fieldSelector"),
    ("fieldSelector=spec.nodeName%3Da", "fieldSelector"),
    ("fieldSelector=%20metadata.name%3Da", "fieldSelector"),
    ("labelSelector=a%3Db%3Dc", "labelSelector"),
    ("labelSelector=-a", "labelSelector"),
    ("labelSelector=a%20in%20(b,,)", "labelSelector"),
    ("labelSelector=a%3E-1", "labelSelector"),
    ("labelSelector=a%C2%A0%3Db", "labelSelector"),
    ("limit=x", "limit"),
    ("limit=", "limit"),
    ("timeoutSeconds=x", "timeoutSeconds"),
    ("timeoutSeconds=9223372036854775808", "timeoutSeconds"),
    ("resourceVersion=%2B1", "resourceVersion"),
    ("resourceVersion=1&resourceVersionMatch=exact", "resourceVersionMatch"),
];
/// Of a list alone, with 422.
const LISTS: &[(&str, &str)] = &[
    ("sendInitialEvents=true", "sendInitialEvents"),
    ("sendInitialEvents=false", "sendInitialEvents"),
    ("resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch"),
];
/// Of a watch alone.
const WATCHES: &[(&str, &str)] = &[
    ("timeoutSeconds=9223372036854775807", "timeoutSeconds"),
    ("timeoutSeconds=-1", "timeoutSeconds"),
    ("continue=x", "continue"),
    ("sendInitialEvents=true", "resourceVersionMatch"),
];

/// All of them, with a version that a view would serve.
fn refused() -> Vec<(String, &'static str)> {
    let versioned = |query: &str| match query.contains("resourceVersion=") {
        true => query.to_owned(),
        false => format!("resourceVersion=0&{query}"),
    };
    let lists = REFUSED.iter().chain(LISTS).map(|(query, parameter)| (versioned(query), *parameter));
    let watches =
        REFUSED.iter().chain(WATCHES).map(|(query, parameter)| (format!("watch=1&{}", versioned(query)), *parameter));
    lists.chain(watches).collect()
}

#[tokio::test]
async fn what_weir_does_not_read_as_the_api_server_does_goes_to_it() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    fixture
        .server
        .on_request(|_| Action::json(400, json!({"kind": "Status", "message": "from the API server"}).to_string()));
    for (query, _) in refused() {
        let (status, answer) = fixture.json(&format!("{SERVICES}?{query}")).await;
        assert_eq!((status, &answer["message"]), (StatusCode::BAD_REQUEST, &json!("from the API server")), "{query}");
    }
    assert_eq!(names(&informer_list(&fixture).await), ["a", "c"], "the view is still there");
}

#[tokio::test]
async fn offline_it_is_refused_with_the_parameter_at_fault() {
    let (mut fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    fixture.server = ApiServer::builder().start().await.unwrap();
    for (query, parameter) in refused() {
        let (status, answer) = fixture.json(&format!("{SERVICES}?{query}")).await;
        let is_refused = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        assert!(is_refused && answer["code"] == json!(status.as_u16()), "{query}: {answer}");
        assert_eq!(answer["details"]["causes"][0]["field"], parameter, "{query}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(parameter), "{query}: {answer}");
    }
    for (query, _) in LISTS {
        let (status, answer) = fixture.json(&format!("{SERVICES}?{query}")).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("Invalid")), "{query}");
    }
    assert_eq!(names(&informer_list(&fixture).await), ["a", "c"]);
}

#[tokio::test]
async fn a_selector_is_read_as_the_api_server_reads_it() {
    let (fixture, _script, _) = cached().await;
    for (selector, selected) in [
        ("fieldSelector=metadata.name%3D%3Da", &["a"][..]),
        ("fieldSelector=metadata.name!%3Da", &["c"]),
        ("fieldSelector=metadata.name%3Da%0A", &[]),
        ("fieldSelector=metadata.name%3D%20a", &[]),
        ("fieldSelector=metadata.name%3Da%5C%2Cb", &[]),
        ("fieldSelector=%3D,,", &["a", "c"]),
        ("labelSelector=%21a%0A", &["a", "c"]),
        ("labelSelector=a%3E1", &[]),
        ("labelSelector=a%20notin%20()", &["a", "c"]),
    ] {
        let (status, list) = fixture.json(&format!("{SERVICES}?resourceVersion=0&{selector}")).await;
        assert_eq!((status, names(&list).as_slice()), (StatusCode::OK, selected), "{selector}");
    }
    assert_eq!(upstream_reads(&fixture), (1, 1), "from the view");
}

#[tokio::test]
async fn the_old_path_of_a_watch_of_one_object_shows_that_object_alone() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    let mut all = fixture.watch("/api/v1/watch/services").await;
    let mut one = fixture.watch("/api/v1/watch/namespaces/default/services/c").await;
    assert_eq!(all.next_summary().await, "ADDED a");
    assert_eq!(one.next_summary().await, "ADDED c");
    assert_eq!(all.next_summary().await, "ADDED c");
    fixture.service("d", "ClusterIP");
    assert_eq!(all.next_summary().await, "ADDED d");
    fixture.service("c", "NodePort");
    assert_eq!(one.next_summary().await, "MODIFIED c");
    let other = "/api/v1/watch/namespaces/default/services/c?fieldSelector=metadata.name%3Da";
    fixture.server.on_request(|_| Action::json(400, json!({"kind": "Status"}).to_string()));
    assert_eq!(fixture.json(other).await.0, StatusCode::BAD_REQUEST, "only the API server answers it");
}
