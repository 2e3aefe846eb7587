//! Objects that are valid, and unlike any that a filter expects.

use bytes::Bytes;
use http::Method;
use weir_tests::built;
use weir_tests::client::whole;
use weir_tests::daemon::Setup;
use weir_tests::edge::{edge, service};
use weir_tests::node_reads::NodeReads;

/// Not what the daemon lists for lookups.
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A list of Services, of which one has a value that is nested very deep.
fn list_with_a_deep_one() -> String {
    let nest = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let plain = |name| service(name, "ClusterIP").to_string();
    let deep = plain("deep").replacen("\"spec\":{", &format!("\"spec\":{{\"deep\":{nest},"), 1);
    assert!(deep.len() > nest.len());
    format!(
        "{{\"kind\":\"ServiceList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":[{},{deep},{}]}}",
        plain("a"),
        plain("z")
    )
}

/// The names in a list that a recursive parser refuses.
fn names(list: &str) -> Vec<&str> {
    ["a", "deep", "z"].into_iter().filter(|name| list.contains(&format!("\"name\":\"{name}\""))).collect()
}

#[tokio::test]
async fn an_object_that_is_nested_too_deep_is_the_error_of_this_object() {
    let server = edge().await;
    server.fix(SERVICES, "application/json".parse().unwrap(), list_with_a_deep_one());
    for (policy, reads, seen) in [
        ("Fail", "metadata.name", Some(vec!["a", "deep", "z"])),
        ("Ignore", "spec", Some(vec!["a", "deep", "z"])),
        ("Hide", "spec", Some(vec!["a", "z"])),
        ("Fail", "spec", None),
    ] {
        let filters = format!(
            "filters:
  - name: guest
    module: guest.wasm
    match: [\"*/services\"]
    grants: [services, nodes, nodepools.apps.openyurt.io]
    failurePolicy: {policy}
    settings: {{ops: [{{read: [0, {{fingerprint: {reads}}}]}}]}}
"
        );
        let program = std::fs::read(built::target().join("guest.wasm")).unwrap();
        let weir = Setup::new(server.url()).filters(&filters).module("guest", &program).start_ready().await;
        let answer = weir.client("tool").get(SERVICES).await;
        match seen {
            Some(seen) => {
                assert_eq!((answer.status.as_u16(), names(&answer.text())), (200, seen), "{policy} {reads}");
            }
            None => {
                assert_eq!(answer.status, 500, "{policy} {reads}");
                assert!(answer.text().contains("guest"), "{:.300}", answer.text());
            }
        }
    }
}

/// The Content-Length matches the cut body: only the encoding shows that bytes are missing.
#[tokio::test]
async fn protobuf_that_is_cut_at_any_byte_is_never_a_shorter_list() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let server = edge().await;
    let filters =
        "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}\n";
    let weir = Setup::new(server.url()).filters(filters).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("tool").with("accept", PROTOBUF);
    let node = NodeReads::start(weir.client("kubelet"), weir.client("kube-proxy")).await;
    let direct = weir_tests::client::Client::new(server.url(), "tool").with("accept", PROTOBUF);
    for path in [SERVICES, "/api/v1/namespaces/default/services/web"] {
        let complete = direct.get(path).await.body;
        assert!(complete.starts_with(b"k8s\0"));
        server.fix(path, PROTOBUF.parse().unwrap(), complete.clone());
        let expected = client.get(path).await;
        assert_eq!(expected.status, 200, "{path}");
        // The envelope: magic, type, then the object. Without the latter it is an object without fields, as Go reads it.
        let header = 6 + usize::from(complete[5]);
        for length in (0..complete.len()).filter(|length| *length != header) {
            server.fix(path, PROTOBUF.parse().unwrap(), complete.slice(..length));
            let answer = whole(client.send(Method::GET, path, Bytes::new()).await).await;
            // The last four bytes are the empty encoding and content type of the envelope.
            let passed = answer.is_ok_and(|answer| answer.status == 200);
            assert!(!passed || length + 4 >= complete.len(), "{path}: {length} of {} bytes", complete.len());
        }
    }
    node.end().await;
}
