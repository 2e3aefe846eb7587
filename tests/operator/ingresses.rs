//! The life of a YurtIngress: pools come and go, others change objects, a second one waits, nothing is left behind.

use std::time::Instant;

use serde_json::json;

use super::cluster::{
    APPLIED, CLASSES, Cluster, DEPLOYMENTS, INGRESSES, MAPS, SERVICES, is_true, reason_of, spec, state_of, until,
};
use super::process::Operator;

const HANGZHOU: &str = "traefik-hangzhou";

#[tokio::test]
async fn each_pool_gets_an_ingress_controller_and_a_status() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    let operator = Operator::start(&cluster, &["--pod-api-server=169.254.20.10:10268"]).await;
    operator.settled().await;
    let (begun, before) = (Instant::now(), operator.requests().await);
    cluster.add_ingress("edge", spec(&["hangzhou", "shanghai"])).await;
    let deployment = cluster.wait(DEPLOYMENTS, HANGZHOU, |deployment| deployment.cloned()).await;
    let (took, requests) = (begun.elapsed(), operator.requests().await - before);
    println!("from the YurtIngress to the last of a pool's objects: {took:?}, {requests} requests");
    // As many as are sent without a pause. A renewal of the Lease may be between its two requests.
    assert!(requests <= 11.0, "{requests}");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0], json!({"name": "KUBERNETES_SERVICE_HOST", "value": "169.254.20.10"}));
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["name"], "edge");

    // One pool is there, one is not.
    let deploying = cluster.pool_is("edge", "hangzhou", "Deploying").await;
    assert!(deploying.ends_with("; no Node is in the pool, so its pods wait for one"), "{deploying}");
    until("/readyz names it", async || operator.readyz().await.contains("pool hangzhou: Deploying: ").then_some(()))
        .await;
    let missing = cluster.pool_is("edge", "shanghai", "PoolNotFound").await;
    assert_eq!(missing, "there is no pool shanghai");
    cluster.deployed(HANGZHOU).await;
    cluster.pool_is("edge", "hangzhou", "Ready").await;
    cluster.add_pool("shanghai").await;
    cluster.pool_is("edge", "shanghai", "Deploying").await;
    cluster.deployed("traefik-shanghai").await;
    let status = cluster.status("edge", |status| (status["readyNum"] == 2).then(|| status.clone())).await;
    assert_eq!((&status["unreadyNum"], &status["observedGeneration"]), (&json!(0), &json!(1)));
    assert_eq!(status["conditions"], json!({"readypools": ["hangzhou", "shanghai"]}));
    assert_eq!(status["nginx_ingress_controller_version"], "v3.5.0");
    assert_eq!(reason_of(&status, "Ready").as_deref(), Some("PoolsReady"));
    assert!(is_true(&json!({"status": {"standardConditions": status["standardConditions"]}}), "Accepted"));
    assert!(cluster.event("PoolsReady").await.contains("all 2 pools"));
    assert_eq!(cluster.applied(CLASSES).await, ["hangzhou", "shanghai"]);

    // Scale: one pool, then all.
    let pools = json!([{"name": "hangzhou", "replicas": 3, "nodePorts": {"http": 30080}}, {"name": "shanghai"}]);
    cluster
        .merge(
            &format!("{INGRESSES}/edge"),
            json!({"spec": {"pools": pools, "ingress_controller_replicas_per_pool": 2}}),
        )
        .await;
    let replicas = |wanted: i64| {
        move |deployment: Option<&serde_json::Value>| (deployment?["spec"]["replicas"] == wanted).then_some(())
    };
    cluster.wait(DEPLOYMENTS, HANGZHOU, replicas(3)).await;
    cluster.wait(DEPLOYMENTS, "traefik-shanghai", replicas(2)).await;
    cluster.wait(SERVICES, HANGZHOU, |service| (service?["spec"]["ports"][0]["nodePort"] == 30080).then_some(())).await;

    // A pool goes with its objects, the other one stays.
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": {"pools": [{"name": "shanghai"}]}})).await;
    for collection in APPLIED {
        cluster.wait(collection, HANGZHOU, |object| object.is_none().then_some(())).await;
    }
    cluster.wait(CLASSES, "hangzhou", |object| object.is_none().then_some(())).await;
    assert_eq!(cluster.applied(DEPLOYMENTS).await, ["traefik-shanghai"]);
    cluster.status("edge", |status| (state_of(status, "hangzhou").is_none()).then_some(())).await;

    // Nothing is left.
    cluster.delete(&format!("{INGRESSES}/edge")).await;
    cluster.wait(INGRESSES, "edge", |ingress| ingress.is_none().then_some(())).await;
    for collection in APPLIED {
        assert_eq!(cluster.applied(collection).await, [""; 0], "{collection}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn what_others_change_is_put_back_and_what_others_own_is_left_alone() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["hangzhou"])).await;
    cluster.pool_is("edge", "hangzhou", "Deploying").await;
    let path = format!("{DEPLOYMENTS}/{HANGZHOU}");

    // An annotation of kubectl's `rollout restart`, and a change of what the operator owns.
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "now"});
    cluster.merge(&path, json!({"spec": {"replicas": 7, "template": {"metadata": {"annotations": restarted}}}})).await;
    let deployment =
        cluster.wait(DEPLOYMENTS, HANGZHOU, |it| (it?["spec"]["replicas"] == 1).then(|| it.unwrap().clone())).await;
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"], restarted);
    let map = format!("{MAPS}/{HANGZHOU}");
    cluster.merge(&map, json!({"data": {"traefik.yaml": "", "mine": "x"}})).await;
    let map =
        cluster.wait(MAPS, HANGZHOU, |map| (map?["data"]["traefik.yaml"] != "").then(|| map.unwrap().clone())).await;
    assert_eq!(map["data"]["mine"], "x");
    // What is deleted comes back.
    cluster.delete(&format!("{SERVICES}/{HANGZHOU}")).await;
    cluster
        .wait(SERVICES, HANGZHOU, |service| {
            service.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null()).then_some(())
        })
        .await;
    // One field manager applies all of it.
    let managers = deployment["metadata"]["managedFields"].as_array().unwrap().iter();
    let applied: Vec<_> =
        managers.filter(|entry| entry["operation"] == "Apply").map(|entry| &entry["manager"]).collect();
    assert_eq!(applied, ["weir-operator"]);
    operator.stop().await;
}

#[tokio::test]
async fn only_the_oldest_acts_and_the_next_takes_over() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("first", spec(&["hangzhou"])).await;
    cluster.pool_is("first", "hangzhou", "Deploying").await;
    // Times of creation have seconds: of two within one, the name decides.
    cluster.add_ingress("second", spec(&["hangzhou"])).await;
    cluster.status("second", |status| (reason_of(status, "Accepted")? == "NotSingleton").then_some(())).await;
    assert!(cluster.event("NotSingleton").await.contains("the YurtIngress first is older"));
    let owner = |deployment: Option<&serde_json::Value>| {
        deployment.map(|it| it["metadata"]["ownerReferences"][0]["name"].clone())
    };
    assert_eq!(cluster.wait(DEPLOYMENTS, HANGZHOU, owner).await, "first");

    cluster.delete(&format!("{INGRESSES}/first")).await;
    cluster.wait(INGRESSES, "first", |ingress| ingress.is_none().then_some(())).await;
    cluster.status("second", |status| (reason_of(status, "Accepted")? == "Acting").then_some(())).await;
    cluster.wait(DEPLOYMENTS, HANGZHOU, |it| (owner(it)? == "second").then_some(())).await;
    cluster.pool_is("second", "hangzhou", "Deploying").await;
    operator.stop().await;
}

#[tokio::test]
async fn another_replica_takes_over() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("hangzhou").await;
    let first = Operator::start(&cluster, &["--identity=one"]).await;
    let second = Operator::start(&cluster, &["--identity=two"]).await;
    assert_eq!((first.metric("weir_operator_leader ").await, second.metric("weir_operator_leader ").await), (1.0, 0.0));
    first.kill().await;
    second.logged("holds the Lease").await;
    cluster.add_ingress("edge", spec(&["hangzhou"])).await;
    cluster.pool_is("edge", "hangzhou", "Deploying").await;
    // One that stops gives the Lease back: the next need not wait.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/weir-operator/leases";
    second.stop().await;
    let holder = cluster.get(&format!("{lease}/weir-operator")).await.unwrap()["spec"]["holderIdentity"].clone();
    assert!(holder.is_null() || holder == "", "{holder}");
}
