//! `make demo`: a small edge cluster in memory, and Weir in front of it as `deploy/` installs it: its filters from the
//! ConfigMap, its watch caches in memory and on disk. kube-proxy's open watch shows what a reload, another node pool and an
//! outage are to a client. All output comes from real requests to a real daemon, and what it promises is asserted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an interactive demo: a panic is the error report"
)]

mod watcher;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::link::Link;

use self::watcher::Watcher;

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const SERVICES: &str = "/api/v1/services";

#[tokio::main]
async fn main() {
    let ends = std::env::args().any(|argument| argument == "--end");
    heading("1. A Kubernetes API server, in memory, with the objects of a small edge cluster");
    let server = api_server().start().await.expect("the API server starts");
    server.store().load(include_str!("cluster.yaml")).expect("the cluster loads");
    server.store().load(include_str!("../../deploy/filters.yaml")).expect("the ConfigMap loads");
    note(&format!("URL: {}", server.url()));
    note("Nodes edge-a and edge-b belong to node pool hangzhou, node edge-c to pool beijing.");

    heading(
        "2. Weir on node edge-a, as deploy/ installs it: the filters of the ConfigMap weir-filters, caches on disk",
    );
    let mut link = Link::to(&server).await;
    let cache = tempfile::tempdir().unwrap();
    let mut weir = shipped(&link, cache.path()).start_ready().await;
    let active = active(&weir).await;
    note(&format!("weir serve --server {} --node-name edge-a ...   (pid {})", link.url(), weir.id()));
    note(&format!("Active filters: {}", active.join(", ")));
    assert_eq!(
        active,
        ["servicetopology", "endpoints", "discardcloudservice", "nodeportisolation", "nodeportaddresses"]
    );

    heading("3. What kube-proxy gets: from the API server, and through Weir");
    let direct = Client::new(server.url(), "kube-proxy");
    let through = weir.client("kube-proxy");
    let far = ["10.244.1.7 on edge-a", "10.244.2.9 on edge-b", "10.244.3.4 on edge-c"];
    compare(
        "the endpoints of Service web, which asks for its own node pool",
        &endpoints(&direct).await,
        &endpoints(&through).await,
    );
    assert_eq!((endpoints(&direct).await, endpoints(&through).await), (owned(&far), owned(&far[..2])));
    note("servicetopology leaves out the endpoint on edge-c: that node is in another pool.");
    compare("the Services", &services(&direct).await, &services(&through).await);
    let filtered = ["dashboard: ClusterIP", "kubernetes: ClusterIP", "web: ClusterIP"];
    assert_eq!(services(&through).await, filtered);
    note("nodeportisolation closes the node port of dashboard, which is for pool beijing only;");
    note("discardcloudservice hides shop, a LoadBalancer Service of the cloud.");

    note("No filter matches kubectl: it sees all.");
    show_kubectl(&weir);

    heading("4. kube-proxy's open watches, from here on: what arrives, and when");
    let mut watcher = Watcher::begin(&through, &[SERVICES, SLICES]).await;
    watcher.expect("ADDED", "service web").await;
    watcher.expect("ADDED", "endpointslice web-x7k2p").await;

    heading("5. A reload: the ConfigMap switches nodeportisolation off, and on again");
    kubectl("-n kube-system patch configmap weir-filters -p '{\"data\":{\"filter_nodeportisolation\":\"\"}}'");
    let began = Instant::now();
    edit_filters(&server, |data| data["filter_nodeportisolation"] = json!(""));
    watcher.expect("MODIFIED", "service dashboard: NodePort, node port 30080").await;
    took("The watch stays open, and the node port opens", began);
    kubectl("-n kube-system patch configmap weir-filters -p '{\"data\":{\"filter_nodeportisolation\":null}}'");
    edit_filters(&server, |data| drop(data.as_object_mut().unwrap().remove("filter_nodeportisolation")));
    watcher.expect("MODIFIED", "service dashboard: ClusterIP").await;

    heading("6. Another node pool: edge-a moves from hangzhou to beijing");
    watcher.forget();
    let began = Instant::now();
    move_to_beijing(&server);
    watcher.expect("MODIFIED", "endpointslice web-x7k2p: 10.244.1.7 on edge-a, 10.244.3.4 on edge-c").await;
    watcher.expect("MODIFIED", "service dashboard: NodePort, node port 30080").await;
    took("No watch was reopened, and no object of these two has changed in the cluster", began);

    heading("7. A module that is no module");
    let from = weir.log_length();
    weir.put_module("discardcloudservice", b"not WebAssembly");
    let (_, line) = weir.logged_after(from, "configuration refused").await;
    note(&format!("Weir's log: {}", line["fields"]["message"].as_str().unwrap()));
    note(&format!("            {}", line["fields"]["reason"].as_str().unwrap()));
    assert!(!services(&through).await.iter().any(|service| service.starts_with("shop")), "the filter stays in force");
    weir.put_module("discardcloudservice", &module("discardcloudservice"));

    heading("8. The API server cannot be reached any more, and Weir is killed and started again");
    watcher.end();
    link.down().await;
    weir = weir.killed().await.start().await;
    let began = Instant::now();
    let through = weir.client("kube-proxy");
    let offline = services(&through).await;
    took("kube-proxy's first list", began);
    note(&format!("kube-proxy gets what it got before, from disk: {}", offline.join("; ")));
    assert_eq!(offline, ["dashboard: NodePort, node port 30080", "kubernetes: ClusterIP", "web: ClusterIP"]);
    show_kubectl(&weir);
    let mut watcher = Watcher::begin(&through, &[SERVICES]).await;
    watcher.expect("ADDED", "service web").await;

    heading("9. Meanwhile a Service was made in the cloud, and the link is back");
    server.store().put(service("later")).unwrap();
    let began = Instant::now();
    link.up().await;
    watcher.expect("ADDED", "service later").await;
    took("It arrives on the watch that was opened without an API server", began);

    if ends {
        heading("The demo is over.");
        watcher.end();
        assert_eq!(weir.stop().await, Some(0), "Weir stops cleanly");
        return;
    }
    stay(&server, &weir).await;
}

/// The daemon as `deploy/` runs it, on a link that can be cut.
fn shipped(link: &Link, cache: &Path) -> Setup {
    let modules = std::fs::read_dir(built::modules()).unwrap().map(|entry| entry.unwrap().path());
    let setup = Setup::new(&link.url()).on_disk(cache).flag("--config-map", "kube-system/weir-filters");
    modules.fold(setup, |setup, path| setup.bundled(path.file_stem().unwrap().to_str().unwrap()))
}

async fn active(weir: &Daemon) -> Vec<String> {
    let shown = weir.admin().json("/filters").await;
    let names = shown["filters"].as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap().to_owned());
    names.collect()
}

fn edit_filters(server: &ApiServer, change: impl FnOnce(&mut Value)) {
    let map = |map: &mut Value| change(&mut map["data"]);
    server.store().edit("v1", "ConfigMap", "kube-system", "weir-filters", map).expect("the ConfigMap is there");
}

fn move_to_beijing(server: &ApiServer) {
    kubectl("label node edge-a --overwrite apps.openyurt.io/nodepool=beijing");
    let pool = |name: &str, nodes: Value| {
        let edited = server
            .store()
            .edit("apps.openyurt.io/v1beta2", "NodePool", "", name, |pool| pool["status"]["nodes"] = nodes);
        edited.expect("the pool is there");
    };
    pool("hangzhou", json!(["edge-b"]));
    pool("beijing", json!(["edge-a", "edge-c"]));
    let label = |node: &mut Value| node["metadata"]["labels"]["apps.openyurt.io/nodepool"] = json!("beijing");
    server.store().edit("v1", "Node", "", "edge-a", label).expect("the Node is there");
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.10.20", "ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

/// Runs kubectl against Weir, if it is installed.
fn show_kubectl(weir: &Daemon) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("kubectl");
    command.args(["--server", weir.url(), "get", "services", "-A"]);
    command.env("HOME", home.path()).env("KUBECONFIG", home.path().join("none"));
    kubectl(&format!("--server {} get services -A", weir.url()));
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            text.lines().for_each(|line| println!("     {line}"));
            assert!(output.status.success() && text.contains("dashboard"), "{text}");
        }
        Err(error) => note(&format!("(kubectl cannot be run here: {error})")),
    }
}

async fn stay(server: &ApiServer, weir: &Daemon) {
    let admin = weir.admin_url();
    heading("The API server and Weir keep running for your own requests. Ctrl-C ends the demo.");
    println!(
        "
    kubectl --server {direct} --certificate-authority {ca} get services -A      # the API server, without Weir
    kubectl --server {weir} get services -A                      # through Weir, as kubectl: no filter matches kubectl
    curl -s -A kube-proxy/demo {weir}{SERVICES}        # through Weir, as kube-proxy: filtered
    curl -s -A kube-proxy/demo '{weir}{SLICES}?watch=true'          # a filtered watch
    kubectl --server {direct} --certificate-authority {ca} -n kube-system edit configmap weir-filters      # the configuration: change it

    curl -s {admin}/filters      # the active filters; the status page is {admin}/
    curl -s {admin}/caches      # what the node would live on without the API server
    curl -s {admin}/metrics      # Prometheus metrics
    ls {modules}      # the modules: replace one
",
        direct = server.url(),
        ca = weir.path("account/ca.crt").display(),
        weir = weir.url(),
        modules = weir.modules().display(),
    );
    tokio::signal::ctrl_c().await.expect("Ctrl-C can be waited for");
}

async fn endpoints(client: &Client) -> Vec<String> {
    let list = client.json(SLICES).await;
    watcher::endpoints(&list["items"][0])
}

async fn services(client: &Client) -> Vec<String> {
    let list = client.json(SERVICES).await;
    list["items"].as_array().unwrap().iter().map(watcher::service).collect()
}

fn module(name: &str) -> Vec<u8> {
    std::fs::read(built::module(name)).unwrap()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn heading(text: &str) {
    println!("\n== {text}");
}

fn note(text: &str) {
    println!("   {text}");
}

/// Shows the command by which an operator would do what the demo does now.
fn kubectl(arguments: &str) {
    println!("   $ kubectl {arguments}");
}

fn took(what: &str, began: Instant) {
    assert!(began.elapsed() < PATIENCE);
    note(&format!("{what}: {:.0} ms.", began.elapsed().as_secs_f64() * 1000.0));
}

/// Prints the responses of the API server and of Weir to one request in two columns, with the same object on one line.
fn compare(request: &str, direct: &[String], through: &[String]) {
    println!("\n   {request}");
    println!("     {:<36} through Weir", "from the API server");
    println!("     {:<36} ------------", "-------------------");
    for item in direct {
        let name = name_of(item);
        let filtered = through.iter().find(|other| name_of(other) == name);
        println!("     {item:<36} {}", filtered.map_or("(hidden)", String::as_str));
    }
    println!();
}

/// The first word of an item.
fn name_of(item: &str) -> Option<&str> {
    item.split([':', ' ']).next()
}
