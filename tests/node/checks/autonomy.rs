//! Pods of a node that is offline: those of an annotated node stay, with the same containers, and others are evicted. The times of
//! kube-controller-manager are short here, and `weir-operator` sets the tolerations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::Value;
use weir_tests::built;

use super::{World, items};
use crate::cluster::{deploy, kubelet_config};
use crate::heartbeat;
use crate::kubectl::{Kubectl, holds};
use crate::machine::{Machine, run};
use crate::outage::Link;
use crate::parts::Part;
use crate::runner::until;
use crate::systemd;
use crate::{CLOUD_ADDRESS, NODE};

const ANNOTATION: &str = "node.openyurt.io/autonomy-duration";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How long the test's pods tolerate a taint without the operator, in seconds.
const SECONDS: i64 = 3;
/// A node is unreachable 5 s after its last heartbeat, instead of 50, and its pods are not evicted one by one.
const SHORT_TIMES: &[&str] = &[
    "--node-monitor-period=500ms",
    "--node-monitor-grace-period=5s",
    "--node-eviction-rate=100",
    "--secondary-node-eviction-rate=100",
    "--unhealthy-zone-threshold=1",
];
/// kubelet renews its Lease each second, instead of every ten.
const SHORT_LEASE: &str = "nodeLeaseDurationSeconds: 4\n";
/// A node that is always Ready, and one that ends in the middle. Neither has a kubelet.
const STEADY: &str = "edge-steady";
const LOST: &str = "edge-lost";

/// What runs for these checks only.
pub(super) struct Autonomy {
    _operator: Part,
    _steady: Part,
    lost: Option<Part>,
}

/// A pod that is evicted soon, unless the operator prevents it. With a grace period, only its kubelet can end it.
fn pod(name: &str, node: &str) -> String {
    let toleration = |taint: &str| {
        format!(
            "  - {{key: node.kubernetes.io/{taint}, operator: Exists, effect: NoExecute, tolerationSeconds: {SECONDS}}}\n"
        )
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n  - {{name: main, image: {}, command: [/bin/sleep, '2147483647']}}\n  tolerations:\n{}{}",
        crate::images::TEST,
        toleration("not-ready"),
        toleration("unreachable")
    )
}

/// The operator, with the permissions of its ServiceAccount, on the cloud side.
fn start_operator(machine: &Machine, world: &World<'_>) -> Part {
    for file in ["namespaces.yaml", "crd.yaml", "rbac.yaml", "roles.yaml"] {
        world.admin.run(&["apply", "-f", &deploy("operator").join(file).display().to_string()]);
    }
    let token = world.admin.run(&["-n", "weir-operator", "create", "token", "weir-operator", "--duration=2h"]);
    let kubeconfig = machine.folder("operator").join("weir-operator.kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c,\n\
         clusters: [{{name: c, cluster: {{server: 'https://{CLOUD_ADDRESS}:6443', certificate-authority: {}}}}}],\n\
         users: [{{name: u, user: {{token: {}}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}\n",
        world.cloud.file("ca.crt").display(),
        token.trim()
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let program = built::operator().display().to_string();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let words = ["--net=/run/netns/cloud", &program, "serve", &kubeconfig, "--admin-address=127.0.0.1:0"];
    Part::start(machine, "weir-operator", "nsenter", &words.map(str::to_owned))
}

pub(super) fn begins(world: &mut World<'_>) {
    // First kubelet: with its usual Lease it would be unreachable between two heartbeats.
    kubelet_config(world.machine, SHORT_LEASE);
    let before = World::heartbeat(&world.admin);
    systemd::control(&["restart", "kubelet"]);
    world.ready_since(&before);
    world.cloud.restart_controllers(world.machine, SHORT_TIMES);
    let part = |node| heartbeat::start(world.machine, &world.cloud, &world.admin, node);
    let (steady, lost) = (part(STEADY), part(LOST));
    for (name, node) in [("brief", NODE), ("away", LOST)] {
        world.admin.apply(&pod(name, node));
    }
    let _: () = world.admin.wait("the pod runs", &["get", "pod", "brief"], |pod| holds(pod, "Ready").then_some(()));
    annotate(&world.admin, "0");
    let operator = start_operator(world.machine, world);
    world.autonomy = Some(Autonomy { _operator: operator, _steady: steady, lost: Some(lost) });
    tolerates(&world.admin, "brief", &[]);
    tolerates(&world.admin, "web", &[]);
    tolerates(&world.admin, "away", &[SECONDS; 2]);
}

/// `-` removes the annotation.
fn annotate(admin: &Kubectl, value: &str) {
    let change = if value == "-" { format!("{ANNOTATION}-") } else { format!("{ANNOTATION}={value}") };
    admin.run(&["annotate", "node", NODE, "--overwrite", &change]);
}

/// Waits until the tolerations of a pod have these times.
fn tolerates(admin: &Kubectl, pod: &str, wanted: &[i64]) {
    admin.wait(&format!("the pod {pod} tolerates its taints"), &["get", "pod", pod], |pod| {
        let times = pod["spec"]["tolerations"].as_array()?.iter();
        (times.filter_map(|toleration| toleration["tolerationSeconds"].as_i64()).collect::<Vec<_>>() == wanted)
            .then_some(())
    });
}

/// The containers that run on the node.
fn containers() -> BTreeSet<String> {
    run("ctr", &["-n", "k8s.io", "tasks", "list", "-q"]).lines().map(str::to_owned).collect()
}

/// The containers of the node's pods as the API server knows them, with the number of their restarts.
fn reported(admin: &Kubectl) -> BTreeMap<String, u64> {
    let pods = admin.json(&["get", "pods", "-A", &format!("--field-selector=spec.nodeName={NODE}")]).unwrap();
    let statuses =
        items(&pods).iter().flat_map(|pod| pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default());
    statuses.map(|one| (one["containerID"].to_string(), one["restartCount"].as_u64().unwrap())).collect()
}

fn is_going(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// The pods of the node that are marked for deletion.
fn going(admin: &Kubectl) -> Vec<String> {
    let pods = admin.json(&["get", "pods", "-A", &format!("--field-selector=spec.nodeName={NODE}")]).unwrap();
    items(&pods).iter().filter(|pod| is_going(pod)).map(|pod| pod["metadata"]["name"].to_string()).collect()
}

fn wait_until_tainted(admin: &Kubectl, node: &str) {
    let is_ours = |taint: &Value| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute";
    let _: () = admin.wait(&format!("{node} is tainted"), &["get", "node", node], |node| {
        node["spec"]["taints"].as_array()?.iter().any(is_ours).then_some(())
    });
}

fn wait_until_evicted(admin: &Kubectl, pod: &str) {
    let _: () = admin.wait(&format!("{pod} is evicted"), &["get", "pod", pod], |pod| is_going(pod).then_some(()));
}

/// Mends the link, and waits until the node is as before.
fn mend(world: &World<'_>) {
    let before = World::heartbeat(&world.admin.in_cloud());
    Link::Node.mend();
    world.ready_since(&before);
    let _: () = world
        .admin
        .wait("the node has no taint", &["get", "node", NODE], |node| node["spec"]["taints"].is_null().then_some(()));
    let pods = ["get", "pods", "-A", &format!("--field-selector=spec.nodeName={NODE}")];
    let _: () = world
        .admin
        .wait("all pods are Ready", &pods, |pods| items(pods).iter().all(|pod| holds(pod, "Ready")).then_some(()));
}

/// Longer offline than a pod of another node that goes later, and has the same tolerations as these had.
pub(super) fn stays(world: &mut World<'_>) {
    let cloud = world.admin.in_cloud();
    let (running, known) = (containers(), reported(&world.admin));
    assert!(known.len() >= 6, "{known:?}");
    let begun = Instant::now();
    Link::Node.cut();
    wait_until_tainted(&cloud, NODE);
    world.autonomy.as_mut().expect("the operator runs").lost = None;
    wait_until_evicted(&cloud, "away");
    let none: [&str; 0] = [];
    assert_eq!(going(&cloud), none);
    println!("    {:.1} s offline: the pod of another node was evicted", begun.elapsed().as_secs_f64());
    mend(world);
    assert_eq!(going(&world.admin), none);
    assert_eq!(containers(), running, "the containers of before");
    assert_eq!(reported(&world.admin), known, "and no restart");
    println!("    {} containers kept their ids and restart counts", known.len());
}

/// Without the annotation, the same pod is evicted, and its container ends when the link is mended.
pub(super) fn evicted(world: &mut World<'_>) {
    let cloud = world.admin.in_cloud();
    annotate(&world.admin, "-");
    tolerates(&world.admin, "brief", &[SECONDS; 2]);
    tolerates(&world.admin, "web", &[300; 2]);
    let (running, known) = (containers(), reported(&world.admin));
    let begun = Instant::now();
    Link::Node.cut();
    wait_until_evicted(&cloud, "brief");
    println!("    {:.1} s offline: its pod was evicted", begun.elapsed().as_secs_f64());
    assert_eq!(containers(), running, "it runs for as long as the node is offline");
    mend(world);
    until("the evicted pod is gone", || match world.admin.attempt(&["get", "pod", "brief"]) {
        Ok(text) => Err(text),
        Err(_) => Ok(()),
    });
    let now = reported(&world.admin);
    assert_eq!(now.len() + 1, known.len(), "{now:?} of {known:?}");
    assert!(now.iter().all(|(id, restarts)| known.get(id) == Some(restarts)), "the others stay: {now:?}, {known:?}");
    until("its containers are gone", || match containers() {
        left if left.len() + 2 == running.len() && left.is_subset(&running) => Ok(()),
        left => Err(format!("{left:?} of {running:?}")),
    });
    ends(world);
}

/// Leaves the cluster as the other checks expect it.
fn ends(world: &mut World<'_>) {
    world.autonomy = None;
    let admin = &world.admin;
    admin.run(&["delete", "node", STEADY, LOST]);
    for node in [STEADY, LOST] {
        let of_node = format!("--field-selector=spec.nodeName={node}");
        admin.run(&["delete", "pods", "-A", &of_node, "--force", "--grace-period=0"]);
    }
    world.cloud.restart_controllers(world.machine, &[]);
    kubelet_config(world.machine, "");
    let before = World::heartbeat(admin);
    systemd::control(&["restart", "kubelet"]);
    world.ready_since(&before);
    world.kube_proxy_follows();
}
