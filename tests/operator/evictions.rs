//! Pods of annotated nodes stay, with the real kube-controller-manager, whose times are shortened by flags.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::plane::skipped;

use super::cluster::{Cluster, until};
use super::process::Operator;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const AUTONOMY: &str = "node.openyurt.io/autonomy-duration";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// What pods tolerate without the operator.
const SECONDS: i64 = 2;
/// The autonomy of the node `brief`.
const BRIEF: i64 = 5;
/// The default of terminationGracePeriodSeconds.
const GRACE: i64 = 30;

/// kube-controller-manager. Dropping it kills the process.
struct Controllers(Child);

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Controllers {
    /// Starts the controllers that mark dead nodes and evict their pods; `None` if they are not built.
    fn start(cluster: &Cluster) -> Option<Self> {
        let program = built::target().join("node").join("bin").join("node");
        if !program.exists() {
            skipped("kube-controller-manager was not built: `make controllers` does it, and needs Go");
            return None;
        }
        let child = Command::new(program)
            // Its name selects the program.
            .arg0("kube-controller-manager")
            .arg("--kubeconfig")
            .arg(cluster.plane.kubeconfig("admin"))
            .args(["--controllers=node-lifecycle-controller,taint-eviction-controller", "--leader-elect=false"])
            .args(["--node-monitor-period=500ms", "--node-monitor-grace-period=2s", "--secure-port=0"])
            .args(["--node-eviction-rate=100", "--secondary-node-eviction-rate=100", "--unhealthy-zone-threshold=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self(child))
    }
}

/// A node that lives, by the Lease that its kubelet would renew. Where no node does, the controllers assume that the fault is
/// theirs, and evict nothing.
async fn keep_alive(cluster: &Cluster, name: &'static str) {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    add_node(cluster, name, None, "a").await;
    let renew = move || json!({"holderIdentity": name, "renewTime": format!("{:.6}", jiff::Timestamp::now())});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": renew()});
    cluster.create(LEASES, lease).await;
    let client = cluster.admin.clone().with("content-type", "application/merge-patch+json");
    // Ends with the test's runtime.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let patch = json!({"spec": renew()}).to_string();
            let _ = client.try_send(http::Method::PATCH, &format!("{LEASES}/{name}"), patch).await;
        }
    });
}

async fn add_node(cluster: &Cluster, name: &str, annotation: Option<&str>, pool: &str) {
    let annotations = annotation.map(|value| json!({AUTONOMY: value}));
    let metadata = json!({"name": name, "annotations": annotations, "labels": {"apps.openyurt.io/nodepool": pool}});
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]});
    cluster.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})).await;
}

async fn add_pod(cluster: &Cluster, name: &str, node: &str) {
    let tolerate =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
    let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "registry.test/web:1"}],
        "tolerations": [tolerate("node.kubernetes.io/not-ready"), tolerate(UNREACHABLE)]});
    cluster.create(PODS, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})).await;
}

/// The times of a pod's tolerations.
fn seconds(pod: &Value) -> Vec<Option<i64>> {
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    tolerations.iter().map(|toleration| toleration["tolerationSeconds"].as_i64()).collect()
}

async fn wait_for_seconds(cluster: &Cluster, pod: &str, wanted: Option<i64>) {
    cluster.wait(PODS, pod, |pod| (seconds(pod?) == [wanted; 2]).then_some(())).await;
}

/// A time of an object, in seconds.
fn time(value: &Value) -> Option<i64> {
    Some(value.as_str()?.parse::<jiff::Timestamp>().unwrap().as_second())
}

/// Whether a pod is gone or going: without a kubelet, nobody ends it.
fn is_evicted(pod: Option<&Value>) -> bool {
    pod.is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test]
async fn pods_of_annotated_nodes_stay_and_others_are_evicted() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.add_pool("a").await;
    cluster.add_pool("b").await;
    cluster
        .merge(&format!("{}/b", super::cluster::POOLS), json!({"metadata": {"annotations": {AUTONOMY: "1h"}}}))
        .await;
    for (node, annotation, pool) in [
        ("forever", Some("0"), "a"),
        ("plain", None, "a"),
        ("pooled", None, "b"),
        ("wrong", Some("soon"), "a"),
        ("brief", Some("5s"), "a"),
    ] {
        add_node(&cluster, node, annotation, pool).await;
        add_pod(&cluster, &format!("pod-{node}"), node).await;
    }
    let operator = Operator::start(&cluster, &[]).await;
    wait_for_seconds(&cluster, "pod-forever", None).await;
    wait_for_seconds(&cluster, "pod-pooled", Some(3600)).await;
    operator.logged("is not a duration such as 2h30m").await;
    assert!(cluster.event("InvalidAutonomyDuration").await.contains("\"soon\" is not a duration"));
    wait_for_seconds(&cluster, "pod-brief", Some(BRIEF)).await;

    keep_alive(&cluster, "alive").await;
    let Some(_controllers) = Controllers::start(&cluster) else { return };
    for pod in ["pod-plain", "pod-wrong"] {
        cluster.wait(PODS, pod, |pod| is_evicted(pod).then_some(())).await;
    }
    // A node that is really dead is released by its duration.
    let evicted = cluster.wait(PODS, "pod-brief", |pod| time(&pod?["metadata"]["deletionTimestamp"])).await;
    let brief = cluster.get(&format!("{NODES}/brief")).await.unwrap();
    let taints = brief["spec"]["taints"].as_array().unwrap().iter();
    let added = taints.filter(|taint| taint["effect"] == "NoExecute").find_map(|taint| time(&taint["timeAdded"]));
    // A deletion names the end of the pod's grace period. Times have whole seconds.
    let stayed = evicted - added.unwrap() - GRACE;
    println!("a pod with {BRIEF} s stayed {stayed} s, and one with {SECONDS} s was evicted before");
    assert!(stayed >= BRIEF - 1, "{stayed}");
    // The others have the same taint, for longer than the time of their pods.
    let tainted = |node: Option<&Value>| {
        let taints = node?["spec"]["taints"].as_array()?;
        taints.iter().any(|taint| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute").then_some(())
    };
    for node in ["forever", "pooled"] {
        cluster.wait(NODES, node, tainted).await;
    }
    // A pod that is new on a node that is already unreachable gets its time before it runs out.
    add_pod(&cluster, "pod-new", "forever").await;
    wait_for_seconds(&cluster, "pod-new", None).await;
    tokio::time::sleep(Duration::from_secs(u64::try_from(2 * SECONDS).unwrap())).await;
    for pod in ["pod-forever", "pod-pooled", "pod-new"] {
        assert!(!is_evicted(cluster.get(&format!("{PODS}/{pod}")).await.as_ref()), "{pod}");
    }
    // A node that is really dead is released.
    cluster.merge(&format!("{NODES}/forever"), json!({"metadata": {"annotations": {AUTONOMY: null}}})).await;
    for pod in ["pod-forever", "pod-new"] {
        cluster.wait(PODS, pod, |pod| is_evicted(pod).then_some(())).await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_thousand_pods_change_at_the_rate_and_a_new_one_at_once() {
    let Some(cluster) = Cluster::start().await else { return };
    add_node(&cluster, "n", None, "a").await;
    for at in 0..1000 {
        add_pod(&cluster, &format!("p{at:03}"), "n").await;
    }
    let operator = Operator::start(&cluster, &["--pods-per-second=50"]).await;
    let begun = Instant::now();
    cluster.merge(&format!("{NODES}/n"), json!({"metadata": {"annotations": {AUTONOMY: "0"}}})).await;
    until("some are changed", async || (operator.metric("weir_operator_pods_total").await >= 50.0).then_some(())).await;
    let added = Instant::now();
    add_pod(&cluster, "new", "n").await;
    wait_for_seconds(&cluster, "new", None).await;
    println!("a new pod beside a thousand others: {:?}", added.elapsed());
    assert!(operator.metric("weir_operator_pods_total").await < 900.0, "it did not wait for the others");
    until("all are changed", async || (operator.metric("weir_operator_pods_total").await >= 1001.0).then_some(()))
        .await;
    let took = begun.elapsed();
    println!(
        "1000 pods at 50 a second: {took:.1?}; {:.1} MB",
        operator.metric("process_resident_memory_bytes").await / 1048576.0
    );
    assert!(took > Duration::from_secs(18), "{took:?}");
    // A restart has nothing to do; without the annotation everything is as before.
    operator.kill().await;
    let operator = Operator::start(&cluster, &["--pods-per-second=1000"]).await;
    cluster.merge(&format!("{NODES}/n"), json!({"metadata": {"annotations": {AUTONOMY: null}}})).await;
    wait_for_seconds(&cluster, "p999", Some(SECONDS)).await;
    until("all are restored", async || {
        (operator.metric("weir_operator_pods_total{action=\"removed\"}").await >= 1001.0).then_some(())
    })
    .await;
    let pods = cluster.list(PODS).await;
    assert!(pods.iter().all(|pod| seconds(pod) == [Some(SECONDS); 2] && pod["metadata"]["annotations"].is_null()));
    operator.stop().await;
}

#[tokio::test]
async fn a_missing_permission_on_pods_is_named_and_costs_few_requests() {
    const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/weir-operator-evictions";
    let Some(cluster) = Cluster::start().await else { return };
    let rules = cluster.get(ROLE).await.unwrap()["rules"].clone();
    let mut fewer = rules.clone();
    fewer[0]["verbs"] = json!(["list", "watch"]);
    cluster.merge(ROLE, json!({"rules": fewer})).await;
    add_node(&cluster, "n", Some("0"), "a").await;
    for at in 0..30 {
        add_pod(&cluster, &format!("p{at:02}"), "n").await;
    }
    let operator = Operator::begin(&cluster, &["--pods-per-second=100"]).await;
    let rule = "cannot patch resource \"pods\"";
    until("the missing rule is shown", async || operator.not_ready().await.contains(rule).then_some(())).await;
    cluster.merge(ROLE, json!({"rules": rules})).await;
    for at in 0..30 {
        wait_for_seconds(&cluster, &format!("p{at:02}"), None).await;
    }
    operator.ready().await;
    let failed = operator.metric("weir_operator_pods_total{action=\"failed\"}").await;
    println!("30 pods and a missing permission: {failed} requests in vain");
    assert!(failed < 10.0, "{failed}");
    operator.stop().await;
}
