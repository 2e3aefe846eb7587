//! Absence opens nothing: a Node or a pool that is gone keeps what it last said, across restarts, too, and that is reported.

use serde_json::json;
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};

use super::{edge, only};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const GONE: &str = "looked-up object is gone or cannot be seen";
const BACK: &str = "looked-up object is there again";

fn setup(server: &ApiServer) -> Setup {
    Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology")
}

async fn nodes(client: &Client) -> Vec<String> {
    let list = client.json(SLICES).await;
    let endpoints = list["items"][0]["endpoints"].as_array().unwrap().clone();
    endpoints.iter().map(|endpoint| endpoint["nodeName"].as_str().unwrap().to_owned()).collect()
}

async fn is_reported(weir: &Daemon, name: &str) {
    let known = weir.admin().json("/filters").await["lastKnown"].to_string();
    assert!(known.contains(name), "{known}");
}

#[tokio::test]
async fn a_deleted_node_keeps_its_pool_until_it_exists_without_the_label() {
    let server = edge().await;
    let weir = setup(&server).start_ready().await;
    let client = weir.client("kube-proxy");
    assert_eq!(nodes(&client).await, ["edge-a", "edge-b"]);
    let node = server.store().get("v1", "Node", "", "edge-a").unwrap();
    server.store().delete("v1", "Node", "", "edge-a").unwrap();
    weir.logged(GONE).await;
    assert_eq!(nodes(&client).await, ["edge-a", "edge-b"]);
    is_reported(&weir, "nodes edge-a").await;
    let mut orphan = node;
    orphan["metadata"] = json!({"name": "edge-a"});
    server.store().put(orphan).unwrap();
    weir.logged(BACK).await;
    assert_eq!(nodes(&client).await.len(), 3, "an orphan node has no pool");
}

#[tokio::test]
async fn a_node_that_was_deleted_while_the_daemon_was_down_keeps_its_pool() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let weir = setup(&server).on_disk(cache.path()).start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-a", "edge-b"]);
    let former = weir.stopped().await;
    server.store().delete("v1", "Node", "", "edge-a").unwrap();
    let weir = former.start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-a", "edge-b"]);
    is_reported(&weir, "nodes edge-a").await;
}

#[tokio::test]
async fn a_node_pool_that_is_gone_keeps_its_members() {
    let server = edge().await;
    let weir = setup(&server).start_ready().await;
    let client = weir.client("kube-proxy");
    assert_eq!(nodes(&client).await, ["edge-a", "edge-b"]);
    server.store().delete("apps.openyurt.io/v1beta2", "NodePool", "", "hangzhou").unwrap();
    weir.logged(GONE).await;
    assert_eq!(nodes(&client).await, ["edge-a", "edge-b"]);
    is_reported(&weir, "nodepools.apps.openyurt.io hangzhou").await;
}

#[tokio::test]
async fn a_pool_without_node_buckets_keeps_its_members_also_after_a_restart() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    for (bucket, node) in [("hangzhou-1", "edge-a"), ("hangzhou-2", "edge-b")] {
        let metadata = json!({"name": bucket, "labels": {"openyurt.io/pool-name": "hangzhou"}});
        let api_version = "apps.openyurt.io/v1alpha1";
        let nodes = json!([{"name": node}]);
        let bucket = json!({"apiVersion": api_version, "kind": "NodeBucket", "metadata": metadata, "nodes": nodes});
        server.store().put(bucket).unwrap();
    }
    let settings = "    settings: {poolSource: nodebuckets}\n";
    let weir = Setup::new(server.url()).filters(&only("servicetopology", settings)).bundled("servicetopology");
    let weir = weir.on_disk(cache.path()).start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-a", "edge-b"]);
    server.store().delete("apps.openyurt.io/v1alpha1", "NodeBucket", "", "hangzhou-1").unwrap();
    follows(&weir, &["edge-b"]).await;
    server.store().delete("apps.openyurt.io/v1alpha1", "NodeBucket", "", "hangzhou-2").unwrap();
    weir.logged(GONE).await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-b"]);
    let weir = weir.stopped().await.start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-b"]);
    is_reported(&weir, "nodebuckets.apps.openyurt.io ?openyurt.io/pool-name=hangzhou").await;
}

/// Waits until the slice has the endpoints of these nodes.
async fn follows(weir: &Daemon, wanted: &[&str]) {
    let client = weir.client("kube-proxy");
    let follows = async {
        while nodes(&client).await != wanted {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, follows).await.is_ok(), "{wanted:?}: {:?}", nodes(&client).await);
}

#[tokio::test]
async fn a_pool_of_labels_has_the_local_node_also_when_that_is_gone() {
    let server = edge().await;
    let settings = "    settings: {poolSource: nodelabels}\n";
    let weir = Setup::new(server.url()).filters(&only("servicetopology", settings)).bundled("servicetopology");
    let weir = weir.start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-a", "edge-b"]);
    for (gone, left) in [("edge-a", &["edge-a", "edge-b"][..]), ("edge-b", &["edge-a"])] {
        let from = weir.log_length();
        server.store().delete("v1", "Node", "", gone).unwrap();
        if gone == "edge-a" {
            weir.logged_after(from, GONE).await;
        }
        follows(&weir, left).await;
    }
}

/// No object says that such a pool exists, only its Nodes do: to delete the last one opens nothing.
#[tokio::test]
async fn a_pool_of_labels_that_a_setting_names_keeps_its_last_members() {
    let server = edge().await;
    let settings = "    settings: {poolSource: nodelabels, nodePool: hangzhou}\n";
    let weir = Setup::new(server.url()).filters(&only("servicetopology", settings)).bundled("servicetopology");
    let weir = weir.start_ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-a", "edge-b"]);
    server.store().delete("v1", "Node", "", "edge-a").unwrap();
    follows(&weir, &["edge-b"]).await;
    let from = weir.log_length();
    server.store().delete("v1", "Node", "", "edge-b").unwrap();
    weir.logged_after(from, GONE).await;
    assert_eq!(nodes(&weir.client("kube-proxy")).await, ["edge-b"]);
}
