//! A node that was restarted without its control plane: Services lead to the pods' new addresses, and after the link is mended
//! nothing goes back to the old ones.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::World;
use super::offline::{WEB, metrics};
use crate::NODE_ADDRESS;
use crate::cluster::rules;
use crate::machine::run;
use crate::outage::pids;
use crate::runner::until;

/// What a client sees of the Service `local`, one line for each event: `10.244.0.9=true `.
const ENDPOINTS: &[&str] = &[
    "get",
    "endpointslices",
    "-l",
    "kubernetes.io/service-name=local",
    "--watch",
    "-o",
    "jsonpath={range .endpoints[*]}{.addresses[0]}={.conditions.ready} {end}{\"\\n\"}",
];
/// Their record.
const RECORD: &str = "/mnt/endpoints.txt";
const NODE_PORT: u16 = 30081;
const CLUSTER_IP: &str = "10.96.10.11";

/// A watch of the endpoints through Weir.
pub(super) struct Record(Child);

impl Drop for Record {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Service with no endpoint but the pod of this node.
pub(super) fn create_service(world: &World<'_>) {
    let admin = &world.admin;
    admin.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: local}}\nspec:\n  type: NodePort\n  clusterIP: {CLUSTER_IP}\n  \
         selector: {{app: web}}\n  ports: [{{name: http, port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}]\n"
    ));
    until("kube-proxy serves it", || match rules() {
        text if text.contains(&format!("default/local/tcp/http__{}/8080", address())) => Ok(()),
        text => Err(text),
    });
    // Offline, a client may read what it was allowed to read before.
    world.weir().run(&["get", "--raw", "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"]);
}

/// The present address of the pod.
pub(super) fn address() -> String {
    let pid = until("the pod runs", || pids(WEB).first().copied().ok_or_else(|| "it does not".to_owned()));
    let text = run("nsenter", &["--net", &format!("--target={pid}"), "ip", "-4", "-o", "address", "show", "eth0"]);
    let word = text.split(' ').find(|word| word.starts_with("10.244.")).unwrap_or_else(|| panic!("{text}"));
    word.split_once('/').unwrap().0.to_owned()
}

/// Starts a record, and waits for its first line.
pub(super) fn record(world: &World<'_>) -> Record {
    let file = std::fs::File::create(RECORD).unwrap();
    let record = Record(world.weir().command(ENDPOINTS).stdout(Stdio::from(file)).spawn().unwrap());
    until("the endpoints of the Service are listed", || {
        if recorded().is_empty() { Err("no line".to_owned()) } else { Ok(()) }
    });
    record
}

/// The different lines so far.
fn recorded() -> BTreeSet<String> {
    let text = std::fs::read_to_string(RECORD).unwrap_or_default();
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// After a restart without the control plane.
pub(super) fn services_lead_to_new_addresses(old: &str, started: Instant) {
    until("kube-proxy leads to the pod's new address", || match (rules(), address()) {
        (text, new) if new != old && text.contains(&format!("default/local/tcp/http__{new}/8080")) => Ok(()),
        (text, new) => Err(format!("{old}, {new}: {text}")),
    });
    assert!(!rules().contains(&format!("__{old}/8080")), "{}", rules());
    println!("    kube-proxy led to the new address {:.1} s after kubelet's start", started.elapsed().as_secs_f64());
    let pid = pids(WEB)[0];
    until("the name of a Service is resolved in a pod", || {
        let words = ["nslookup", "local.default.svc.cluster.local", "10.96.0.10"];
        let answer =
            Command::new("nsenter").args(["--net", &format!("--target={pid}"), "busybox"]).args(words).output();
        let answer = String::from_utf8_lossy(&answer.map_err(|error| error.to_string())?.stdout).into_owned();
        if answer.contains("Name:") { Ok(()) } else { Err(answer) }
    });
    println!("    DNS answered {:.1} s after kubelet's start", started.elapsed().as_secs_f64());
    for address in [format!("{CLUSTER_IP}:80"), format!("{NODE_ADDRESS}:{NODE_PORT}")] {
        for _ in 0..20 {
            assert_eq!(
                run("busybox", &["wget", "-q", "-O", "-", &format!("http://{address}/index.html")]),
                "the test server\n"
            );
        }
    }
}

/// Waits until the API server's objects alone count again.
pub(super) fn nothing_is_left() {
    until("Weir has handed over", || {
        let metrics = metrics()?;
        let left = metrics.lines().filter(|line| line.starts_with("weir_local_status_pods{"));
        if left.clone().all(|line| line.ends_with(" 0")) { Ok(()) } else { Err(left.collect::<Vec<_>>().join("\n")) }
    });
}

/// After the link is mended: the API server says what kubelet has reported, and no client saw anything else meanwhile.
pub(super) fn handed_over(world: &World<'_>, record: Record) {
    let new = address();
    world.admin.wait("the API server has the new address", &["get", "pod", "web"], |pod| {
        (pod["status"]["podIP"] == *new).then_some(())
    });
    nothing_is_left();
    assert_eq!(recorded(), BTreeSet::from([format!("{new}=true")]), "every state that a client saw");
    drop(record);
}
