//! Refusals of the API server while the operator works: the status and an Event report them until the cause is gone.

use serde_json::{Value, json};

use super::cluster::{APPLIED, Cluster, DEPLOYMENTS, EVENTS, INGRESSES, MAPS, SERVICES, reason_of, spec, until};
use super::process::Operator;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ingress-nginx/roles/weir-operator";
const CLUSTER_ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/weir-operator";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test]
async fn a_node_port_that_is_taken_is_reported() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in ["a", "b"] {
        cluster.add_pool(pool).await;
    }
    let operator = Operator::start(&cluster, &[]).await;
    let pools = |second: i32| {
        json!({"controller": "traefik", "pools": [
            {"name": "a", "nodePorts": {"http": 30080}}, {"name": "b", "nodePorts": {"http": second}}]})
    };
    cluster.add_ingress("edge", pools(30080)).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    let message = cluster.pool_is("edge", "b", "Rejected").await;
    assert!(message.contains("Service traefik-b") && message.contains("already allocated"), "{message}");
    assert!(cluster.event("Rejected").await.starts_with("pool b: "));
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": pools(30081)})).await;
    cluster.pool_is("edge", "b", "Deploying").await;
    let service = cluster.get(&format!("{SERVICES}/traefik-b")).await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 30081);
    operator.stop().await;
}

/// A fault on the side of the API server, which is no failure of the pool.
#[tokio::test]
async fn a_webhook_that_does_not_respond_keeps_pools_pending() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let webhook = json!({"name": "broken.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "failurePolicy": "Fail",
        "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]});
    let broken = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"}, "webhooks": [webhook]});
    cluster.create(WEBHOOKS, broken).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    let message = cluster.pool_is("edge", "a", "Unavailable").await;
    assert!(message.contains("broken.example.com"), "{message}");
    let kind = cluster.status("edge", |status| Some(status["conditions"]["unreadypools"][0]["type"].clone())).await;
    assert_eq!(kind, "Pending");
    // It reports an attempt after it has written the status.
    until("it is shown", async || operator.not_ready().await.contains("yurtingresses: edge").then_some(())).await;
    cluster.delete(&format!("{WEBHOOKS}/broken")).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    operator.ready().await;
    operator.stop().await;
}

/// The rules of a role without a verb on a resource.
fn without(rules: &Value, resource: &str, verb: &str) -> Value {
    let mut rules = rules.clone();
    let all = rules.as_array_mut().unwrap();
    for rule in all.iter_mut() {
        if rule["resources"].as_array().unwrap().contains(&json!(resource)) {
            rule["verbs"].as_array_mut().unwrap().retain(|known| known != verb);
        }
    }
    all.retain(|rule| rule["verbs"] != json!([]));
    rules
}

#[tokio::test]
async fn a_deletion_that_is_not_permitted_is_reported_and_retried() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    let rules = cluster.get(ROLE).await.unwrap()["rules"].clone();
    cluster.merge(ROLE, json!({"rules": without(&rules, "deployments", "delete")})).await;
    cluster.delete(&format!("{INGRESSES}/edge")).await;
    let message = cluster.pool_is("edge", "a", "Forbidden").await;
    assert!(message.contains("cannot delete resource \"deployments\" in API group \"apps\""), "{message}");
    cluster.status("edge", |status| (reason_of(status, "Ready")? == "Forbidden").then_some(())).await;
    cluster.event("Forbidden").await;
    // The rest is gone, and what is left is still known to be the operator's.
    let mut left = Vec::new();
    for collection in APPLIED {
        left.extend(cluster.applied(collection).await);
    }
    assert_eq!(left, ["traefik-a"]);
    cluster.merge(ROLE, json!({"rules": rules})).await;
    // Any change is looked at.
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"metadata": {"labels": {"looked-at": "again"}}})).await;
    cluster.wait(INGRESSES, "edge", |ingress| ingress.is_none().then_some(())).await;
    assert_eq!(cluster.applied(DEPLOYMENTS).await, [""; 0]);
    operator.stop().await;
}

#[tokio::test]
async fn a_status_that_must_not_be_written_is_reported_by_an_event() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let rules = cluster.get(CLUSTER_ROLE).await.unwrap()["rules"].clone();
    cluster.merge(CLUSTER_ROLE, json!({"rules": without(&rules, "yurtingresses/status", "patch")})).await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    let note = cluster.event("Forbidden").await;
    assert!(note.contains("cannot patch resource \"yurtingresses/status\""), "{note}");
    until("it is shown", async || operator.not_ready().await.contains("yurtingresses/status").then_some(())).await;
    cluster.merge(CLUSTER_ROLE, json!({"rules": rules})).await;
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"metadata": {"labels": {"looked-at": "again"}}})).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    operator.ready().await;
    operator.stop().await;
}

#[tokio::test]
async fn each_pool_with_a_problem_has_an_event_of_its_own() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in ["a", "b"] {
        cluster.add_pool(pool).await;
        let name = format!("traefik-{pool}");
        cluster.create(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})).await;
    }
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a", "b"])).await;
    for pool in ["a", "b"] {
        cluster.pool_is("edge", pool, "NotOurs").await;
    }
    until("both pools have an event", async || {
        let events = cluster.list(EVENTS).await;
        let is_reported = |pool: &str| {
            events.iter().any(|event| {
                event["note"] == format!("pool {pool}: ConfigMap traefik-{pool} exists and is without an owner: the operator does not change it")
                    && event["related"]["name"] == pool
            })
        };
        (is_reported("a") && is_reported("b")).then_some(())
    })
    .await;
    operator.stop().await;
}

/// An object that a finalizer of somebody else keeps.
#[tokio::test]
async fn an_object_that_is_being_deleted_keeps_its_pool_pending() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    let service = format!("{SERVICES}/traefik-a");
    cluster.merge(&service, json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
    cluster.delete(&service).await;
    let message = cluster.pool_is("edge", "a", "Terminating").await;
    assert_eq!(message, "Service traefik-a is being deleted; finalizers: example.com/kept");
    cluster.merge(&service, json!({"metadata": {"finalizers": null}})).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    let live = cluster.get(&service).await.unwrap();
    assert!(live["metadata"]["deletionTimestamp"].is_null());
    operator.stop().await;
}

#[tokio::test]
async fn without_nodepools_the_operator_says_what_to_install_and_labels_of_nodes_do_as_well() {
    let Some(cluster) = Cluster::start().await else { return };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.delete(&format!("{definitions}/nodepools.apps.openyurt.io")).await;
    let gone = |definition: Option<&Value>| definition.is_none().then_some(());
    cluster.wait(definitions, "nodepools.apps.openyurt.io", gone).await;
    let operator = Operator::begin(&cluster, &[]).await;
    let missing = "install OpenYurt's definition, or use --pool-source=nodelabels";
    until("it is shown", async || operator.not_ready().await.contains(missing).then_some(())).await;
    operator.kill().await;
    let operator = Operator::start(&cluster, &["--pool-source=nodelabels"]).await;
    cluster.add_ingress("edge", spec(&["hangzhou"])).await;
    cluster.pool_is("edge", "hangzhou", "PoolNotFound").await;
    let label = json!({"metadata": {"labels": {"apps.openyurt.io/nodepool": "hangzhou"}}});
    cluster.merge("/api/v1/nodes/edge-a", label).await;
    cluster.pool_is("edge", "hangzhou", "Deploying").await;
    operator.stop().await;
}

/// One of OpenYurt's own operator, as it is when the definition has been replaced: fields that this one does not know are in etcd,
/// until somebody writes the object.
#[tokio::test]
async fn an_object_of_openyurts_operator_is_not_written() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let mut foreign = super::cluster::ingress("yurtingress-singleton", spec(&["a"]));
    foreign["metadata"]["finalizers"] = json!(["ingress.operator.openyurt.io"]);
    cluster.create(INGRESSES, foreign).await;
    let path = format!("{INGRESSES}/yurtingress-singleton");
    let before = cluster.get(&path).await.unwrap();
    let operator = Operator::start(&cluster, &[]).await;
    assert!(cluster.event("NotOurs").await.contains("ingress.operator.openyurt.io"));
    for collection in APPLIED {
        assert_eq!(cluster.applied(collection).await, [""; 0], "{collection}");
    }
    assert_eq!(cluster.get(&path).await.unwrap(), before);
    // Released, it is one as any other.
    cluster.merge(&path, json!({"metadata": {"finalizers": null}})).await;
    cluster.pool_is("yurtingress-singleton", "a", "Deploying").await;
    operator.stop().await;
}

/// Its deletion deletes all YurtIngresses.
#[tokio::test]
async fn the_definition_goes_and_comes_back() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["a"])).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = "yurtingresses.apps.openyurt.io";
    cluster.delete(&format!("{definitions}/{name}")).await;
    cluster.wait(definitions, name, |definition| definition.is_none().then_some(())).await;
    for collection in APPLIED {
        assert_eq!(cluster.applied(collection).await, [""; 0], "{collection}");
    }
    until("the loss is shown", async || {
        operator.not_ready().await.contains("is its CustomResourceDefinition").then_some(())
    })
    .await;
    cluster.manifest("crd.yaml").await;
    until("the API server serves it", async || {
        let (status, _) = cluster
            .request(http::Method::POST, INGRESSES, "json", &super::cluster::ingress("edge", spec(&["a"])))
            .await;
        (status == 201).then_some(())
    })
    .await;
    cluster.pool_is("edge", "a", "Deploying").await;
    operator.ready().await;
    operator.stop().await;
}
