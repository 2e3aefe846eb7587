//! What a real API server and `kubectl describe node` make of the daemon's events and its condition.

use weir_tests::client::PATIENCE;
use weir_tests::daemon::Setup;

use super::kubectl::{Kubectl, Way};

const NODE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-b"}}"#;

#[tokio::test]
async fn kubectl_describe_node_shows_a_refused_configuration() {
    let Some(kubectl) = Kubectl::start("admin", "node-report", "filters: []\n").await else { return };
    // The daemons of all other tests are on the node edge-a, and set its condition.
    let created = kubectl.run(Way::Direct, &["apply", "--filename", "-"], NODE).await;
    assert!(created.status.success(), "{created:?}");
    let plane = kubectl.plane;
    let weir = Setup::kubeconfig(&plane.kubeconfig("weir"))
        .flag("--node-name", "edge-b")
        .flag("--node-kubeconfig", &plane.kubeconfig("neighbour").display().to_string())
        .filters("filters: []\n")
        .start_ready()
        .await;
    weir.put_filters("filters: [{name: broken, module: none.wasm}]\n");
    weir.logged("configuration refused").await;
    // kubectl has no command that waits for an event.
    let shown = async {
        loop {
            let text = kubectl.admin(&["describe", "node", "edge-b"]).await;
            let line = |parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            if line(&["WeirFiltersReady", "False", "Refused", "filter broken"])
                && line(&["Warning", "ConfigurationRefused", "weir.dev/weir", "The last valid filter set stays active"])
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    // A fault is written once it has lasted for 30 seconds, and so is the end of a refusal.
    let settled = std::time::Duration::from_secs(30);
    if tokio::time::timeout(settled + PATIENCE, shown).await.is_err() {
        panic!("{}\n{}", kubectl.admin(&["describe", "node", "edge-b"]).await, weir.log_text());
    }
    assert!(!weir.log_text().contains("may not write events"), "{}", weir.log_text());
    weir.put_filters("filters: []\n");
    let ready = ["wait", "--for=condition=WeirFiltersReady", "node/edge-b", "--timeout=90s"];
    kubectl.admin(&ready).await;
}
