//! What kubelet reports of its pods while the API server cannot be reached: endpoints lead to the pods' new addresses.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, Events, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{api_server, grant_kubelets};
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::pki::Authority;
use weir_tests::until;

use super::peers::Pool;

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
const ENDPOINTS: &str = "/api/v1/endpoints?resourceVersion=0";
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-a&resourceVersion=0";
const POD: &str = "/api/v1/namespaces/default/pods/web-a";
/// The addresses before and after the restart of the node.
const OLD: &str = "10.244.0.2";
const NEW: &str = "10.244.0.103";

/// A node with its kubelet, whose link to the API server can be cut.
struct Site {
    server: ApiServer,
    link: Link,
    cache: tempfile::TempDir,
    ca: Authority,
    clients: Authority,
    weir: Option<Daemon>,
}

impl Site {
    async fn new() -> Self {
        let server = api_server().start().await.unwrap();
        grant_kubelets(&server);
        for object in objects() {
            server.store().put(object).unwrap();
        }
        let link = Link::to(&server).await;
        let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
        let mut site = Self { server, link, cache: tempfile::tempdir().unwrap(), ca, clients, weir: None };
        site.start("boot-1", |setup| setup).await;
        site.kubelet().await.json(PODS).await;
        for path in [SLICES, ENDPOINTS] {
            site.weir().client("kube-proxy").json(path).await;
        }
        // kubelet reports its pods when it starts.
        assert_eq!(site.report(json!({"hostIP": "10.0.0.1"})).await, 200);
        site
    }

    async fn start(&mut self, boot: &str, more: impl FnOnce(Setup) -> Setup) {
        let setup = Setup::new(&self.link.url())
            .filters("filters: []")
            .on_disk(self.cache.path())
            .tls(&self.ca.server())
            .file("--client-ca-file", "clients.crt", self.clients.pem())
            .file("--boot-id-file", "boot-id", &format!("{boot}\n"));
        self.weir = Some(more(setup).start_ready().await);
    }

    fn weir(&self) -> &Daemon {
        self.weir.as_ref().unwrap()
    }

    async fn stop(&mut self) {
        assert_eq!(self.weir.take().unwrap().stop().await, Some(0));
    }

    async fn cut(&mut self) {
        self.link.down().await;
        self.weir().logged("the API server is down").await;
    }

    /// A client with the certificate of a node.
    async fn node(&self, component: &str, node: &str) -> Client {
        let pair = self.clients.client(&format!("system:node:{node}"), "system:nodes");
        Client::trusting(&self.weir().secure_url().await, component, Some(self.ca.pem()), Some(&pair))
    }

    async fn kubelet(&self) -> Client {
        self.node("kubelet", "edge-a").await
    }

    /// kubelet's patch of the pod's status. Returns the code of the answer.
    async fn report(&self, status: Value) -> u16 {
        let kubelet = self.kubelet().await;
        assert_eq!(kubelet.get(POD).await.status, 200);
        patch(&kubelet, "u-a", status).await
    }

    /// Waits until the disk has what the API server has of all that is cached.
    async fn on_disk(&self) {
        let is_whole = |store: &Value| {
            !store["resourceVersion"].is_null() && store["resourceVersion"] == store["disk"]["resourceVersion"]
        };
        let admin = self.weir().admin();
        until!(admin.json("/caches").await["stores"].as_array().unwrap().iter().all(is_whole));
    }

    /// The endpoints of a client: addresses, and whether they are ready.
    async fn shown(&self) -> Vec<(String, bool)> {
        addresses(&self.weir().client("kube-proxy").json(SLICES).await["items"][0])
    }

    async fn watch(&self) -> Events {
        list_and_watch(&self.weir().client("kube-proxy"), SLICES).await.1
    }

    async fn states(&self) -> Vec<String> {
        let caches = self.weir().admin().json("/caches").await;
        let pods = caches["localStatus"].as_array().unwrap();
        pods.iter().map(|pod| format!("{} {}", pod["name"].as_str().unwrap(), pod["state"].as_str().unwrap())).collect()
    }
}

/// The objects of a list, and a watch from then on.
async fn list_and_watch(client: &Client, path: &str) -> (Vec<Value>, Events) {
    let list = client.json(path).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = path.replace("resourceVersion=0", &format!("watch=true&resourceVersion={version}"));
    let events = client.watch(&path).await;
    (list["items"].as_array().unwrap().clone(), events)
}

/// Waits until a client sees an object that satisfies the condition.
async fn sees(client: &Client, path: &str, condition: impl Fn(&Value) -> bool) {
    let (mut shown, mut events) = list_and_watch(client, path).await;
    while !shown.iter().any(&condition) {
        shown = vec![events.next_change().await["object"].take()];
    }
}

async fn patch(client: &Client, uid: &str, status: Value) -> u16 {
    patch_at(client, POD, uid, status).await
}

async fn patch_at(client: &Client, pod: &str, uid: &str, status: Value) -> u16 {
    let body = json!({"metadata": {"uid": uid}, "status": status}).to_string();
    let client = client.clone().with("content-type", "application/strategic-merge-patch+json");
    whole(client.send(Method::PATCH, &format!("{pod}/status"), body).await).await.unwrap().status.as_u16()
}

/// As kubelet sends it after a restart of the node.
fn moved(ready: &str) -> Value {
    json!({
        "$setElementOrder/podIPs": [{"ip": NEW}], "podIP": NEW,
        "podIPs": [{"ip": NEW}, {"$patch": "delete", "ip": OLD}],
        "conditions": [{"type": "Ready", "status": ready}],
    })
}

fn pod(name: &str, uid: &str, ip: &str, host_network: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"nodeName": "edge-a", "hostNetwork": host_network, "containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn objects() -> Vec<Value> {
    let pods = [
        ("web-a", "u-a", "edge-a", OLD),
        ("web-b", "u-b", "edge-b", "10.244.1.2"),
        ("dns", "u-c", "edge-a", "10.0.0.1"),
    ];
    let target = |name: &str, uid: &str| json!({"kind": "Pod", "namespace": "default", "name": name, "uid": uid});
    let endpoint = |&(name, uid, node, ip): &(&str, &str, &str, &str)| {
        json!({
            "addresses": [ip], "nodeName": node, "targetRef": target(name, uid),
            "conditions": {"ready": true, "serving": true, "terminating": false},
        })
    };
    let address = |&(name, uid, node, ip): &(&str, &str, &str, &str)| json!({"ip": ip, "nodeName": node, "targetRef": target(name, uid)});
    vec![
        pod("web-a", "u-a", OLD, false),
        pod("dns", "u-c", "10.0.0.1", true),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(), "ports": [{"port": 80}],
        }),
        json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "default"},
            "subsets": [{"addresses": pods.iter().map(address).collect::<Vec<_>>(), "ports": [{"port": 80}]}],
        }),
    ]
}

fn edit_slice(server: &ApiServer, edit: impl FnOnce(&mut Value)) {
    server.store().edit("discovery.k8s.io/v1", "EndpointSlice", "default", "web-1", edit);
}

fn addresses(slice: &Value) -> Vec<(String, bool)> {
    let endpoints = slice["endpoints"].as_array().unwrap();
    let one = |endpoint: &Value| {
        (endpoint["addresses"][0].as_str().unwrap().to_owned(), endpoint["conditions"]["ready"].as_bool().unwrap())
    };
    endpoints.iter().map(one).collect()
}

/// What clients see when the pod of this node has this address.
fn all(ip: &str, ready: bool) -> Vec<(String, bool)> {
    vec![(ip.to_owned(), ready), ("10.244.1.2".to_owned(), true), ("10.0.0.1".to_owned(), true)]
}

#[tokio::test]
async fn a_refused_report_reaches_watchers_as_an_event_and_outlives_the_daemon() {
    let mut site = Site::new().await;
    let mut events = site.watch().await;
    site.cut().await;
    assert_eq!(site.report(moved("False")).await, 503);
    let event = events.next_change().await;
    assert_eq!((&event["type"], addresses(&event["object"])), (&json!("MODIFIED"), all(NEW, false)));
    assert_eq!(site.report(moved("True")).await, 503);
    let event = events.next_change().await;
    assert_eq!((&event["type"], addresses(&event["object"])), (&json!("MODIFIED"), all(NEW, true)));
    let endpoints = site.weir().client("kube-proxy").json(ENDPOINTS).await;
    let ips: Vec<_> = endpoints["items"][0]["subsets"][0]["addresses"].as_array().unwrap().iter().collect();
    assert_eq!(
        ips.iter().map(|address| address["ip"].as_str().unwrap()).collect::<Vec<_>>(),
        ["10.0.0.1", NEW, "10.244.1.2"]
    );
    // An explanation has it as the first filter.
    let slice = "/explain/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1?component=kube-proxy";
    let explained = site.weir().admin().json(slice).await;
    assert_eq!((&explained["filters"][0]["filter"], &explained["outcome"]), (&json!("local-status"), &json!("edited")));
    assert!(explained["filters"][0]["diff"].as_str().unwrap().contains(NEW));

    site.stop().await;
    site.start("boot-1", |setup| setup).await;
    assert_eq!(site.shown().await, all(NEW, true));
    assert_eq!(site.states().await, ["web-a reported"]);
    assert_eq!(site.weir().metric("weir_local_status_pods{state=\"reported\"}").await, 1.0);
}

#[tokio::test]
async fn kubelet_reads_what_the_api_server_has_and_others_what_kubelet_reported() {
    let mut site = Site::new().await;
    let cni = site.node("cni", "edge-a").await;
    let (_, mut events) = list_and_watch(&cni, PODS).await;
    site.cut().await;
    assert_eq!(site.report(moved("True")).await, 503);
    let address = |pod: &Value| pod["status"]["podIP"].as_str().unwrap().to_owned();
    assert_eq!(address(&events.next_change().await["object"]), NEW);
    assert_eq!(address(&cni.json(POD).await), NEW);
    assert_eq!(address(&site.kubelet().await.json(POD).await), OLD);
}

#[tokio::test]
async fn after_a_restart_of_the_node_its_endpoints_are_not_ready_until_kubelet_reports_them() {
    let mut site = Site::new().await;
    site.stop().await;
    site.link.down().await;
    site.start("boot-2", |setup| setup).await;
    assert_eq!(site.shown().await, all(OLD, false), "the pod on the host network keeps its address");
    // As long as kubelet says nothing, further restarts of the daemon change nothing.
    for _ in 0..5 {
        assert_eq!(site.states().await, ["web-a awaited"]);
        site.stop().await;
        site.start("boot-2", |setup| setup).await;
        assert_eq!(site.shown().await, all(OLD, false));
    }
    site.kubelet().await.json(PODS).await;
    assert_eq!(site.report(moved("True")).await, 503);
    assert_eq!(site.shown().await, all(NEW, true));
    // A crash of the daemon is no restart of the node.
    site.stop().await;
    site.start("boot-2", |setup| setup).await;
    assert_eq!(site.shown().await, all(NEW, true));
}

/// Kills and full disks lose the record of kubelet's report to the API server. The pods on disk still show that report.
#[tokio::test]
async fn an_earlier_report_on_disk_does_not_replace_a_later_one_to_the_api_server() {
    let Some(machine) = Machine::new() else { return };
    let mut site = Site::new().await;
    let cache = site.cache.path().to_owned();
    let file = cache.join("watch-cache.redb");
    site.stop().await;
    site.link.down().await;
    site.start("boot-2", |setup| machine.run(setup, &cache)).await;
    assert_eq!(site.states().await, ["web-a awaited"]);
    site.stop().await;
    let awaited = std::fs::read(&file).unwrap();
    site.start("boot-2", |setup| machine.run(setup, &cache)).await;
    machine.put_disk_full(true);
    site.link.up().await;
    site.weir().logged("the API server is up again").await;
    site.kubelet().await.json(PODS).await;
    assert_eq!(site.report(moved("True")).await, 200);
    edit_slice(&site.server, |slice| slice["endpoints"][0]["addresses"] = json!([NEW]));
    sees(&site.weir().client("kube-proxy"), SLICES, |slice| addresses(slice) == all(NEW, true)).await;

    // The next daemon reads what the disk had before it was full. Later there is room, for the stores.
    site.weir.take().unwrap().kill().await;
    site.start("boot-2", |setup| machine.run(setup, &cache)).await;
    site.kubelet().await.json(PODS).await;
    site.weir().client("kube-proxy").json(SLICES).await;
    machine.put_disk_full(false);
    tokio::time::timeout(PATIENCE, site.on_disk()).await.expect("the disk is used again");
    site.cut().await;
    site.weir.take().unwrap().kill().await;
    site.start("boot-2", |setup| setup).await;
    assert_eq!(site.shown().await, all(NEW, true), "{:?}", site.states().await);

    // Now the pods on disk are as old as the report: the API server has the later status.
    site.stop().await;
    std::fs::write(&file, awaited).unwrap();
    site.link.up().await;
    site.start("boot-2", |setup| setup).await;
    site.kubelet().await.json(PODS).await;
    sees(&site.weir().client("kube-proxy"), SLICES, |slice| addresses(slice) == all(NEW, true)).await;
    let line = site.weir().logged("the API server's objects of a pod are shown again").await;
    assert_eq!(line["fields"]["agreed"], true, "{line}");
}

#[tokio::test]
async fn the_api_server_takes_over_without_a_step_back() {
    let mut site = Site::new().await;
    let mut events = site.watch().await;
    site.cut().await;
    assert_eq!(site.report(moved("True")).await, 503);
    assert_eq!(addresses(&events.next_change().await["object"]), all(NEW, true));
    site.link.up().await;
    site.weir().logged("the API server is up again").await;
    // The controllers of the cloud still have the old address, and change something else.
    edit_slice(&site.server, |slice| slice["metadata"]["labels"]["n"] = json!("1"));
    let event = events.next_change().await;
    assert_eq!(addresses(&event["object"]), all(NEW, true), "{event}");
    assert_eq!(site.report(moved("True")).await, 200);
    // Then they follow.
    edit_slice(&site.server, |slice| slice["endpoints"][0]["addresses"] = json!([NEW]));
    site.server.store().edit("v1", "Endpoints", "default", "web", |endpoints| {
        endpoints["subsets"][0]["addresses"][0]["ip"] = json!(NEW);
    });
    let event = events.next_change().await;
    assert_eq!(addresses(&event["object"]), all(NEW, true), "{event}");
    site.weir().logged("the API server's objects of a pod are shown again").await;
    assert_eq!(site.states().await, Vec::<String>::new());
    // What the API server says now counts.
    edit_slice(&site.server, |slice| slice["endpoints"][0]["addresses"] = json!(["10.244.0.4"]));
    let event = events.next_change().await;
    assert_eq!(addresses(&event["object"]), all("10.244.0.4", true), "{event}");
}

#[tokio::test]
async fn a_pod_that_was_deleted_meanwhile_is_forgotten() {
    let mut site = Site::new().await;
    site.cut().await;
    assert_eq!(site.report(moved("True")).await, 503);
    site.server.store().delete("v1", "Pod", "default", "web-a").unwrap();
    site.link.up().await;
    site.weir().logged("the API server's objects of a pod are shown again").await;
    // A view applies it to its objects a moment later.
    sees(&site.weir().client("kube-proxy"), SLICES, |slice| addresses(slice) == all(OLD, true)).await;
}

#[tokio::test]
async fn only_valid_reports_of_this_nodes_kubelet_about_its_own_pods_count() {
    let mut site = Site::new().await;
    site.cut().await;
    let kubelet = site.kubelet().await;
    let stranger = site.node("kubelet", "edge-b").await;
    let anonymous = site.weir().client("kubelet");
    for (client, uid, status) in [
        (&stranger, "u-a", moved("True")),
        (&anonymous, "u-a", moved("True")),
        (&kubelet, "u-old", moved("True")),
        (&kubelet, "", moved("True")),
        (&kubelet, "u-a", json!({"podIP": "10.244.0.300"})),
        (&kubelet, "u-a", json!({"podIPs": [{"ip": "web.example"}]})),
        (&kubelet, "u-a", json!({"podIP": NEW, "message": "x".repeat(4 << 20)})),
    ] {
        assert_eq!(patch(client, uid, status).await, 503);
        assert_eq!((site.states().await, site.shown().await), (vec![], all(OLD, true)));
    }
    let client = kubelet.clone().with("content-type", "application/strategic-merge-patch+json");
    let valid = json!({"metadata": {"uid": "u-a"}, "status": moved("True")}).to_string();
    for (query, body) in [("", r#"{"metadata":{"uid":"u-a"}"#), ("?dryRun=All", &valid)] {
        let answer = client.send(Method::PATCH, &format!("{POD}/status{query}"), body.to_owned()).await;
        assert_eq!(whole(answer).await.unwrap().status, 503);
        assert_eq!((site.states().await, site.shown().await), (vec![], all(OLD, true)));
    }
    site.weir().logged("kubelet's patch of a pod's status is not valid").await;
    let answer = client.send(Method::PATCH, &format!("{POD}/status?timeout=10s"), valid).await;
    assert_eq!(whole(answer).await.unwrap().status, 503);
    sees(&site.weir().client("kube-proxy"), SLICES, |slice| addresses(slice) == all(NEW, true)).await;
}

#[tokio::test]
async fn the_flag_turns_it_off() {
    let mut site = Site::new().await;
    site.stop().await;
    site.start("boot-1", |setup| setup.flag("--local-status", "off")).await;
    site.kubelet().await.json(PODS).await;
    site.cut().await;
    assert_eq!(site.report(moved("True")).await, 503);
    assert_eq!(site.shown().await, all(OLD, true));
    assert_eq!(site.weir().admin().json("/caches").await["localStatus"], Value::Null);
}

#[tokio::test]
async fn without_a_boot_id_nothing_is_awaited() {
    let mut site = Site::new().await;
    site.stop().await;
    site.link.down().await;
    let missing = Path::new("/nonexistent/boot-id").display().to_string();
    site.start("boot-2", |setup| setup.flag("--boot-id-file", &missing)).await;
    site.weir().logged("the boot ID of the node is not readable").await;
    assert_eq!(site.shown().await, all(OLD, true));
}

/// Two nodes of a pool. Pod `web-b` is on the second one.
struct Neighbours {
    server: ApiServer,
    links: [Link; 2],
    pool: Pool,
    weirs: [Option<Daemon>; 2],
    caches: [tempfile::TempDir; 2],
}

const POD_B: &str = "/api/v1/namespaces/default/pods/web-b";

impl Neighbours {
    async fn new(number: u32, second: impl Fn(Setup) -> Setup) -> Self {
        Self::with(number, |_, setup| setup, second).await
    }

    async fn with(number: u32, first: impl Fn(&Pool, Setup) -> Setup, second: impl Fn(Setup) -> Setup) -> Self {
        let server = api_server().start().await.unwrap();
        grant_kubelets(&server);
        let mut pod_b = pod("web-b", "u-b", "10.244.1.2", false);
        pod_b["spec"]["nodeName"] = json!("edge-b");
        for object in objects().into_iter().chain([pod_b]) {
            server.store().put(object).unwrap();
        }
        let links = [Link::to(&server).await, Link::to(&server).await];
        let caches = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut site = Self { server, links, pool: Pool::new(number), weirs: [None, None], caches };
        site.start(0, first).await;
        site.start(1, |_, setup| second(setup)).await;
        site.kubelet_b().json(&PODS.replace("edge-a", "edge-b")).await;
        assert_eq!(patch_at(&site.kubelet_b(), POD_B, "u-b", json!({"hostIP": "10.0.0.2"})).await, 200);
        site.proxy_a().json(SLICES).await;
        site
    }

    async fn start(&mut self, index: usize, more: impl FnOnce(&Pool, Setup) -> Setup) {
        let setup = self.pool.setup(&self.links[index].url(), index);
        let setup = setup.filters("filters: []").on_disk(self.caches[index].path()).flag("--peer-silence", "1s");
        self.weirs[index] = Some(more(&self.pool, setup).start_ready().await);
    }

    fn kubelet_b(&self) -> Client {
        self.pool.component(1, "kubelet", "system:node:edge-b", "system:nodes")
    }

    fn proxy_a(&self) -> Client {
        self.weirs[0].as_ref().unwrap().client("kube-proxy")
    }

    async fn cut(&mut self) {
        for (link, weir) in self.links.iter_mut().zip(&self.weirs) {
            link.down().await;
            weir.as_ref().unwrap().logged("the API server is down").await;
        }
    }

    /// What kube-proxy on the first node gets of the pod on the second one, until it is this.
    async fn wait_for(&self, wanted: (&str, bool)) {
        sees(&self.proxy_a(), SLICES, |slice| addresses(slice)[1] == (wanted.0.to_owned(), wanted.1)).await;
    }
}

fn moved_b() -> Value {
    json!({"podIP": "10.244.1.103", "podIPs": [{"ip": "10.244.1.103"}, {"$patch": "delete", "ip": "10.244.1.2"}]})
}

#[tokio::test]
async fn neighbours_exchange_the_addresses_of_their_pods() {
    let mut site = Neighbours::new(40, |setup| setup).await;
    site.cut().await;
    assert_eq!(patch_at(&site.kubelet_b(), POD_B, "u-b", moved_b()).await, 503);
    site.wait_for(("10.244.1.103", true)).await;
    for link in &mut site.links {
        link.up().await;
    }
    for weir in site.weirs.iter().flatten() {
        weir.logged("the API server is up again").await;
    }
    assert_eq!(patch_at(&site.kubelet_b(), POD_B, "u-b", moved_b()).await, 200);
    let (_, mut events) = list_and_watch(&site.proxy_a(), SLICES).await;
    edit_slice(&site.server, |slice| slice["endpoints"][1]["addresses"] = json!(["10.244.1.103"]));
    site.server.store().edit("v1", "Endpoints", "default", "web", |endpoints| {
        endpoints["subsets"][0]["addresses"][1]["ip"] = json!("10.244.1.103");
    });
    site.weirs[0].as_ref().unwrap().logged("the API server's objects of a pod are shown again").await;
    edit_slice(&site.server, |slice| slice["endpoints"][1]["addresses"] = json!(["10.244.1.4"]));
    loop {
        let event = events.next_change().await;
        match &addresses(&event["object"])[1] {
            (address, true) if address == "10.244.1.103" => {}
            (address, true) if address == "10.244.1.4" => break,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_silent_peers_endpoints_are_not_ready_until_it_returns() {
    let mut site = Neighbours::new(41, |setup| setup).await;
    site.cut().await;
    site.wait_for(("10.244.1.2", true)).await;
    site.weirs[1].take().unwrap().kill().await;
    site.wait_for(("10.244.1.2", false)).await;
    let shown = site.proxy_a().json(SLICES).await;
    assert_eq!(addresses(&shown["items"][0])[0], (OLD.to_owned(), true), "a pod of this node is not concerned");
    site.start(1, |_, setup| setup).await;
    site.wait_for(("10.244.1.2", true)).await;
}

#[tokio::test]
async fn a_peer_that_knows_no_reports_or_speaks_for_another_node_changes_nothing() {
    let silent = Neighbours::new(42, |setup| setup.flag("--local-status", "off")).await;
    let takes_it_for_another = |pool: &Pool, setup: Setup| setup.flag("--peer", &format!("edge-x={}", pool.url(1)));
    let mistaken = Neighbours::with(43, takes_it_for_another, |setup| setup).await;
    for (mut site, log) in [(silent, ""), (mistaken, "it is about node")] {
        site.cut().await;
        assert_eq!(patch_at(&site.kubelet_b(), POD_B, "u-b", moved_b()).await, 503);
        if !log.is_empty() {
            site.weirs[0].as_ref().unwrap().logged(log).await;
        }
        let shown = addresses(&site.proxy_a().json(SLICES).await["items"][0]);
        assert_eq!(shown[1].0, "10.244.1.2", "{log}");
    }
}
