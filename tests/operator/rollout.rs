//! Upgrades: pool by pool, and none after a failure; templates of ConfigMaps.

use serde_json::{Value, json};

use super::cluster::{APPLIED, CLASSES, Cluster, DEPLOYMENTS, INGRESSES, MAPS, reason_of, spec};
use super::process::Operator;

const TEMPLATES: &str = "/api/v1/namespaces/weir-operator/configmaps";
const POOL: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: 'mine-${name}'}
spec:
  replicas: '${replicas}'
  selector: {matchLabels: {app: 'mine-${name}'}}
  template:
    metadata: {labels: {app: 'mine-${name}'}}
    spec:
      nodeSelector: {'${poolLabel}': '${pool}'}
      containers: [{name: main, image: 'registry.test/mine:${version}'}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: '${pool}'}
spec: {controller: 'example.com/mine'}
";

fn template(version: &str, pool: &str) -> Value {
    let labels = json!({"weir.openyurt.io/ingress-template": "mine"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "labels": labels},
        "data": {"template.yaml": format!("version: {version:?}"), "pool.yaml": pool}})
}

async fn image(cluster: &Cluster, pool: &str) -> String {
    let deployment = cluster.get(&format!("{DEPLOYMENTS}/mine-{pool}")).await.unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

async fn wait_for_image(cluster: &Cluster, pool: &str, version: &str) {
    let image = format!("registry.test/mine:{version}");
    let has = |deployment: Option<&Value>| {
        (deployment?["spec"]["template"]["spec"]["containers"][0]["image"] == *image).then_some(())
    };
    cluster.wait(DEPLOYMENTS, &format!("mine-{pool}"), has).await;
}

#[tokio::test]
async fn an_upgrade_goes_pool_by_pool_and_pauses_after_a_failure() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in ["a", "b", "c"] {
        cluster.add_pool(pool).await;
    }
    // A third template, without a new build.
    cluster.create(TEMPLATES, template("1", POOL)).await;
    let operator = Operator::start(&cluster, &[]).await;
    let mut with_mine = spec(&["a", "b", "c"]);
    with_mine["controller"] = "mine".into();
    cluster.add_ingress("edge", with_mine).await;
    for pool in ["a", "b", "c"] {
        cluster.pool_is("edge", pool, "Deploying").await;
        cluster.deployed(&format!("mine-{pool}")).await;
    }
    cluster.status("edge", |status| (status["readyNum"] == 3).then_some(())).await;

    cluster.merge(&format!("{TEMPLATES}/mine"), template("2", POOL)).await;
    wait_for_image(&cluster, "a", "2").await;
    assert_eq!(cluster.pool_is("edge", "b", "RolloutWaiting").await, "upgrades after pool a");
    // All serve all the while, and the status says which version.
    let status = cluster.status("edge", |status| Some(status.clone())).await;
    assert_eq!((&status["readyNum"], &status["unreadyNum"]), (&json!(3), &json!(0)), "{status}");
    let b = status["upgradingPools"].as_array().unwrap().iter().find(|pool| pool["name"] == "b").unwrap();
    assert_eq!((&b["version"], reason_of(&status, "Ready")), (&json!("1"), Some("PoolsReady".to_owned())), "{status}");
    assert_eq!(image(&cluster, "b").await, "registry.test/mine:1");
    cluster.deployed("mine-a").await;
    wait_for_image(&cluster, "b", "2").await;
    assert_eq!(image(&cluster, "c").await, "registry.test/mine:1");
    // A restart in the middle continues there.
    operator.kill().await;
    let operator = Operator::start(&cluster, &[]).await;

    cluster.stuck("mine-b").await;
    let message = cluster.pool_is("edge", "b", "DeploymentFailed").await;
    assert!(message.contains("no pod came up"), "{message}");
    cluster.pool_is("edge", "c", "RolloutPaused").await;
    cluster.status("edge", |status| (reason_of(status, "Progressing")? == "RolloutPaused").then_some(())).await;
    assert!(cluster.event("RolloutPaused").await.contains('b'));
    assert_eq!(image(&cluster, "c").await, "registry.test/mine:1");

    // The next version goes to the pools that work first.
    cluster.merge(&format!("{TEMPLATES}/mine"), template("3", POOL)).await;
    for pool in ["a", "c", "b"] {
        wait_for_image(&cluster, pool, "3").await;
        cluster.deployed(&format!("mine-{pool}")).await;
    }
    let is_done = |status: &Value| status["readyNum"] == 3 && status["upgradingPools"].is_null();
    cluster.status("edge", |status| is_done(status).then_some(())).await;
    operator.stop().await;
}

/// Three pools, of which `a` is broken in the second version and `b` is still of the first.
async fn paused(cluster: &Cluster) -> Operator {
    for pool in ["a", "b"] {
        cluster.add_pool(pool).await;
    }
    cluster.create(TEMPLATES, template("1", POOL)).await;
    let operator = Operator::start(cluster, &[]).await;
    let mut with_mine = spec(&["a", "b"]);
    with_mine["controller"] = "mine".into();
    cluster.add_ingress("edge", with_mine).await;
    for pool in ["a", "b"] {
        cluster.pool_is("edge", pool, "Deploying").await;
        cluster.deployed(&format!("mine-{pool}")).await;
    }
    cluster.status("edge", |status| (status["readyNum"] == 2).then_some(())).await;
    cluster.merge(&format!("{TEMPLATES}/mine"), template("2", POOL)).await;
    wait_for_image(cluster, "a", "2").await;
    cluster.stuck("mine-a").await;
    cluster.pool_is("edge", "b", "RolloutPaused").await;
    operator
}

#[tokio::test]
async fn a_held_pool_is_put_back_and_scaled_as_its_own_revision() {
    let Some(cluster) = Cluster::start().await else { return };
    let operator = paused(&cluster).await;
    let deployment = format!("{DEPLOYMENTS}/mine-b");
    let replicas =
        |wanted: i64| move |deployment: Option<&Value>| (deployment?["spec"]["replicas"] == wanted).then_some(());
    cluster.merge(&deployment, json!({"spec": {"replicas": 9}})).await;
    cluster.wait(DEPLOYMENTS, "mine-b", replicas(1)).await;
    cluster.delete(&format!("{CLASSES}/b")).await;
    cluster.wait(CLASSES, "b", |class| class.map(drop)).await;
    let scaled = json!({"spec": {"pools": [{"name": "a"}, {"name": "b", "replicas": 3}]}});
    cluster.merge(&format!("{INGRESSES}/edge"), scaled).await;
    cluster.wait(DEPLOYMENTS, "mine-b", replicas(3)).await;
    assert_eq!(image(&cluster, "b").await, "registry.test/mine:1");

    // The same while the template cannot be used, after a restart, and for a pool that goes.
    cluster.merge(&format!("{TEMPLATES}/mine"), template("3", "{")).await;
    cluster.pool_is("edge", "b", "TemplateInvalid").await;
    operator.kill().await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.merge(&deployment, json!({"spec": {"replicas": 9}})).await;
    cluster.wait(DEPLOYMENTS, "mine-b", replicas(3)).await;
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": {"pools": [{"name": "a"}]}})).await;
    cluster.wait(DEPLOYMENTS, "mine-b", |deployment| deployment.is_none().then_some(())).await;
    assert_eq!(image(&cluster, "a").await, "registry.test/mine:2");
    // A revision that nobody has any more goes when the template can be used again.
    cluster.merge(&format!("{TEMPLATES}/mine"), template("2", POOL)).await;
    cluster.pool_is("edge", "a", "DeploymentFailed").await;
    super::cluster::until("one revision is kept", async || (cluster.applied(MAPS).await.len() == 1).then_some(()))
        .await;
    operator.stop().await;
}

#[tokio::test]
async fn a_pool_whose_objects_are_refused_pauses_the_upgrade() {
    let Some(cluster) = Cluster::start().await else { return };
    for pool in ["a", "b"] {
        cluster.add_pool(pool).await;
    }
    cluster.create(TEMPLATES, template("1", POOL)).await;
    let operator = Operator::start(&cluster, &[]).await;
    let mut with_mine = spec(&["a", "b"]);
    with_mine["controller"] = "mine".into();
    cluster.add_ingress("edge", with_mine).await;
    for pool in ["a", "b"] {
        cluster.pool_is("edge", pool, "Deploying").await;
        cluster.deployed(&format!("mine-{pool}")).await;
    }
    cluster.status("edge", |status| (status["readyNum"] == 2).then_some(())).await;

    // The second version has one object more, whose name somebody else has.
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra-a"}});
    cluster.create(MAPS, foreign).await;
    let second = format!("{POOL}---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: 'extra-${{name}}'}}}}\n");
    cluster.merge(&format!("{TEMPLATES}/mine"), template("2", &second)).await;
    cluster.pool_is("edge", "a", "NotOurs").await;
    cluster.deployed("mine-a").await;
    let message = cluster.pool_is("edge", "b", "RolloutPaused").await;
    assert_eq!(message, "keeps its revision: the upgrade of pool a failed");
    // All events so far are looked at when this change is put back.
    cluster.merge(&format!("{DEPLOYMENTS}/mine-b"), json!({"spec": {"replicas": 9}})).await;
    cluster.wait(DEPLOYMENTS, "mine-b", |it| (it?["spec"]["replicas"] == 1).then_some(())).await;
    assert_eq!(image(&cluster, "b").await, "registry.test/mine:1");
    cluster.delete(&format!("{MAPS}/extra-a")).await;
    cluster.pool_is("edge", "a", "Ready").await;
    wait_for_image(&cluster, "b", "2").await;
    operator.stop().await;
}

#[tokio::test]
async fn another_template_replaces_the_objects_of_the_one_before() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    cluster.create(TEMPLATES, template("1", POOL)).await;
    let operator = Operator::start(&cluster, &[]).await;
    let mut nginx = spec(&["a"]);
    nginx["controller"] = "ingress-nginx".into();
    cluster.add_ingress("edge", nginx).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    // The admission webhook is there once, beside the pool's own Deployment.
    assert_eq!(cluster.applied(DEPLOYMENTS).await, ["ingress-nginx-a", "ingress-nginx-admission"]);
    // The API server accepts all objects of the template.
    for (collection, count) in APPLIED.into_iter().zip([2, 2, 3, 1, 2, 2, 3, 2, 1]) {
        assert_eq!(cluster.applied(collection).await.len(), count, "{collection}");
    }
    cluster.deployed("ingress-nginx-a").await;
    cluster.pool_is("edge", "a", "Ready").await;
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": {"controller": "mine"}})).await;
    cluster.wait(DEPLOYMENTS, "mine-a", |deployment| deployment.map(drop)).await;
    for name in ["ingress-nginx-a", "ingress-nginx-admission"] {
        cluster.wait(DEPLOYMENTS, name, |deployment| deployment.is_none().then_some(())).await;
    }
    let gone = async |collection: &str| cluster.applied(collection).await;
    super::cluster::until("only the new template's objects are left", async || {
        let mut left = Vec::new();
        for collection in APPLIED {
            left.extend(gone(collection).await);
        }
        // The revision is kept for as long as a pool has it.
        left.retain(|name| !name.starts_with("weir-ingress-revision-"));
        (left == ["mine-a", "a"] && cluster.applied(MAPS).await.len() == 1).then_some(())
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn a_template_that_cannot_be_used_changes_nothing_and_is_reported() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    cluster.create(TEMPLATES, template("1", POOL)).await;
    let operator = Operator::start(&cluster, &[]).await;
    let mut with_mine = spec(&["a"]);
    with_mine["controller"] = "mine".into();
    cluster.add_ingress("edge", with_mine).await;
    cluster.pool_is("edge", "a", "Deploying").await;
    for (pool, reason) in [
        (POOL.replace("${version}", "${vision}"), "there is no variable \"vision\""),
        (
            POOL.replace("{name: 'mine-${name}'}", "{name: 'mine-${name}', namespace: kube-system}"),
            "in the namespace kube-system",
        ),
        ("{".to_owned(), "not YAML"),
    ] {
        cluster.merge(&format!("{TEMPLATES}/mine"), template("2", &pool)).await;
        let found = cluster.status("edge", |status| {
            let (kind, message) = super::cluster::state_of(status, "a")?;
            (kind == "TemplateInvalid" && message.contains(reason)).then_some(message)
        });
        let message = found.await;
        assert!(message.starts_with("template mine: "), "{message}");
        assert_eq!(image(&cluster, "a").await, "registry.test/mine:1", "nothing is half applied");
    }
    assert!(cluster.event("TemplateInvalid").await.contains("template mine"));
    cluster.delete(&format!("{TEMPLATES}/mine")).await;
    cluster.pool_is("edge", "a", "TemplateNotFound").await;
    assert_eq!(cluster.applied(DEPLOYMENTS).await, ["mine-a"], "what runs goes on");
    operator.stop().await;
}
