//! Another Weir of the pool that forges objects, keeps a node waiting, or floods it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use weir_apiserver::{Action, ApiServer, Recorded};
use weir_tests::built;
use weir_tests::client::{PATIENCE, streamed};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{NO_LOAD_BALANCERS, api_server, edge, service};
use weir_tests::link::Link;
use weir_tests::pki::{Authority, certificate_user, kubeconfig};
use weir_tests::registry::FakeRegistry;

const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
const NAMES: &str = "apps.openyurt.io/v1beta2";

/// A compromised Weir, which answers below `/peer` what a test says.
struct Attacker {
    server: ApiServer,
    ca: Authority,
    clients: Authority,
    node: String,
}

/// A name of a node that `edge-a` asks for this before the API server or a registry.
fn before_edge_a(what: &str) -> String {
    let rank = |node: &str| Sha256::digest(format!("{node}\n{what}"));
    let names = (0..).map(|n| format!("edge-b{n}"));
    names.into_iter().find(|name| rank(name) < rank("edge-a")).unwrap()
}

impl Attacker {
    async fn new(what: &str, answer: impl Fn(&str, &Recorded) -> Action + Send + Sync + 'static) -> Self {
        let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
        let pair = ca.server();
        let server = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).start().await.unwrap();
        server.on_request(move |request| match request.path.strip_prefix("/peer") {
            Some("/readyz") => Action::answer(200, "text/plain", "ok"),
            Some(path) => answer(path, request),
            None => Action::Serve,
        });
        Self { server, ca, clients, node: before_edge_a(what) }
    }

    /// The Weir of node `edge-a`, which knows this peer alone.
    fn victim(&self, server: &str) -> Setup {
        let node = self.clients.client("system:node:edge-a", "system:nodes");
        let kubeconfig = kubeconfig(server, self.ca.pem(), &certificate_user(&node));
        Setup::new(server)
            .file("--client-ca-file", "clients.crt", self.clients.pem())
            .file("--node-kubeconfig", "node.yaml", &kubeconfig)
            .flag("--peer", &format!("{}={}", self.node, self.server.url()))
            .flag("--node-condition", "off")
    }

    /// The requests for paths with this in them.
    fn asked(&self, part: &str) -> usize {
        self.server.requests().iter().filter(|request| request.path.contains(part)).count()
    }
}

/// Waits until a condition holds that nothing announces.
async fn eventually(what: &str, weir: &Daemon, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, holds).await.is_ok(), "{what}\n{}", weir.log_text());
}

async fn types(weir: &Daemon) -> Vec<String> {
    let list = weir.client("kubectl").json(&format!("{POOLS}?resourceVersion=0")).await;
    let pools = list["items"].as_array().unwrap().iter();
    pools.map(|pool| pool["spec"]["type"].as_str().unwrap_or("none").to_owned()).collect()
}

/// The API server's pools with other content at their own versions, or one that does not exist among them.
fn forged(server: &ApiServer, with_ghost: bool) -> Bytes {
    let mut pools = server.store().list(NAMES, "NodePool");
    match with_ghost {
        true => {
            let mut ghost: Value = pools[0].clone();
            ghost["metadata"]["name"] = json!("ghost");
            ghost["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
            ghost["spec"]["type"] = json!("Evil");
            pools.push(ghost);
        }
        false => pools[0]["spec"]["type"] = json!("Evil"),
    }
    let version = server.store().revision().to_string();
    let list = json!({
        "kind": "NodePoolList", "apiVersion": NAMES, "metadata": {"resourceVersion": version}, "items": pools,
    });
    list.to_string().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_peer_forges_is_found_and_repaired_while_the_api_server_is_up() {
    for with_ghost in [false, true] {
        let server = edge().await;
        let list = forged(&server, with_ghost);
        let attacker = Attacker::new(POOLS, move |path, request| match path {
            POOLS if request.query.contains("watch=") => streamed(stream::pending()),
            POOLS => Action::json(200, list.clone()),
            _ => Action::json(404, "{}"),
        });
        let attacker = attacker.await;
        let setup = attacker.victim(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
        let setup = setup.flag("--cache-resources", "nodepools.apps.openyurt.io").flag("--cache-check-interval", "1s");
        let weir = setup.start_ready().await;
        let seen = types(&weir).await;
        assert!(seen.contains(&"Evil".to_owned()), "the peer is believed at first: {seen:?}");
        let line = weir.logged("the watch cache differs from the API server").await;
        assert_eq!(line["fields"]["source"], attacker.node.as_str());
        eventually("the store is not repaired", &weir, async || types(&weir).await == ["Edge", "Edge"]).await;
        let asked = attacker.asked("nodepools");
        server
            .store()
            .put(json!({
                "apiVersion": NAMES, "kind": "NodePool", "metadata": {"name": "new"}, "spec": {"type": "Edge"},
            }))
            .unwrap();
        eventually("the store does not follow", &weir, async || types(&weir).await.len() == 3).await;
        assert_eq!(attacker.asked("nodepools"), asked, "the peer is not read from any more");
        let series = "weir_cache_checks_total{resource=\"nodepools.apps.openyurt.io\",result=\"different\"}";
        assert!(weir.metric(series).await >= 1.0);
        let reported = async || {
            let events = server.store().list("events.k8s.io/v1", "Event");
            events.iter().any(|event| event["reason"] == "CacheDifferent" && event["regarding"]["name"] == "edge-a")
        };
        eventually("no event", &weir, reported).await;
    }
}

/// Pushes a module to a registry. Returns its name with the digest.
async fn pushed(registry: &FakeRegistry, folder: &std::path::Path) -> String {
    std::fs::write(folder.join("registries.yaml"), registry.file()).unwrap();
    let module = built::module("discardcloudservice").display().to_string();
    let mut command = tokio::process::Command::new(built::weir());
    command.args(["push", &module, &format!("{}/team/services:1", registry.host())]).kill_on_drop(true);
    command.env("WEIR_REGISTRIES", folder.join("registries.yaml")).env("HOME", folder);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().find_map(|line| line.trim().strip_prefix("module: ")).expect(&said).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_keeps_a_module_back_delays_a_start_by_no_more_than_the_time_for_all_peers() {
    let registry = FakeRegistry::start().await;
    let folder = tempfile::tempdir().unwrap();
    let reference = pushed(&registry, folder.path()).await;
    let digest = reference.split_once('@').unwrap().1;
    let server = edge().await;
    // It is pulling, it says each time; or it sends the module byte by byte.
    let busy = Attacker::new(digest, |path, _| match path.starts_with("/modules/") {
        true => {
            let wait = tokio::time::sleep(Duration::from_millis(1200));
            Action::After(Box::pin(wait), Box::new(Action::json(503, "{}")))
        }
        false => Action::json(404, "{}"),
    });
    let trickling = Attacker::new(digest, |path, _| match path.starts_with("/modules/") {
        true => streamed(stream::repeat(Bytes::from_static(b" ")).then(|byte| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            byte
        })),
        false => Action::json(404, "{}"),
    });
    let ready = async |attacker: Attacker, cache: &str| {
        let entry = format!("filters:\n  - {{name: services, module: '{reference}', match: ['*/services']}}\n");
        let weir = attacker
            .victim(server.url())
            .filters(&entry)
            .flag("--registries", &folder.path().join("registries.yaml").display().to_string())
            .flag("--cache-dir", &folder.path().join(cache).display().to_string())
            .start_ready()
            .await;
        assert!(attacker.asked("/modules/") >= 1, "the peer was asked first");
        weir.logged("no peer has given the module in time").await;
    };
    tokio::join!(ready(busy.await, "busy"), ready(trickling.await, "trickling"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_a_peer_take_no_more_memory_than_its_share() {
    const MESSAGES: usize = 150;
    let server = edge().await;
    let (open, opened) = watch::channel(false);
    let sent = Arc::new(AtomicUsize::new(0));
    let node = before_edge_a("/api/v1/services");
    let (counter, name) = (sent.clone(), node.clone());
    let attacker = Attacker::new("/api/v1/services", move |path, _| match path {
        "/local-status" => {
            let (counter, name, mut opened) = (counter.clone(), name.clone(), opened.clone());
            let gate = stream::once(async move {
                let _ = opened.wait_for(|open| *open).await;
                Bytes::new()
            });
            streamed(gate.chain(stream::repeat_with(move || message(&name, counter.fetch_add(1, Ordering::Relaxed)))))
        }
        _ => Action::json(404, "{}"),
    });
    let attacker = attacker.await;
    assert_eq!(attacker.node, node);
    let setup = attacker.victim(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.flag("--cache-resources", "services,endpointslices.discovery.k8s.io").start_ready().await;
    let proxy = weir.client("kube-proxy");
    let mut services = proxy.watch("/api/v1/services?watch=true&resourceVersion=0").await;
    eventually("the peer is not asked", &weir, async || attacker.asked("/local-status") == 1).await;
    let before = weir.resident();
    open.send_replace(true);
    eventually("the reports are not read", &weir, async || sent.load(Ordering::Relaxed) >= MESSAGES).await;
    let during = weir.resident();
    let shown = weir.admin().json("/caches").await["localStatus"].as_array().unwrap().len();
    eprintln!(
        "{MESSAGES} reports of 2,000 pods each: {before:.1} MiB before, {during:.1} MiB with them, {shown} pods kept"
    );
    assert!((2000..=2048).contains(&shown), "{shown} pods");
    assert!(during < before + 40.0, "{before:.1} MiB before, {during:.1} MiB with them");
    server.store().put(service("late", "ClusterIP")).unwrap();
    let seen = async { while services.next_named().await != "ADDED late" {} };
    tokio::time::timeout(PATIENCE, seen).await.expect("kube-proxy is served");
}

/// A report of 2,000 pods that no earlier one has named.
fn message(node: &str, number: usize) -> Bytes {
    let pod = |n: usize| {
        (format!("{number:08}-{n:08}-{}", "x".repeat(40)), json!({"addresses": ["10.0.0.1"], "ready": true}))
    };
    let pods: serde_json::Map<_, _> = (0..2000).map(pod).collect();
    let line = json!({"node": node, "bootId": null, "version": number, "pods": pods});
    format!("{line}\n").into()
}

/// Lines of a report: the next one is sent when a test says it, and signs of life meanwhile.
fn lines(node: &str, said: &watch::Sender<Value>) -> Action {
    let (node, mut said) = (node.to_owned(), said.subscribe());
    said.mark_changed();
    let lines = stream::unfold((said, 0), move |(mut said, version)| {
        let node = node.clone();
        async move {
            let is_new = tokio::time::timeout(Duration::from_millis(300), said.changed()).await.is_ok();
            let version = version + u64::from(is_new);
            let mut line = json!({"node": node, "bootId": null, "version": version});
            if is_new {
                line["pods"] = said.borrow_and_update().clone();
            }
            Some((Bytes::from(format!("{line}\n")), (said, version)))
        }
    });
    streamed(lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_peer_reports_of_a_pod_does_not_replace_what_another_one_reports_of_it() {
    const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
    const OWNER: &str = "edge-owner";
    let server = edge().await;
    let target = json!({"kind": "Pod", "namespace": "default", "name": "web", "uid": "u-1"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "only", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": OWNER, "targetRef": target, "conditions": {"ready": true}}],
        "ports": [{"port": 80}],
    });
    server.store().put(slice).unwrap();
    let pod = |address: &str| json!({"u-1": {"addresses": [address], "ready": true}});
    let (of_owner, of_other) = (watch::channel(pod("10.1.0.2")).0, watch::channel(json!({})).0);
    let (node, said) = (before_edge_a("/api/v1/services"), of_other.clone());
    let other = Attacker::new("/api/v1/services", move |path, _| match path {
        "/local-status" => lines(&node, &said),
        _ => Action::json(404, "{}"),
    });
    let other = other.await;
    let pair = other.ca.server();
    let owner = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).start().await.unwrap();
    let said = of_owner.clone();
    owner.on_request(move |request| match request.path.as_str() {
        "/peer/readyz" => Action::answer(200, "text/plain", "ok"),
        "/peer/local-status" => lines(OWNER, &said),
        _ => Action::json(404, "{}"),
    });
    let mut link = Link::to(&server).await;
    let peers = format!("{OWNER}={},{}={}", owner.url(), other.node, other.server.url());
    let setup = other.victim(&link.url()).flag("--peer", &peers).filters("filters: []");
    let weir = setup.flag("--cache-resources", "services,endpointslices.discovery.k8s.io").start_ready().await;
    let proxy = weir.client("kube-proxy");
    let shows = async |address: &str| {
        let list = proxy.json(SLICES).await;
        let slices = list["items"].as_array().unwrap().iter();
        let mut only = slices.filter(|slice| slice["metadata"]["name"] == "only");
        only.next().unwrap()["endpoints"][0]["addresses"] == json!([address])
    };
    assert!(shows("10.1.0.1").await);
    link.down().await;
    weir.logged("the API server is down").await;
    eventually("its own node's report counts", &weir, async || shows("10.1.0.2").await).await;
    let reports = async || weir.admin().json("/caches").await["localStatus"].as_array().unwrap().len();
    assert_eq!(reports().await, 1);
    of_other.send_replace(pod("10.6.6.6"));
    eventually("the other report is taken", &weir, async || reports().await == 2).await;
    assert!(shows("10.1.0.2").await, "it is not the node's of the pod");
    // Neither does the other peer take it back.
    of_other.send_replace(json!({"u-2": {"addresses": ["10.6.6.7"], "ready": true}}));
    eventually("its next report is taken", &weir, async || reports().await == 3).await;
    assert!(shows("10.1.0.2").await);
    of_owner.send_replace(pod("10.1.0.3"));
    eventually("its own node's next report counts", &weir, async || shows("10.1.0.3").await).await;
}
