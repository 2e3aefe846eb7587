//! Lists: streamed through the chain, complete or not at all.

use serde_json::json;
use weir_apiserver::{Action, End, Gzip};
use weir_tests::daemon::Setup;
use weir_tests::guests::hostile;

use super::{NO_LOAD_BALANCERS, edge, only, service};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

#[tokio::test]
async fn a_hidden_object_is_removed_and_the_others_keep_their_bytes() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let through = weir.client("kube-proxy").json(SERVICES).await;
    let mut direct = weir_tests::client::Client::new(server.url(), "test").json(SERVICES).await;
    direct["items"].as_array_mut().unwrap().retain(|item| item["spec"]["type"] != "LoadBalancer");
    assert_eq!(through, direct);
    assert!(!through["items"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn objects_with_equal_reads_need_no_call_and_get_the_same_outcome() {
    let server = edge().await;
    for n in 0..40 {
        server.store().put(service(&format!("plain-{n}"), "ClusterIP")).unwrap();
        server.store().put(service(&format!("cloud-{n}"), "LoadBalancer")).unwrap();
    }
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .uncached()
        .start_ready()
        .await;
    let client = weir.client("kube-proxy");
    let direct = weir_tests::client::Client::new(server.url(), "test").json(SERVICES).await;
    let all = direct["items"].as_array().unwrap();
    let visible = all.iter().filter(|item| item["spec"]["type"] != "LoadBalancer").count();
    for _ in 0..2 {
        assert_eq!(client.names(SERVICES).await.len(), visible);
    }
    // The daemon records four calls for each path to an outcome, then calls no more.
    let of = |series: &str| format!("{series}{{filter=\"discardcloudservice\"");
    let replayed = weir.metric(&format!("{}}}", of("weir_filter_replayed_total"))).await;
    assert!(replayed >= 2.0 * all.len() as f64 - 16.0, "{replayed} of twice {}", all.len());
    assert_eq!(
        weir.metric(&format!("{},outcome=\"hidden\"}}", of("weir_filter_objects_total"))).await,
        2.0 * (all.len() - visible) as f64
    );
    // An object with another read result needs a call.
    let mut spared = service("spared", "LoadBalancer");
    spared["metadata"]["annotations"] = json!({"openyurt.io/skip-discard": "true"});
    server.store().put(spared).unwrap();
    assert_eq!(client.names(SERVICES).await.len(), visible + 1);
}

#[tokio::test]
async fn without_a_match_the_response_equals_the_servers_byte_for_byte() {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(&only("discardcloudservice", ""))
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    let through = weir.client("someone-else").get(SERVICES).await;
    let direct = weir_tests::client::Client::new(server.url(), "someone-else").get(SERVICES).await;
    assert_eq!(through.body, direct.body);
    assert_eq!(through.headers.get("content-type"), direct.headers.get("content-type"));
}

#[tokio::test]
async fn component_names_match_case_insensitively() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology").start_ready().await;
    let endpoints = |list: serde_json::Value| list["items"][0]["endpoints"].as_array().unwrap().len();
    assert_eq!(endpoints(weir.client("CoreDNS").json(SLICES).await), 2);
    assert_eq!(endpoints(weir.client("kube-proxy").json(SLICES).await), 2);
    assert_eq!(endpoints(weir.client("kube-proxy-2").json(SLICES).await), 3);
}

#[tokio::test]
async fn pages_keep_the_servers_continue_token_even_if_a_whole_page_is_hidden() {
    let server = edge().await;
    for name in ["a1", "a2", "a3"] {
        server.store().put(service(name, "LoadBalancer")).unwrap();
    }
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    let (mut seen, mut from, mut pages, mut empty) = (Vec::new(), String::new(), 0, 0);
    loop {
        let page = client.json(&format!("/api/v1/namespaces/default/services?limit=2{from}")).await;
        pages += 1;
        let names = weir_tests::client::names(&page);
        empty += usize::from(names.is_empty());
        seen.extend(names);
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => from = format!("&continue={token}"),
            _ => break,
        }
    }
    assert_eq!(seen, ["dashboard", "kubernetes", "web"]);
    assert!(pages >= 3 && empty >= 1, "{pages} pages, {empty} empty");
}

#[tokio::test]
async fn gzip_from_upstream_is_decoded_and_small_responses_are_not_compressed_again() {
    let server = edge().await;
    server.set_gzip(Gzip::Always);
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let answer = weir.client("kube-proxy").with("accept-encoding", "gzip").get(SERVICES).await;
    assert!(answer.headers.get("content-encoding").is_none());
    assert_eq!(weir_tests::client::names(&answer.json()), ["dashboard", "kubernetes", "web"]);
}

#[tokio::test]
async fn every_requested_shape_is_filtered() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    for accept in [
        "application/json",
        "application/vnd.kubernetes.protobuf, */*",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/yaml",
        "application/cbor",
        "text/html,*/*;q=0.8",
    ] {
        let answer = weir.client("kube-proxy").with("accept", accept).get(SERVICES).await;
        assert_eq!(answer.status, 200, "{accept}");
        assert!(!answer.text().contains("shop"), "{accept}: {}", answer.text());
        assert!(answer.text().contains("web"), "{accept}: {}", answer.text());
    }
    // The API server's own refusal.
    let refused = weir.client("kube-proxy").with("accept", "text/html").get(SERVICES).await;
    assert_eq!((refused.status.as_u16(), refused.json()["reason"].clone()), (406, json!("NotAcceptable")));
}

#[tokio::test]
async fn a_crds_list_with_kind_and_metadata_after_its_items_passes() {
    let server = edge().await;
    let filters = "\
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/nodepools.apps.openyurt.io']}
";
    let weir = Setup::new(server.url()).filters(filters).bundled("discardcloudservice").start_ready().await;
    let path = "/apis/apps.openyurt.io/v1beta2/nodepools";
    let through = weir.client("test").get(path).await;
    let direct = weir_tests::client::Client::new(server.url(), "test").get(path).await;
    assert_eq!(through.body, direct.body);
}

#[tokio::test]
async fn a_failing_filter_fails_a_small_list_with_a_status() {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(&only("endless-loop", ""))
        .module("endless-loop", &hostile("endless-loop"))
        .start_ready()
        .await;
    let answer = weir.client("test").get(SERVICES).await;
    assert_eq!(answer.status, 500);
    let status = answer.json();
    assert_eq!((status["kind"].as_str(), status["reason"].as_str()), (Some("Status"), Some("InternalError")));
    assert!(status["message"].as_str().unwrap().contains("endless-loop"), "{status}");
}

#[tokio::test]
async fn a_list_that_fails_after_its_head_is_cut() {
    let server = edge().await;
    for n in 0..400 {
        let mut object = service(&format!("big-{n:04}"), "ClusterIP");
        object["metadata"]["annotations"] = json!({"filler": "x".repeat(2000)});
        server.store().put(object).unwrap();
    }
    // An object that parsers read differently, as it has a duplicate key. 256 KiB of good objects precede it.
    let good = weir_tests::client::Client::new(server.url(), "test").get(SERVICES).await.text();
    let object =
        r#"{"metadata":{"name":"zz","namespace":"default"},"spec":{"type":"ClusterIP","type":"LoadBalancer"}}"#;
    let bad = format!("{},{object}]}}", good.trim_end().strip_suffix("]}").expect("items are last in a built-in list"));
    server.on_request(move |request| match request.target().as_str() {
        SERVICES => Action::json(200, bad.clone()),
        _ => Action::Serve,
    });
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    let first = client.try_get(SERVICES).await;
    assert!(first.is_err(), "a list that is not whole must not look whole: {first:?}");
    server.clear_hook();
    assert_eq!(client.get(SERVICES).await.status, 200, "without the object the list succeeds again");
}

#[tokio::test]
async fn a_broken_upstream_response_is_never_passed_on() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    let list = r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#;
    for (what, body) in [
        ("truncated", format!("{list}{{\"metadata\":{{\"name\":\"a\"")),
        ("no items", r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{}}"#.to_owned()),
        ("items twice", format!("{list}],\"items\":[]}}")),
        ("not an object", "[1,2,3]".to_owned()),
        ("empty", String::new()),
        ("trailing", format!("{list}]}} {{}}")),
        ("items no array", r#"{"kind":"ServiceList","items":{"a":1}}"#.to_owned()),
    ] {
        server.on_request(move |_| Action::json(200, body.clone()));
        let answer = client.get(SERVICES).await;
        assert_eq!(answer.status, 502, "{what}: {}", answer.text());
        assert_eq!(answer.json()["kind"], "Status", "{what}");
    }
    server.on_request(|_| Action::answer(200, "text/html", "<html>gateway</html>"));
    assert_eq!(client.get(SERVICES).await.status, 502);
    server.on_request(|_| Action::Cut { after: 40, end: End::Abort });
    assert_eq!(client.get(SERVICES).await.status, 502);
    server.on_request(|_| Action::json(429, r#"{"kind":"Status","apiVersion":"v1","code":429}"#));
    assert_eq!(client.get(SERVICES).await.status, 429, "upstream's own errors pass");
}
