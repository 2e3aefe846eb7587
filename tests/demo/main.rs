//! `make demo`: a small edge cluster in memory, Weir in front of it on one of its nodes, and a filter module that is
//! replaced while Weir runs. All output comes from real requests to a real daemon.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an interactive demo: a panic is the error report"
)]

use std::time::Instant;

use serde_json::Value;
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const SERVICES: &str = "/api/v1/services";

/// Two filters. The demo replaces the module of the second one, `services.wasm`.
const FILTERS: &str = "\
filters:
  - name: servicetopology
    module: servicetopology.wasm
  - name: services
    module: services.wasm
    match: [kube-proxy/services]
";

#[tokio::main]
async fn main() {
    let ends = std::env::args().any(|argument| argument == "--end");
    heading("1. A Kubernetes API server, in memory, with the objects of a small edge cluster");
    let server = ApiServer::builder().start().await.expect("the API server starts");
    server.store().load(include_str!("cluster.yaml")).expect("the cluster loads");
    note(&format!("URL: {}", server.url()));
    note("Nodes edge-a and edge-b belong to node pool hangzhou, node edge-c to pool beijing.");

    heading("2. Weir on node edge-a, between kube-proxy and the API server");
    let weir = Setup::new(server.url())
        .filters(FILTERS)
        .bundled("servicetopology")
        .module("services", &module("nodeportisolation"))
        .start_ready()
        .await;
    note(&format!("Command: weir serve --server {} --node-name edge-a ...   (pid {})", server.url(), weir.id()));
    note(&format!("URL: {}", weir.url()));
    note("The demo now sends each request twice, as kube-proxy: to the API server and to Weir.");

    let direct = Client::new(server.url(), "kube-proxy");
    let through = weir.client("kube-proxy");
    heading("3. Filter servicetopology: kube-proxy gets the endpoints of its own node pool only");
    note("Service default/web has the annotation openyurt.io/topologyKeys: openyurt.io/nodepool.");
    compare("GET endpointslices, slice of default/web", &endpoints(&direct).await, &endpoints(&through).await);
    note("Weir removes the endpoint on edge-c, because that node is in another pool.");

    heading("4. Filter nodeportisolation: node ports are open in selected pools only");
    note("Service dashboard has the annotation nodeport.openyurt.io/listen: beijing.");
    compare("GET services", &services(&direct).await, &services(&through).await);
    note("In pool hangzhou dashboard becomes a ClusterIP Service, so edge-a opens no node port for it.");

    heading("5. Replace a module while Weir runs: nodeportisolation by discardcloudservice");
    let list = through.json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = through.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    note("kube-proxy has an open watch of the Services.");
    note(&format!("Command: mv discardcloudservice.wasm {}", weir.modules().join("services.wasm").display()));
    let from = weir.log_length();
    let began = Instant::now();
    weir.put_module("services", &module("discardcloudservice"));
    weir.logged_after(from, "filter set activated").await;
    note(&format!(
        "The new module is active after {:.0} ms, without a restart.",
        began.elapsed().as_secs_f64() * 1000.0
    ));
    let event = watch.next().await;
    note(&format!(
        "The open watch ends with {} {} (Gone), so kube-proxy lists again:",
        event["type"].as_str().unwrap(),
        event["object"]["code"]
    ));
    compare("GET services", &services(&direct).await, &services(&through).await);
    note("The new module hides shop, a LoadBalancer Service of the cloud. It does not edit dashboard.");

    heading("6. Replace the module by an invalid file");
    let from = weir.log_length();
    weir.put_module("services", b"not WebAssembly");
    let (_, line) = weir.logged_after(from, "configuration refused").await;
    let field = |name: &str| line["fields"][name].as_str().unwrap().to_owned();
    note(&format!("Weir's log: {}: {}", field("message"), field("reason")));
    compare("GET services", &services(&direct).await, &services(&through).await);
    note("The responses stay the same: the last valid filters stay active.");

    if ends {
        heading("The demo is over.");
        assert_eq!(weir.stop().await, Some(0), "Weir stops cleanly");
        return;
    }
    stay(&server, &weir).await;
}

async fn stay(server: &ApiServer, weir: &Daemon) {
    let admin = weir.admin_url();
    heading("The API server and Weir keep running for your own requests. Ctrl-C ends the demo.");
    println!(
        "
    kubectl --server {direct} get services -A                      # the API server, without Weir
    kubectl --server {weir} get services -A                      # through Weir, as kubectl: no filter matches kubectl
    curl -s -A kube-proxy/demo {weir}{SERVICES}        # through Weir, as kube-proxy: filtered
    curl -s -A kube-proxy/demo '{weir}{SLICES}?watch=true'          # a filtered watch

    curl -s {admin}/filters      # the active filters
    curl -s {admin}/metrics      # Prometheus metrics
    ls {modules}      # the modules: replace one
    $EDITOR {config}      # the configuration: change it
",
        direct = server.url(),
        weir = weir.url(),
        modules = weir.modules().display(),
        config = weir.path("filters-config.yaml").display(),
    );
    tokio::signal::ctrl_c().await.expect("Ctrl-C can be waited for");
}

async fn endpoints(client: &Client) -> Vec<String> {
    let list = client.json(SLICES).await;
    let endpoints = list["items"][0]["endpoints"].as_array().unwrap();
    let text = |endpoint: &Value| {
        format!("{} on {}", endpoint["addresses"][0].as_str().unwrap(), endpoint["nodeName"].as_str().unwrap())
    };
    endpoints.iter().map(text).collect()
}

async fn services(client: &Client) -> Vec<String> {
    let list = client.json(SERVICES).await;
    let text = |service: &Value| {
        let port = &service["spec"]["ports"][0]["nodePort"];
        let port = if port.is_null() { String::new() } else { format!(", node port {port}") };
        format!(
            "{}: {}{port}",
            service["metadata"]["name"].as_str().unwrap(),
            service["spec"]["type"].as_str().unwrap()
        )
    };
    list["items"].as_array().unwrap().iter().map(text).collect()
}

fn module(name: &str) -> Vec<u8> {
    std::fs::read(built::module(name)).unwrap()
}

fn heading(text: &str) {
    println!("\n== {text}");
}

fn note(text: &str) {
    println!("   {text}");
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
