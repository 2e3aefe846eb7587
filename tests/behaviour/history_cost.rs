//! What it costs to compare each collection of a node with the API server's history after a restart.

use serde_json::json;
use weir_tests::client::{Client, Events, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant_kubelets;
use weir_tests::pki::Authority;

const COLLECTIONS: usize = 100;

fn map(n: usize) -> String {
    format!("/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dmap-{n}&resourceVersion=0&watch=true")
}

/// Reads as kubelet does: each ConfigMap of a pod is a collection of its own.
async fn watched(weir: &Daemon, ca: &Authority, clients: &Authority) -> Vec<Events> {
    let pair = clients.client("system:node:edge-a", "system:nodes");
    let kubelet = Client::trusting(&weir.secure_url().await, "kubelet", Some(ca.pem()), Some(&pair));
    let mut open = Vec::new();
    for n in 0..COLLECTIONS {
        let mut events = kubelet.watch(&map(n)).await;
        assert_eq!(events.next_named().await, format!("ADDED map-{n}"));
        open.push(events);
    }
    open
}

#[tokio::test]
async fn a_hundred_collections_are_compared_with_one_short_list_each_after_a_restart() {
    let server = super::edge().await;
    grant_kubelets(&server);
    for n in 0..COLLECTIONS {
        let name = format!("map-{n}");
        let metadata = json!({"name": name, "namespace": "default"});
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x".repeat(4096)}});
        server.store().put(map).unwrap();
    }
    let cache = tempfile::tempdir().unwrap();
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let setup = || {
        let setup = Setup::new(server.url()).on_disk(cache.path()).filters("filters: []").tls(&ca.server());
        setup.file("--client-ca-file", "clients.crt", clients.pem())
    };
    let weir = setup().start_ready().await;
    drop(watched(&weir, &ca, &clients).await);
    weir.stop().await;

    server.clear_requests();
    let weir = setup().start_ready().await;
    let _open = watched(&weir, &ca, &clients).await;
    let same = r#"weir_cache_checks_total{resource="configmaps",result="same"}"#;
    let compared = async {
        while weir.metric(same).await < COLLECTIONS as f64 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(2 * PATIENCE, compared).await.is_ok(), "{}", weir.log_text());
    let requests = server.requests();
    let lists = requests
        .iter()
        .filter(|request| request.path.ends_with("/configmaps") && !request.query.contains("watch=true"));
    let lists: Vec<_> = lists.map(|request| request.query.clone()).collect();
    assert_eq!(lists.len(), COLLECTIONS, "{lists:?}");
    let bytes = weir.metric(r#"weir_cache_check_received_bytes_total{resource="configmaps"}"#).await;
    println!("{COLLECTIONS} collections of one object of 4 KiB each: {bytes} bytes of names, uids and versions");
    // The objects themselves are not sent again.
    assert!(bytes / (COLLECTIONS as f64) < 4096.0 / 4.0, "{bytes}");
}
