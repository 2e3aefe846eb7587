//! A second node of the site, with an uplink of its own: its Weir is real, and its kubelet is replayed. One relays for the other,
//! and they exchange the addresses of their pods.

use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use weir_tests::client::{Client, whole};
use weir_tests::pki::Pair;

use super::offline::metrics;
use super::{World, items};
use crate::cluster::{deploy, rules, start_neighbour};
use crate::outage::Link;
use crate::parts::Part;
use crate::runner::until;
use crate::{NEIGHBOUR, NEIGHBOUR_ADDRESS, NODE};

/// The pod of the other node, before and after its restart.
const POD: &str = "/api/v1/namespaces/default/pods/remote";
const OLD: &str = "10.244.9.2";
const NEW: &str = "10.244.9.103";
/// How long the uplink is cut: longer than the control plane waits for a Lease (50 s). `WEIR_RELAY_SECONDS` sets it.
const CUT: u64 = 70;

/// The other node.
pub(super) struct Neighbour {
    _weir: Part,
    /// The CA of the cluster.
    ca: String,
    /// The client certificate of the node.
    pair: Pair,
    runtime: Runtime,
}

impl Neighbour {
    /// Runs as its kubelet, on connections of its own: between two runs nobody would answer a server that closes one.
    fn as_kubelet<T>(&self, run: impl AsyncFnOnce(Client) -> T) -> T {
        let url = format!("https://{NEIGHBOUR_ADDRESS}:10268");
        self.runtime.block_on(async { run(Client::trusting(&url, "kubelet", Some(&self.ca), Some(&self.pair))).await })
    }

    /// What its kubelet does to report the pod. Returns the code of the answer.
    fn report(&self, uid: &str, address: &str) -> u16 {
        // A strategic merge: what is not deleted stays.
        let ips = match address {
            OLD => json!([{"ip": OLD}]),
            _ => json!([{"ip": address}, {"$patch": "delete", "ip": OLD}]),
        };
        let status = json!({
            "phase": "Running", "podIP": address, "podIPs": ips,
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        let body = json!({"metadata": {"uid": uid}, "status": status}).to_string();
        self.as_kubelet(async |kubelet| {
            let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NEIGHBOUR}&resourceVersion=0");
            assert_eq!(kubelet.get(&pods).await.status, 200);
            assert_eq!(kubelet.get(POD).await.status, 200);
            let client = kubelet.with("content-type", "application/strategic-merge-patch+json");
            let answer = client.send(Method::PATCH, &format!("{POD}/status"), body).await;
            whole(answer).await.unwrap().status.as_u16()
        })
    }
}

/// Starts the other node's Weir, with one pod of a Service.
pub(super) fn joins(world: &mut World<'_>) {
    let admin = &world.admin;
    let impersonation = std::fs::read_to_string(deploy("impersonation.yaml")).unwrap();
    let (one, both) = (r#"["system:node:edge-a"]"#, r#"["system:node:edge-a", "system:node:edge-b"]"#);
    assert!(impersonation.contains(one));
    admin.apply(&impersonation.replace(one, both));
    admin.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {NEIGHBOUR}}}\n"));
    admin.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: remote}}\nspec:\n  nodeName: {NEIGHBOUR}\n  \
         tolerations: [{{operator: Exists}}]\n  containers: [{{name: web, image: none}}]\n"
    ));
    admin.apply("apiVersion: v1\nkind: Service\nmetadata: {name: remote}\nspec: {ports: [{name: http, port: 80, targetPort: 8080}]}\n");
    let uid = uid(world);
    admin.apply(&slice(&uid, OLD));
    let weir = start_neighbour(world.machine, &world.cloud);
    let pair = Pair { certificate: world.cloud.read("neighbour.crt"), key: world.cloud.read("neighbour.key") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let neighbour = Neighbour { _weir: weir, ca: world.cloud.read("ca.crt"), pair, runtime };
    until("the neighbour's Weir is ready", || {
        let ready = neighbour.as_kubelet(async |kubelet| kubelet.try_get(POD).await)?;
        if ready.status == 200 { Ok(()) } else { Err(ready.text()) }
    });
    assert_eq!(neighbour.report(&uid, OLD), 200);
    until("kube-proxy leads to the neighbour's pod", || leads_to(OLD));
    world.neighbour = Some(neighbour);
}

fn uid(world: &World<'_>) -> String {
    world.admin.in_cloud().run(&["get", "pod", "remote", "-o", "jsonpath={.metadata.uid}"])
}

fn slice(uid: &str, address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{name: remote-1, labels: {{kubernetes.io/service-name: remote}}}}\nports: [{{name: http, port: 8080}}]\n\
         endpoints:\n- addresses: [{address}]\n  nodeName: {NEIGHBOUR}\n  conditions: {{ready: true, serving: true}}\n  \
         targetRef: {{kind: Pod, namespace: default, name: remote, uid: {uid}}}\n"
    )
}

fn leads_to(address: &str) -> Result<(), String> {
    match rules() {
        text if text.contains(&format!("default/remote/tcp/http__{address}/8080")) => Ok(()),
        text => Err(text),
    }
}

/// The uplink of this node is cut. All goes on through the neighbour: the Lease is renewed, and the node stays Ready.
pub(super) fn relays(world: &World<'_>) {
    let cloud = world.admin.in_cloud();
    let cut = std::env::var("WEIR_RELAY_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(CUT);
    let (uplink, begun) = (uplink_bytes(), Instant::now());
    Link::Node.cut();
    until("Weir goes through the neighbour", || relay_up(1));
    println!("    Weir went through the neighbour {:.1} s after the cut", begun.elapsed().as_secs_f64());
    let mut oldest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(cut) {
        let node = cloud.json(&["get", "node", NODE]).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "True", "{ready}");
        oldest = oldest.max(lease_age(&cloud.json(&["-n", "kube-node-lease", "get", "lease", NODE]).unwrap()));
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("    {cut} s without an uplink: the Lease was never older than {:.1} s", oldest.as_secs_f64());
    let events = cloud.json(&["get", "events", "--field-selector=reason=NodeNotReady"]).unwrap();
    let ours = items(&events).iter().filter(|event| event["involvedObject"]["name"] == NODE);
    assert_eq!(ours.count(), 0, "{events}");
    world.weir().run(&["get", "services"]);
    let (relayed, uplink) = (relayed_bytes(), uplink_bytes() - uplink);
    println!("    the neighbour relayed {relayed} bytes, its uplink carried {uplink}");
    assert!(relayed > 0 && uplink > relayed, "{relayed}, {uplink}");
    Link::Node.mend();
    until("Weir goes directly again", || relay_up(0));
    world.kube_proxy_follows();
}

fn relay_up(value: u8) -> Result<(), String> {
    let metrics = metrics()?;
    let wanted = format!("weir_relay_up{{peer=\"{NEIGHBOUR}\"}} {value}");
    if metrics.lines().any(|line| line == wanted) { Ok(()) } else { Err(metrics) }
}

/// The time since a Lease was renewed.
fn lease_age(lease: &Value) -> Duration {
    let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
    Duration::try_from(jiff::Timestamp::now().duration_since(renewed)).unwrap_or_default()
}

/// The bytes that the neighbour has relayed.
fn relayed_bytes() -> u64 {
    let words = ["--net=/run/netns/neighbour", "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:10267/metrics"];
    let text = crate::machine::run("nsenter", &words);
    let lines = text.lines().filter(|line| line.starts_with("weir_relay_bytes_total{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The bytes that the neighbour's uplink has carried, in both directions.
fn uplink_bytes() -> u64 {
    let output = Command::new("ip").args(["-n", "neighbour", "-s", "-j", "link", "show", "uplink"]).output().unwrap();
    let links: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = |direction: &str| links[0]["stats64"][direction]["bytes"].as_u64().unwrap();
    bytes("rx") + bytes("tx")
}

/// The whole site is offline, and the neighbour's pod comes back with another address.
pub(super) fn reports(world: &mut World<'_>) {
    let uid = uid(world);
    let neighbour = world.neighbour.take().expect("the neighbour has joined");
    for link in [Link::Node, Link::Neighbour] {
        link.cut();
    }
    until("the neighbour's kubelet reaches nobody", || match neighbour.report(&uid, NEW) {
        503 => Ok(()),
        code => Err(code.to_string()),
    });
    let begun = Instant::now();
    until("kube-proxy leads to the new address", || leads_to(NEW));
    println!("    kube-proxy led to it {:.1} s after the report", begun.elapsed().as_secs_f64());
    for link in [Link::Node, Link::Neighbour] {
        link.mend();
    }
    until("the neighbour's kubelet reaches the API server", || match neighbour.report(&uid, NEW) {
        200 => Ok(()),
        code => Err(code.to_string()),
    });
    world.admin.apply(&slice(&uid, NEW));
    super::local_status::nothing_is_left();
    assert_eq!(leads_to(NEW), Ok(()));
    let admin = &world.admin;
    admin.run(&["delete", "service,pod,endpointslice", "remote", "remote-1", "--ignore-not-found", "--force"]);
    admin.run(&["delete", "node", NEIGHBOUR]);
}
