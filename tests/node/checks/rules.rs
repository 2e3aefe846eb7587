//! kube-proxy's rules for a Service, after each change of an object that the filters read.

use std::process::Command;

use weir_tests::built;

use super::World;
use super::clients::restart_kube_proxy;
use crate::cluster::rules;
use crate::kubectl::Kubectl;
use crate::runner::until;

/// The endpoints of `web` on the other nodes. The one on edge-b changes its address.
const EDGE_B: &str = "default/web/tcp/http__10.244.1.";
const EDGE_C: &str = "default/web/tcp/http__10.244.2.9/8080";
const NODE_PORT: &str = "tcp . 30080";

/// Waits until the rules contain `wanted` and none of `unwanted`.
fn hold(why: &str, wanted: &[&str], unwanted: &[&str]) {
    until(why, || {
        let text = rules();
        let missing: Vec<_> = wanted.iter().filter(|words| !text.contains(**words)).collect();
        let left: Vec<_> = unwanted.iter().filter(|words| text.contains(**words)).collect();
        match missing.is_empty() && left.is_empty() {
            true => Ok(()),
            false => Err(format!("missing {missing:?}, not gone {left:?} in {text}")),
        }
    });
}

fn annotate(admin: &Kubectl, annotation: &str) {
    admin.run(&["annotate", "service", "web", "--overwrite", annotation]);
}

pub(super) fn topology(world: &World<'_>) {
    let admin = &world.admin;
    restart_kube_proxy(world);
    hold("all endpoints are there", &[EDGE_B, EDGE_C], &[]);
    annotate(admin, "openyurt.io/topologyKeys=openyurt.io/nodepool");
    hold("only the pool's endpoints are there", &[EDGE_B], &[EDGE_C]);
    let nodes = |nodes: &str| {
        let patch = format!(r#"{{"status":{{"nodes":{nodes}}}}}"#);
        admin.run(&["patch", "nodepool", "hangzhou", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    nodes(r#"["edge-a","edge-c"]"#);
    hold("another node is of the pool", &[EDGE_C], &[EDGE_B]);
    annotate(admin, "openyurt.io/topologyKeys=kubernetes.io/hostname");
    hold("only this node's endpoints are there", &[], &[EDGE_B, EDGE_C]);
    annotate(admin, "openyurt.io/topologyKeys-");
    nodes(r#"["edge-a","edge-b"]"#);
    hold("all endpoints are there again", &[EDGE_B, EDGE_C], &[]);
}

/// The line of the README that answers "Why does kube-proxy not see this endpoint?", for the objects of this cluster.
fn readmes_question() -> String {
    let readme = std::fs::read_to_string(built::workspace().join("README.md")).unwrap();
    let line = readme.lines().find(|line| line.starts_with("weir explain")).expect("README has the command");
    let (modules, weir) = (built::modules(), built::weir());
    [
        ("weir explain", format!("{} explain", weir.display())),
        ("web-abc -n shop", "web-others -n default".to_owned()),
        ("--modules-dir modules", format!("--modules-dir {}", modules.display())),
    ]
    .into_iter()
    .fold(line.to_owned(), |line, (words, by)| {
        assert!(line.contains(words), "{words}: {line}");
        line.replacen(words, &by, 1)
    })
}

/// Whether a text says why kube-proxy does not see an endpoint of the Service `web`.
fn is_answer(text: String) -> Result<(), String> {
    let pool = "keeps endpoints on the nodes of node pool hangzhou (NodePool: edge-a, edge-b)";
    let lines = [pool, "10.244.2.9 is left out: it is on node edge-c"];
    if lines.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
}

/// Runs the README's line, without a daemon, while the Service `web` is for its own pool.
pub(super) fn readmes_line_answers(world: &World<'_>) {
    let mut anywhere = Command::new("sh");
    let kubeconfig = world.cloud.file("admin.kubeconfig");
    anywhere.args(["-euc", &readmes_question()]).env("KUBECONFIG", kubeconfig).env("HOME", "/mnt");
    let output = anywhere.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_answer(String::from_utf8(output.stdout).unwrap()).unwrap();
}

/// Asks the daemon why kube-proxy does not see an endpoint, and explains it without the daemon.
pub(super) fn explained(world: &World<'_>) {
    let (admin, pod) = (&world.admin, world.weir_is_ready());
    let question = ["weir", "explain", "endpointslice/web-others", "-n", "default", "--component", "kube-proxy"];
    let in_pod = [&["-n", "kube-system", "exec", &pod, "--"], &question[..]].concat();
    annotate(admin, "openyurt.io/topologyKeys=openyurt.io/nodepool");
    until("the daemon explains why an endpoint is left out", || is_answer(admin.attempt(&in_pod)?));
    readmes_line_answers(world);
    annotate(admin, "openyurt.io/topologyKeys-");
}

pub(super) fn node_ports(world: &World<'_>) {
    let admin = &world.admin;
    restart_kube_proxy(world);
    hold("the node port is open", &[NODE_PORT], &[]);
    annotate(admin, "nodeport.openyurt.io/listen=beijing");
    hold("the node port is closed in this pool", &[], &[NODE_PORT]);
    let label = |pool: &str| {
        admin.run(&["label", "node", crate::NODE, "--overwrite", &format!("apps.openyurt.io/nodepool={pool}")]);
    };
    label("beijing");
    hold("the node port is open in the other pool", &[NODE_PORT], &[]);
    label("hangzhou");
    hold("the node port is closed again", &[], &[NODE_PORT]);
    let filter = |value: &str| {
        let patch = format!(r#"{{"data":{{"filter_nodeportisolation":{value}}}}}"#);
        admin.run(&["-n", "kube-system", "patch", "configmap", "weir-filters", "--type=merge", "-p", &patch]);
    };
    filter(r#""""#);
    hold("the filter is off", &[NODE_PORT], &[]);
    filter("null");
    hold("the filter is on", &[], &[NODE_PORT]);
    annotate(admin, "nodeport.openyurt.io/listen-");
    hold("no annotation closes the node port", &[NODE_PORT], &[]);
}

/// Changes the address of the endpoint on the other node, to a new one each time.
pub(super) fn moved_endpoint(world: &World<'_>) {
    let slice = world.admin.json(&["get", "endpointslice", "web-others"]).unwrap();
    let last =
        slice["endpoints"][0]["addresses"][0].as_str().unwrap().rsplit('.').next().unwrap().parse::<u8>().unwrap();
    let address = format!("10.244.1.{}", last + 1);
    let patch = format!(r#"[{{"op":"replace","path":"/endpoints/0/addresses/0","value":"{address}"}}]"#);
    world.admin.run(&["patch", "endpointslice", "web-others", "--type=json", "-p", &patch]);
    hold("a moved endpoint is there", &[&format!("default/web/tcp/http__{address}/8080")], &[]);
}
