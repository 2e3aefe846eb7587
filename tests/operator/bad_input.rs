//! Invalid input of users and others: the API server refuses it, or the status and an Event report it.

use http::Method;
use serde_json::{Value, json};

use super::cluster::{Cluster, DEPLOYMENTS, INGRESSES, MAPS, ingress, spec};
use super::process::Operator;

#[tokio::test]
async fn the_api_server_refuses_specs_that_make_no_sense() {
    let Some(cluster) = Cluster::start().await else { return };
    for (spec, reason) in [
        (json!({"pools": [{"name": "a"}, {"name": "a"}]}), "Duplicate value"),
        (json!({"pools": [{"name": "A"}]}), "lower case letters"),
        (json!({"pools": [{"name": "a/b"}]}), "lower case letters"),
        (json!({"pools": [{"name": ""}]}), "at least 1 chars"),
        (json!({"pools": [{"name": "a".repeat(64)}]}), "Too long"),
        (json!({"ingress_controller_replicas_per_pool": 0}), "greater than or equal to 1"),
        (json!({"pools": [{"name": "a", "replicas": -1}]}), "greater than or equal to 1"),
        (json!({"pools": [{"name": "a", "nodePorts": {"http": 30080, "https": 30080}}]}), "different node ports"),
        (json!({"controller": "../x"}), "should match"),
    ] {
        let (status, body) = cluster.request(Method::POST, INGRESSES, "json", &ingress("bad", spec.clone())).await;
        assert_eq!(status, 422, "{spec}: {body}");
        assert!(body["message"].as_str().unwrap().contains(reason), "{reason}: {body}");
    }
}

/// A spec from before the definition had rules.
#[tokio::test]
async fn an_invalid_stored_spec_is_reported_by_pool_and_the_other_pools_work() {
    let Some(cluster) = Cluster::start().await else { return };
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/yurtingresses.apps.openyurt.io";
    let rules = cluster.get(crd).await.unwrap()["spec"]["versions"].clone();
    let mut loose = rules.clone();
    loose[0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    cluster.merge(crd, json!({"spec": {"versions": loose}})).await;
    for pool in ["good", "twice", "none"] {
        cluster.add_pool(pool).await;
    }
    let pools = json!([{"name": "good"}, {"name": "twice"}, {"name": "twice"}, {"name": "No_Label"}, {"name": "none", "replicas": 0}]);
    // The API server learns of the change of a definition a moment later.
    super::cluster::until("the rules are gone", async || {
        let spec = json!({"controller": "traefik", "ingress_controller_replicas_per_pool": 1, "pools": pools});
        let (status, _) = cluster.request(Method::POST, INGRESSES, "json", &ingress("edge", spec)).await;
        (status == 201).then_some(())
    })
    .await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.pool_is("edge", "good", "Deploying").await;
    assert!(cluster.pool_is("edge", "twice", "DuplicatePool").await.contains("twice in spec.pools"));
    assert!(cluster.pool_is("edge", "No_Label", "InvalidName").await.contains("No_Label"));
    assert!(cluster.pool_is("edge", "none", "InvalidReplicas").await.contains("0 replicas"));
    assert_eq!(cluster.applied(DEPLOYMENTS).await, ["traefik-good"]);
    for reason in ["DuplicatePool", "InvalidName", "InvalidReplicas"] {
        cluster.event(reason).await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn an_object_of_somebody_else_is_never_overwritten() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traefik-a", "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "data": {"mine": "x"}});
    cluster.create(MAPS, mine).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    let message = cluster.pool_is("edge", "a", "NotOurs").await;
    assert_eq!(message, "ConfigMap traefik-a exists and is managed by Helm: the operator does not change it");
    cluster.event("NotOurs").await;
    let map = cluster.get(&format!("{MAPS}/traefik-a")).await.unwrap();
    assert_eq!(map["data"], json!({"mine": "x"}));
    // It is not deleted with the YurtIngress either.
    cluster.delete(&format!("{INGRESSES}/edge")).await;
    cluster.wait(INGRESSES, "edge", |ingress| ingress.is_none().then_some(())).await;
    assert!(cluster.get(&format!("{MAPS}/traefik-a")).await.is_some());
    // When it is gone, the pool gets its own.
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "NotOurs").await;
    cluster.delete(&format!("{MAPS}/traefik-a")).await;
    cluster.wait(MAPS, "traefik-a", |map| map?["data"].get("traefik.yaml").map(drop)).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_missing_rule_is_named() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/ingress-nginx/roles/weir-operator";
    let rules = cluster.get(role).await.unwrap()["rules"].clone();
    let mut fewer = rules.clone();
    fewer[1]["verbs"] = json!(["list", "watch"]);
    cluster.merge(role, json!({"rules": fewer})).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    let message = cluster.pool_is("edge", "a", "Forbidden").await;
    assert!(
        message.contains("rbac.yaml") && message.contains("patch resource \"deployments\" in API group \"apps\""),
        "{message}"
    );
    cluster.event("Forbidden").await;
    // Of a rule that a watch needs, too.
    cluster.merge(role, json!({"rules": []})).await;
    let second = Operator::begin(&cluster, &["--lease-name=weir-operator", "--identity=second"]).await;
    operator.kill().await;
    second.logged("cannot list resource").await;
    let rule = "cannot list resource \"deployments\" in API group \"apps\"";
    super::cluster::until("the missing rule is shown", async || second.not_ready().await.contains(rule).then_some(()))
        .await;
    cluster.merge(role, json!({"rules": rules})).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    second.stop().await;
}

#[tokio::test]
async fn without_the_definition_the_operator_waits_and_says_so() {
    let Some(cluster) = Cluster::empty().await else { return };
    for file in ["namespaces.yaml", "rbac.yaml", "roles.yaml"] {
        cluster.manifest(file).await;
    }
    cluster.add_pool("a").await;
    let operator = Operator::begin(&cluster, &[]).await;
    let line = operator.logged("CustomResourceDefinition").await;
    assert!(line.contains("yurtingresses.apps.openyurt.io"), "{line}");
    assert!(operator.not_ready().await.contains("is its CustomResourceDefinition installed?"));
    assert!(operator.live().await);
    cluster.manifest("crd.yaml").await;
    operator.ready().await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    operator.stop().await;
}

/// What is not YAML and not of the form of a template.
#[tokio::test]
async fn a_controller_without_a_template_is_reported() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let operator = Operator::start(&cluster, &[]).await;
    let mut unknown: Value = spec(&["a"]);
    unknown["controller"] = "haproxy".into();
    cluster.add_ingress("edge", unknown).await;
    let message = cluster.pool_is("edge", "a", "TemplateNotFound").await;
    assert!(message.contains("weir.openyurt.io/ingress-template=haproxy"), "{message}");
    cluster.event("TemplateNotFound").await;
    operator.stop().await;
}
