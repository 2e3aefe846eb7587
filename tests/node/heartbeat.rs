//! A Node without a kubelet, and a process that renews its Lease: the control plane believes that it is Ready.
//!
//! Where no node of a zone is Ready, kube-controller-manager assumes that the fault is its own, and evicts nothing.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::json;
use weir_tests::client::Client;
use weir_tests::pki::Pair;

use crate::CLOUD_ADDRESS;
use crate::cluster::Cloud;
use crate::kubectl::Kubectl;
use crate::machine::Machine;
use crate::parts::Part;

/// The argument of the program that renews a Lease, followed by the control plane's folder and the node.
pub(crate) const HEARTBEAT: &str = "--heartbeat";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// A fourth of the shortest time for which kube-controller-manager waits.
const INTERVAL: Duration = Duration::from_secs(1);

/// Creates a Node that is Ready for as long as the returned process runs.
pub(crate) fn start(machine: &Machine, cloud: &Cloud, admin: &Kubectl, node: &'static str) -> Part {
    admin.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n"));
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]);
    let patch = json!({"status": {"conditions": ready}}).to_string();
    admin.run(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &patch]);
    let program = std::env::current_exe().unwrap().display().to_string();
    let folder = cloud.file("").display().to_string();
    let words = ["--net=/run/netns/cloud", &program, HEARTBEAT, &folder, node].map(str::to_owned);
    Part::start(machine, node, "nsenter", &words)
}

/// Renews the Lease for ever.
pub(crate) fn run(folder: &Path, node: &str) -> ExitCode {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let pair = Pair { certificate: read("admin.crt"), key: read("admin.key") };
    let url = format!("https://{CLOUD_ADDRESS}:6443");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::trusting(&url, "heartbeat", Some(&read("ca.crt")), Some(&pair));
        // The whole Lease: created, or changed.
        let client = client.with("content-type", "application/apply-patch+yaml");
        let path = format!("{LEASES}/{node}?fieldManager=heartbeat&force=true");
        loop {
            let renewed = format!("{:.6}", jiff::Timestamp::now());
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed}});
            match client.try_send(Method::PATCH, &path, lease.to_string()).await {
                Ok(answer) if answer.status().is_success() => {}
                Ok(answer) => println!("{}", answer.status()),
                Err(error) => println!("{error}"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    })
}
