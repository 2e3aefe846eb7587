//! The API server goes away, and the operator is killed in the middle of its work.

use serde_json::json;

use super::cluster::{APPLIED, Cluster, DEPLOYMENTS, INGRESSES, MAPS, spec, until};
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
async fn without_the_api_server_nothing_is_half_deleted() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in POOLS {
        cluster.add_pool(pool).await;
    }
    let operator = Operator::behind_proxy(&cluster, &[]).await;
    operator.ready().await;
    cluster.add_ingress("edge", spec(&POOLS)).await;
    cluster
        .status("edge", |status| (status["conditions"]["unreadypools"].as_array()?.len() == POOLS.len()).then_some(()))
        .await;
    // Somebody else keeps one, so that the deletion is not done before the API server is away.
    let kept = format!("{DEPLOYMENTS}/traefik-f");
    cluster.merge(&kept, json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
    cluster.delete(&format!("{INGRESSES}/edge")).await;
    until("some are gone", async || (cluster.applied(DEPLOYMENTS).await.len() < POOLS.len()).then_some(())).await;
    cluster.proxy("down").await;
    // It cannot renew its Lease: another replica may act, so that this one ends.
    let (code, reason) = operator.ended().await;
    assert_eq!(code, Some(1));
    assert!(reason.contains("the Lease weir-operator was lost"), "{reason}");
    let left = cluster.applied(DEPLOYMENTS).await.len();
    assert!(left > 0, "it was not done");
    assert!(cluster.get(&format!("{INGRESSES}/edge")).await.is_some(), "the finalizer holds it");
    // A replica that starts now waits, and says for what.
    let operator = Operator::behind_proxy(&cluster, &[]).await;
    until("it reports why it waits", async || operator.not_ready().await.contains("leader election").then_some(()))
        .await;
    assert!(operator.live().await);
    // Nothing answers, which is not the same as a refused connection.
    cluster.proxy("silent").await;
    until("it reports the silence", async || operator.not_ready().await.contains("does not respond").then_some(()))
        .await;
    assert_eq!(cluster.applied(DEPLOYMENTS).await.len(), left);
    cluster.merge(&kept, json!({"metadata": {"finalizers": null}})).await;
    cluster.proxy("up").await;
    cluster.wait(INGRESSES, "edge", |ingress| ingress.is_none().then_some(())).await;
    for collection in APPLIED {
        assert_eq!(cluster.applied(collection).await, [""; 0], "{collection}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_restart_in_the_middle_of_anything_ends_in_the_same_state() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in POOLS {
        cluster.add_pool(pool).await;
    }
    // In the middle of the creation: what somebody else has created keeps it from its end.
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traefik-f"}});
    cluster.create(MAPS, foreign).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&POOLS)).await;
    cluster.wait(DEPLOYMENTS, "traefik-b", |it| it.map(drop)).await;
    operator.kill().await;
    assert!(cluster.applied(DEPLOYMENTS).await.len() < POOLS.len(), "it was not done");
    cluster.delete(&format!("{MAPS}/traefik-f")).await;
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
        // And the revision of the template.
        (left == 3 * 6 + 1).then_some(())
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
