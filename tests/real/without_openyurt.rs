//! `deploy/without-openyurt.md`, word by word, on a cluster without OpenYurt's definitions. The daemon has the arguments of the
//! DaemonSet that the page installs.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, text};
use weir_tests::plane::Plane;

use super::chart::{deployed, filters, has_kubectl, kubectl, prints, server_and_token};

/// The page, with the names of this cluster.
fn page(plane: &Plane) -> String {
    let [server, _] = server_and_token(plane);
    // The test's control plane has the permissions of `rbac.yaml` already.
    text("without-openyurt.md")
        .replace("https://10.0.0.1:6443", &server)
        .replace("helm install weir", "helm install weir --take-ownership")
}

/// The blocks of a section in this language.
fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fenced = section.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    fenced.filter(|(found, _)| *found == language).map(|(_, block)| block.to_owned()).collect()
}

/// Runs the commands of a section in a folder that has `deploy` and the built modules. Returns what they print.
fn follow(plane: &Plane, folder: &Path, heading: &str) -> String {
    let programs = built::weir().parent().unwrap().display().to_string();
    let path = format!("{}:{programs}:{}", built::target().join("deploy").display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &blocks(&page(plane), heading, "sh").concat()]).current_dir(folder);
    shell.env("PATH", path).env("KUBECONFIG", plane.kubeconfig("admin")).env("HOME", folder);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{heading}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Two Nodes of a pool, another one, and a Service with an endpoint on either side.
fn cluster() -> Value {
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let endpoint = |address: &str, node: &str| json!({"addresses": [address], "nodeName": node});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    });
    let labels = json!({"kubernetes.io/service-name": "web"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"port": 80}],
        "metadata": {"name": "web-x7k2p", "namespace": "default", "labels": labels},
        "endpoints": [endpoint("10.9.0.10", "edge-a"), endpoint("10.9.0.60", "cloud-2")],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [node("edge-b"), node("cloud-2"), service, slice]})
}

#[tokio::test]
async fn the_commands_of_the_page_install_pools_by_labels_alone() {
    if Helm::new().filter(|_| has_kubectl()).is_none() {
        return;
    }
    let Some(plane) = Plane::own() else { return };
    for definition in ["nodepools.apps.openyurt.io", "nodebuckets.apps.openyurt.io"] {
        let _ = prints(&plane, &["delete", "crd", definition], "");
    }
    let _ = prints(&plane, &["apply", "--filename", "-"], &cluster().to_string());
    let folder = tempfile::tempdir().unwrap();
    symlink(built::workspace().join("deploy"), folder.path().join("deploy")).unwrap();
    symlink(built::modules(), folder.path().join("modules")).unwrap();

    let _ = follow(&plane, folder.path(), "Install");
    let explained = follow(&plane, folder.path(), "See");
    let expected = blocks(&page(&plane), "See", "").concat();
    for line in expected.lines().filter(|line| *line != "…") {
        assert!(explained.contains(line), "{line} is in {explained}");
    }
    assert!(explained.contains("node pool hangzhou (labels of the Nodes: edge-a, edge-b)"), "{explained}");

    let files = tempfile::tempdir().unwrap();
    let weir = deployed(&plane, files.path()).start_ready().await;
    assert_eq!(filters(&weir).await.len(), 5);
    let token = std::fs::read_to_string(plane.token("admin")).unwrap();
    let kube_proxy = weir.client("kube-proxy").with("authorization", &format!("Bearer {}", token.trim()));
    let slice = kube_proxy.json("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-x7k2p").await;
    assert_eq!(slice["endpoints"].as_array().unwrap().len(), 1, "{slice}");
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.9.0.10"]));

    let _ = follow(&plane, folder.path(), "What needs what");
    let get = ["--namespace=weir-operator", "get", "deployment", "weir-operator", "--output=yaml"];
    assert!(prints(&plane, &get, "").contains("- --pool-source=nodelabels"));
    let labelled = kubectl(&plane, &["get", "nodes", "-l", "node.openyurt.io/autonomy-duration=72h", "-o", "name"], "");
    assert_eq!(String::from_utf8(labelled.stdout).unwrap(), "node/edge-a\nnode/edge-b\n");
}
