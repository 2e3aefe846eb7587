//! Upstream connections: each carries as many streams as the server allows, and urgent requests do not wait for a
//! stream.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderValue, Method};
use weir_apiserver::ApiServer;
use weir_tests::client::{PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::pki::Authority;

use super::NO_LOAD_BALANCERS;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const WATCHES: usize = 130;

/// An API server over TLS, and so with HTTP/2, with this stream limit per connection.
async fn before(streams: u32) -> (ApiServer, Daemon) {
    let ca = Authority::new("cluster");
    let pair = ca.server();
    let server = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).max_streams(streams);
    let server = server.start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    let weir = Setup::new(server.url())
        .file("--certificate-authority", "ca.crt", ca.pem())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .uncached()
        .start_ready()
        .await;
    server.clear_requests();
    (server, weir)
}

#[tokio::test]
async fn a_connection_carries_as_many_watches_as_the_server_allows_and_none_waits() {
    let threads = std::thread::available_parallelism().unwrap().get().min(8);
    for limit in [20, 250] {
        let (server, weir) = before(limit).await;
        let client = weir.client("tool");
        // All at once, before the daemon knows the limit.
        let open = join_all((0..WATCHES).map(|at| {
            // Filtered Tables, and what no filter matches.
            let (client, path) = (client.clone().with("accept", TABLE), ["/api/v1/services", "/api/v1/nodes"][at % 2]);
            async move {
                let mut events = client.watch(&format!("{path}?watch=true")).await;
                assert!(events.next_named().await.starts_with("ADDED"));
                events
            }
        }));
        let open = tokio::time::timeout(PATIENCE, open).await.expect("no watch waits for another");
        for path in ["/api/v1/services", "/api/v1/nodes", "/version"] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
        let mut connections = BTreeMap::new();
        for request in server.requests().iter().filter(|request| request.query.starts_with("watch=true")) {
            *connections.entry(request.connection).or_insert(0) += 1;
        }
        assert_eq!(connections.values().sum::<usize>(), WATCHES);
        let most = *connections.values().max().unwrap();
        assert!(most <= limit as usize, "{connections:?}");
        // Each thread has its own connections, and the last one of each has free streams.
        let fewest = WATCHES.div_ceil(limit as usize);
        assert!((fewest..=fewest + threads).contains(&connections.len()), "{limit}: {connections:?}");
        drop(open);
    }
}

#[tokio::test]
async fn heartbeats_and_other_reads_do_not_wait_behind_unread_lists() {
    let (server, weir) = before(250).await;
    let client = weir.client("kubelet").with("content-type", "application/json");
    for object in [
        r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "edge-a", "namespace": "kube-node-lease"}, "spec": {}}"#,
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "edge-a", "containers": [{"name": "c", "image": "i"}]}}"#,
    ] {
        server.store().put(serde_json::from_str(object).unwrap()).unwrap();
    }
    // Lists whose heads are read and whose bodies are not: more than the flow-control windows of a connection hold.
    let json = HeaderValue::from_static("application/json");
    let items =
        format!("{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"items\":[]{}}}", " ".repeat(16 << 20));
    server.fix("/api/v1/events", json, items);
    let lists = join_all((0..16).map(|_| client.send(Method::GET, "/api/v1/events", ""))).await;
    assert!(lists.iter().all(|answer| answer.status() == 200));

    let beats = [
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge-a",
            "coordination.k8s.io/v1",
            "Lease",
        ),
        ("PATCH", "/api/v1/nodes/edge-a/status", "v1", "Node"),
        ("PATCH", "/api/v1/namespaces/default/pods/p/status", "v1", "Pod"),
    ];
    for beat in 0..20 {
        for (method, path, version, kind) in beats {
            let (body, form) = match method {
                "PUT" => {
                    let lease = format!(
                        r#"{{"apiVersion": "{version}", "kind": "{kind}",
                            "metadata": {{"name": "edge-a", "namespace": "kube-node-lease"}},
                            "spec": {{"holderIdentity": "{beat}"}}}}"#
                    );
                    (lease, "application/json")
                }
                _ => (format!(r#"{{"status": {{"phase": "{beat}"}}}}"#), "application/strategic-merge-patch+json"),
            };
            let client = client.clone().with("content-type", form);
            let answer =
                tokio::time::timeout(Duration::from_secs(10), client.send(method.parse().unwrap(), path, body));
            let answer = whole(answer.await.expect("at once")).await.unwrap();
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
    }
    // Other reads do not wait either, even on the same connection.
    for path in ["/version", "/api/v1/services", "/api/v1/nodes"] {
        for _ in 0..8 {
            let answer = tokio::time::timeout(Duration::from_secs(10), weir.client("tool").get(path)).await;
            assert_eq!(answer.expect("at once").status, 200, "{path}");
        }
    }
    let of = |beat: bool| -> BTreeSet<u64> {
        let requests = server.requests();
        let chosen = requests.iter().filter(|request| beat == beats.iter().any(|(_, path, ..)| request.path == *path));
        chosen.map(|request| request.connection).collect()
    };
    assert_eq!(server.requests().iter().filter(|request| request.method == "PATCH").count(), 40);
    assert!(of(true).is_disjoint(&of(false)), "{:?} {:?}", of(true), of(false));
    drop(lists);
}
