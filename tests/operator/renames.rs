//! A pool that is renamed while a YurtIngress names it: its ingress controller runs on, and status, Event and `/readyz` say what is
//! missing.

use serde_json::{Value, json};

use super::cluster::{CLASSES, Cluster, DEPLOYMENTS, INGRESSES, POOLS, reason_of, spec, state_of, until};
use super::process::Operator;

const HANGZHOU: &str = "traefik-hangzhou";
const MISSING: &str = "there is no pool hangzhou; its objects stay as they are, and nothing repairs them";
/// What is said of a pool whose Nodes have another label now.
const EMPTY: &str =
    "pool hangzhou: no Node is in the pool: its pods run where they are, and wait for a Node once they end";

/// Adds a YurtIngress of the pool hangzhou, all of whose replicas serve.
async fn add_ready_ingress(cluster: &Cluster) {
    cluster.add_ingress("edge", spec(&["hangzhou"])).await;
    cluster.pool_is("edge", "hangzhou", "Deploying").await;
    cluster.deployed(HANGZHOU).await;
    cluster.pool_is("edge", "hangzhou", "Ready").await;
}

/// The pool is missing, which all places report, and its objects are there.
async fn is_missing(cluster: &Cluster, operator: &Operator) {
    assert_eq!(cluster.pool_is("edge", "hangzhou", "PoolNotFound").await, MISSING);
    let is_pending = |status: &Value| (reason_of(status, "Ready")? == "PoolsPending").then_some(());
    cluster.status("edge", is_pending).await;
    assert_eq!(cluster.event("PoolNotFound").await, format!("pool hangzhou: {MISSING}"));
    let line = format!("pool hangzhou: PoolNotFound: {MISSING}");
    until("/readyz names it", async || operator.readyz().await.contains(&line).then_some(())).await;
    assert!(operator.not_ready().await.is_empty(), "the operator itself works");
    assert_eq!(cluster.applied(DEPLOYMENTS).await, [HANGZHOU]);
    assert_eq!(cluster.applied(CLASSES).await, ["hangzhou"]);
}

#[tokio::test]
async fn the_controller_of_a_renamed_pool_runs_on_until_the_yurtingress_names_the_new_one() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    let operator = Operator::start(&cluster, &[]).await;
    add_ready_ingress(&cluster).await;
    // No object of Kubernetes has a new name: one NodePool goes, another one comes.
    cluster.add_pool("beijing").await;
    cluster.delete(&format!("{POOLS}/hangzhou")).await;
    is_missing(&cluster, &operator).await;
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": {"pools": [{"name": "beijing"}]}})).await;
    cluster.pool_is("edge", "beijing", "Deploying").await;
    for (collection, name) in [(DEPLOYMENTS, HANGZHOU), (CLASSES, "hangzhou")] {
        cluster.wait(collection, name, |object| object.is_none().then_some(())).await;
    }
    cluster.status("edge", |status| state_of(status, "hangzhou").is_none().then_some(())).await;
    until("/readyz has forgotten it", async || (!operator.readyz().await.contains("hangzhou")).then_some(())).await;
    operator.stop().await;
}

/// Gives the Node edge-a the label of a pool.
async fn label(cluster: &Cluster, pool: &str) {
    let patch = json!({"metadata": {"labels": {"apps.openyurt.io/nodepool": pool}}});
    cluster.merge("/api/v1/nodes/edge-a", patch).await;
}

/// The pods serve on, so that the pool stays ready. That none of them would come back is said in all places.
#[tokio::test]
async fn a_pool_whose_nodes_get_another_label_stays_ready_and_is_named() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    label(&cluster, "hangzhou").await;
    let operator = Operator::start(&cluster, &[]).await;
    add_ready_ingress(&cluster).await;
    label(&cluster, "beijing").await;
    let is_empty = |status: &Value| (status["poolsWithoutNodes"] == json!(["hangzhou"])).then(|| status.clone());
    let status = cluster.status("edge", is_empty).await;
    assert_eq!(status["conditions"]["readypools"], json!(["hangzhou"]));
    assert!(status["standardConditions"].to_string().contains("are ready, but no Node is in hangzhou"), "{status}");
    assert_eq!(cluster.event("PoolWithoutNodes").await, EMPTY);
    let line = EMPTY.replacen(": ", ": PoolWithoutNodes: ", 1);
    until("/readyz names it", async || operator.readyz().await.contains(&line).then_some(())).await;
    assert!(operator.not_ready().await.is_empty(), "the operator itself works");
    label(&cluster, "hangzhou").await;
    cluster.status("edge", |status| status["poolsWithoutNodes"].is_null().then_some(())).await;
    until("/readyz has forgotten it", async || (!operator.readyz().await.contains("hangzhou")).then_some(())).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_label_that_is_renamed_and_back_changes_no_object() {
    let Some(cluster) = Cluster::start().await else { return };
    label(&cluster, "hangzhou").await;
    let operator = Operator::start(&cluster, &["--pool-source=nodelabels"]).await;
    add_ready_ingress(&cluster).await;
    let path = format!("{DEPLOYMENTS}/{HANGZHOU}");
    let before = cluster.get(&path).await.unwrap();
    label(&cluster, "beijing").await;
    is_missing(&cluster, &operator).await;
    label(&cluster, "hangzhou").await;
    cluster.pool_is("edge", "hangzhou", "Ready").await;
    assert_eq!(cluster.get(&path).await.unwrap(), before);
    operator.stop().await;
}
