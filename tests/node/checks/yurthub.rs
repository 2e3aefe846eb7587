//! A node of OpenYurt, whose kubelet is a client of YurtHub, tries Weir, moves to it and comes back: `deploy/from-yurthub.md`, word by
//! word.
//!
//! The variable `YURTHUB` names YurtHub's program, which `tests/bench/YURTHUB.md` builds. Without it, none of these checks is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{World, items};
use crate::cluster::{KUBELET_ENVIRONMENT, example};
use crate::guide::{FOLDER, Guide};
use crate::images::{Image, YURTHUB};
use crate::kubectl::holds;
use crate::machine::replace;
use crate::runner::Runner;
use crate::{SERVER_NAME, systemd};

const MANIFEST: &str = "/etc/kubernetes/manifests/yurthub.yaml";
/// kubelet's kubeconfig, as OpenYurt's installer writes it.
const KUBELET_CONF: &str = "/var/lib/openyurt/kubelet.conf";
const PODS: &[&str] = &["-n", "kube-system", "get", "pods", "-l", "k8s-app=yurt-hub"];

pub(super) fn run(world: &World<'_>, runner: &mut Runner) {
    let Some(program) = std::env::var_os("YURTHUB").filter(|path| !path.is_empty()).map(PathBuf::from) else { return };
    runner.check("yurthub_serves_kubelet", || install(world, &program));
    runner.check("a_trial_beside_yurthub_is_as_its_page_says", || tries(world));
    runner.check("a_node_moves_from_yurthub_and_back_as_the_page_says", || moves(world));
}

fn page(world: &World<'_>) -> Guide {
    world
        .page("from-yurthub.md")
        .replacing("https://10.0.0.1:6443", &format!("https://{SERVER_NAME}:6443"))
        .replacing("registry.example/weir", "weir")
}

fn install(world: &World<'_>, program: &Path) {
    let image = Image::new(world.machine, YURTHUB, &["/usr/local/bin/yurthub"]);
    image.program(program, "/usr/local/bin/yurthub");
    image.import();
    credentials(world);
    let admin = &world.admin;
    admin.apply(include_str!("../manifests/yurthub.yaml"));
    for pool in ["hangzhou", "beijing"] {
        // YurtHub finds the pools by it.
        admin.run(&["label", "nodepool", pool, &format!("openyurt.io/pool-name={pool}")]);
    }
    std::fs::write(MANIFEST, include_str!("../manifests/yurthub-pod.yaml").replace("SERVER", SERVER_NAME)).unwrap();
    is_ready(world);
    let before = World::heartbeat(admin);
    replace(KUBELET_CONF, &std::fs::read_to_string(example("kubelet-node-credential.conf")).unwrap());
    replace(KUBELET_ENVIRONMENT, &format!("KUBELET_EXTRA_ARGS=--kubeconfig={KUBELET_CONF}\n"));
    systemd::control(&["restart", "kubelet"]);
    world.ready_since(&before);
}

/// Writes what YurtHub has after it has joined a cluster.
fn credentials(world: &World<'_>) {
    let root = "/var/lib/yurthub";
    let read = |name: &str| world.cloud.read(name);
    replace(&format!("{root}/pki/ca.crt"), &read("ca.crt"));
    replace(&format!("{root}/pki/yurthub-current.pem"), &(read("node.crt") + &read("node.key")));
    replace(&format!("{root}/pki/yurthub-server-current.pem"), &(read("kubelet.crt") + &read("kubelet.key")));
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: c}}}}],\n\
         clusters: [{{name: c, cluster: {{server: 'https://{SERVER_NAME}:6443', certificate-authority: {root}/pki/ca.crt}}}}],\n\
         users: [{{name: c, user: {{client-certificate: {root}/pki/yurthub-current.pem, client-key: {root}/pki/yurthub-current.pem}}}}]}}\n"
    );
    for name in ["yurthub.conf", "bootstrap-hub.conf"] {
        replace(&format!("{root}/{name}"), &config);
    }
}

/// Waits until YurtHub's pod is Ready.
fn is_ready(world: &World<'_>) {
    let () = world.admin.wait("YurtHub is ready", PODS, |pods| {
        let [pod] = items(pods) else { return None };
        (holds(pod, "Ready") && pod["metadata"]["deletionTimestamp"].is_null()).then_some(())
    });
}

fn tries(world: &World<'_>) {
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys=openyurt.io/nodepool"]);
    page(world).follow("A trial beside YurtHub");
    let seen = std::fs::read_to_string(Path::new(FOLDER).join("10361.json")).unwrap();
    assert!(seen.contains("\"10.244.1.") && !seen.contains("10.244.2.9"), "only endpoints of the pool: {seen}");
}

/// No container of the other pods starts again, in either direction, and the Node stays Ready.
fn moves(world: &World<'_>) {
    let (others, outages) = (others(world), outages(world));
    let page = page(world);
    world.readme().follow("Weir's own credential");
    page.follow("One node moves");
    lease_is_renewed(world);
    assert_eq!(self::others(world), others);
    page.follow("Back");
    is_ready(world);
    lease_is_renewed(world);
    assert_eq!(self::others(world), others);
    assert_eq!(self::outages(world), outages);
}

/// How often the Node became NotReady. Other checks cut it off.
fn outages(world: &World<'_>) -> u64 {
    let events = world.admin.json(&["get", "events", "--field-selector=reason=NodeNotReady"]).unwrap();
    let ours = items(&events).iter().filter(|event| event["involvedObject"]["name"] == crate::NODE);
    ours.filter_map(|event| event["count"].as_u64()).sum()
}

/// Waits until kubelet has renewed its Lease twice: the first time may have begun before.
fn lease_is_renewed(world: &World<'_>) {
    let lease = ["-n", "kube-node-lease", "get", "lease", crate::NODE];
    for _ in 0..2 {
        let before = world.admin.json(&lease).unwrap()["spec"]["renewTime"].clone();
        let () = world
            .admin
            .wait("kubelet renews its Lease", &lease, |lease| (lease["spec"]["renewTime"] != before).then_some(()));
    }
    let node = world.admin.json(&["get", "node", crate::NODE]).unwrap();
    assert!(holds(&node, "Ready"), "{}", node["status"]["conditions"]);
}

/// The restarts of the containers of the pods that are neither YurtHub's nor Weir's.
fn others(world: &World<'_>) -> BTreeMap<String, Value> {
    let pods = world.admin.json(&["get", "pods", "-A"]).unwrap();
    let of = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str()?;
        let is_other = !name.starts_with("weir") && !name.starts_with("yurt-hub");
        let restarts = pod["status"]["containerStatuses"].as_array()?.iter();
        let restarts = restarts.map(|one| (one["containerID"].clone(), one["restartCount"].clone()));
        is_other.then(|| (name.to_owned(), serde_json::json!(restarts.collect::<Vec<_>>())))
    };
    let others: BTreeMap<_, _> = items(&pods).iter().filter_map(of).collect();
    assert!(others.len() >= 4, "{others:?}");
    others
}
