//! `make demo`: a small edge cluster in memory, Weir in front of it on one of its nodes, and a filter module that is
//! replaced while Weir runs. All output comes from real requests to a real daemon.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for people to watch: a panic is the report"
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
    say("1. A Kubernetes API server, in memory, with a small edge cluster");
    let server = ApiServer::builder().start().await.expect("the API server starts");
    server.store().load(include_str!("cluster.yaml")).expect("the cluster loads");
    tell(&format!("it listens on {}", server.url()));
    tell("nodes edge-a and edge-b are in node pool hangzhou, edge-c is in beijing");

    say("2. Weir, on node edge-a, between kube-proxy and that API server");
    let weir = Setup::new(server.url())
        .filters(FILTERS)
        .bundled("servicetopology")
        .module("services", &module("nodeportisolation"))
        .start_ready()
        .await;
    tell(&format!(
        "weir serve --server {} --node-name edge-a   (pid {}) listens on {}",
        server.url(),
        weir.id(),
        weir.url()
    ));

    let direct = Client::new(server.url(), "kube-proxy");
    let through = weir.client("kube-proxy");
    say("3. What kube-proxy sees of EndpointSlice default/web, whose Service asks for openyurt.io/nodepool");
    compare("GET endpointslices", &endpoints(&direct).await, &endpoints(&through).await);
    tell("the endpoint on edge-c is in another pool: kube-proxy on edge-a does not see it");

    say("4. What it sees of the Services");
    compare("GET services", &services(&direct).await, &services(&through).await);
    tell("dashboard listens on node ports in pool beijing only: here it is a ClusterIP Service without one");

    say("5. A new module is dropped into place while kube-proxy watches");
    let list = through.json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = through.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    tell(&format!("mv discardcloudservice.wasm {}", weir.modules().join("services.wasm").display()));
    let from = weir.log_length();
    let began = Instant::now();
    weir.put_module("services", &module("discardcloudservice"));
    weir.logged_after(from, "a new set of filters is in force").await;
    tell(&format!("in force {:.0} ms after its rename; nothing was restarted", began.elapsed().as_secs_f64() * 1000.0));
    let event = watch.next().await;
    tell(&format!(
        "kube-proxy's open watch was told {} {}: list again",
        event["type"].as_str().unwrap(),
        event["object"]["code"]
    ));
    compare("GET services", &services(&direct).await, &services(&through).await);
    tell("shop is a LoadBalancer of the cloud side: this module hides it from edge nodes");

    say("6. A module that is broken");
    let from = weir.log_length();
    weir.put_module("services", b"this is no WebAssembly");
    let (_, line) = weir.logged_after(from, "configuration refused").await;
    tell(&format!("Weir's log: {}", line["fields"]["message"].as_str().unwrap()));
    compare("GET services", &services(&direct).await, &services(&through).await);

    if ends {
        say("The demo is over.");
        assert_eq!(weir.stop().await, Some(0), "Weir stops cleanly");
        return;
    }
    stay(&server, &weir).await;
}

async fn stay(server: &ApiServer, weir: &Daemon) {
    let admin = weir.admin_url();
    say("Both sides stay up: try them. Ctrl-C ends the demo.");
    println!(
        "
    kubectl --server {direct} get services -A                      # the API server itself
    kubectl --server {weir} get services -A                      # through Weir, as kubectl: no filter matches it
    curl -s -A kube-proxy/demo {weir}{SERVICES}        # through Weir, as kube-proxy
    curl -s -A kube-proxy/demo '{weir}{SLICES}?watch=true'

    curl -s {admin}/filters      # what is in force
    curl -s {admin}/metrics
    ls {modules}      # drop modules here
    $EDITOR {config}
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

fn say(text: &str) {
    println!("\n== {text}");
}

fn tell(text: &str) {
    println!("   {text}");
}

/// Prints the responses to one request in two columns.
fn compare(request: &str, direct: &[String], through: &[String]) {
    println!("   {request:<38} through Weir");
    for n in 0..direct.len().max(through.len()) {
        let at = |side: &[String]| side.get(n).cloned().unwrap_or_default();
        println!("     {:<36} {}", at(direct), at(through));
    }
}
