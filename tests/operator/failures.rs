//! The API server goes away, and the operator is killed in the middle of its work.

use serde_json::json;

use super::cluster::{APPLIED, Cluster, DEPLOYMENTS, INGRESSES, spec, until};
use super::process::Operator;

const POOLS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[tokio::test]
async fn the_operator_survives_the_api_server() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    // It stays the leader for as long as the API server is away.
    let operator = Operator::start(&cluster, &["--lease-seconds=600"]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    cluster.restart().await;
    cluster.deployed("traefik-a").await;
    cluster.pool_is("edge", "a", "Ready").await;
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": {"pools": [{"name": "a", "replicas": 2}]}})).await;
    cluster.wait(DEPLOYMENTS, "traefik-a", |it| (it?["spec"]["replicas"] == 2).then_some(())).await;
    operator.ready().await;
    operator.stop().await;
}

#[tokio::test]
async fn a_restart_in_the_middle_of_anything_ends_in_the_same_state() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in POOLS {
        cluster.add_pool(pool).await;
    }
    // In the middle of the creation.
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&POOLS)).await;
    cluster.wait(DEPLOYMENTS, "traefik-b", |it| it.map(drop)).await;
    operator.kill().await;
    assert!(cluster.applied(DEPLOYMENTS).await.len() < POOLS.len(), "it was not done");
    let operator = Operator::start(&cluster, &[]).await;
    cluster
        .status("edge", |status| (status["conditions"]["unreadypools"].as_array()?.len() == POOLS.len()).then_some(()))
        .await;
    assert_eq!(cluster.applied(DEPLOYMENTS).await.len(), POOLS.len());
    // While pools are removed.
    cluster
        .merge(&format!("{INGRESSES}/edge"), json!({"spec": {"pools": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}))
        .await;
    until("some are gone", async || (cluster.applied(DEPLOYMENTS).await.len() < POOLS.len()).then_some(())).await;
    operator.kill().await;
    let operator = Operator::start(&cluster, &[]).await;
    until("the others are gone", async || {
        let mut left = 0;
        for collection in APPLIED {
            left += cluster.applied(collection).await.len();
        }
        // ServiceAccount, ConfigMap, binding, class, Service and Deployment of each.
        (left == 3 * 6).then_some(())
    })
    .await;
    // In the middle of the deletion.
    cluster.delete(&format!("{INGRESSES}/edge")).await;
    until("some are gone", async || (cluster.applied(DEPLOYMENTS).await.len() < 3).then_some(())).await;
    operator.kill().await;
    let half = cluster.get(&format!("{INGRESSES}/edge")).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.wait(INGRESSES, "edge", |ingress| ingress.is_none().then_some(())).await;
    for collection in APPLIED {
        assert_eq!(cluster.applied(collection).await, [""; 0], "{collection}, {half:?}");
    }
    operator.stop().await;
}
