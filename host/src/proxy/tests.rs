//! Tests of the proxy inside the process, against the in-memory API server, with a chain that is a function. They cover what
//! `tests/behaviour` cannot control from outside the daemon.

mod cached;
mod caches;
mod conversions;
mod disk;
mod filtered;
mod full_port;
mod identity;
mod offline;
mod private;
mod script;
mod slow_watches;
mod tls;
mod types;
mod versions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use weir_apiserver::{Action, ApiServer};

use super::{ListenError, Proxy, ProxyConfig, ProxyParts};
use crate::admin::Caches;
use weir_access::Outage;
use weir_process::ledger::Ledger;
use weir_runtime::{FilterSet, Serving};
use weir_upstream::{Tasks, Upstream, UpstreamConfig};
use weir_view::CacheMetrics;

use self::script::Script;

/// A proxy with its API server and a client.
struct ProxyFixture {
    server: ApiServer,
    serving: watch::Sender<Serving>,
    proxy: Arc<Proxy>,
    tasks: Tasks,
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
    /// What the admin port shows.
    caches: Caches,
}

/// The events of a watch, as its client receives them.
struct EventReader {
    body: Incoming,
    rest: Vec<u8>,
}

/// The configuration of the proxy and its upstream.
struct FixtureConfig {
    upstream: UpstreamConfig,
    proxy: ProxyConfig,
    /// The resources that views serve.
    cached: Vec<weir_kube::GroupResource>,
    /// Where their stores outlive the proxy.
    disk: Option<Arc<weir_store::disk::DiskCache>>,
    /// What the views count.
    metrics: Arc<CacheMetrics>,
    /// The most bytes of their histories.
    watch_memory: usize,
    /// The bytes that are held for each owner.
    ledger: Ledger,
    /// What is served at first.
    serving: Serving,
}

fn upstream(server: &ApiServer) -> UpstreamConfig {
    UpstreamConfig::new(kube::Config::new(server.url().parse().unwrap()))
}

async fn fixture() -> ProxyFixture {
    fixture_with(|_| {}).await
}

async fn fixture_with(adjust: impl FnOnce(&mut FixtureConfig)) -> ProxyFixture {
    let server = ApiServer::builder().start().await.unwrap();
    let (upstream, proxy) = (upstream(&server), ProxyConfig::default());
    let mut setup = FixtureConfig {
        upstream,
        proxy,
        cached: Vec::new(),
        disk: None,
        metrics: Arc::default(),
        watch_memory: 128 << 20,
        ledger: Ledger::new(256 << 20),
        serving: Serving::Live(Arc::new(FilterSet::default())),
    };
    adjust(&mut setup);
    let (serving, served) = watch::channel(setup.serving.clone());
    let tasks = Tasks::default();
    let upstream = Arc::new(Upstream::new(&setup.upstream, Arc::default()).unwrap());
    upstream.start_probes(&tasks);
    let views = setup.views(&upstream, &served, &tasks);
    let caches = Caches {
        upstream: Some(upstream.clone()),
        views: Some(views.clone()),
        local_status: None,
        metrics: setup.metrics,
    };
    let parts = ProxyParts {
        ledger: setup.ledger.clone(),
        outage: Outage::new(upstream.clone(), Duration::from_secs(24 * 3600)),
        upstream,
        serving: served,
        views,
        local_status: None,
        metrics: Arc::default(),
        clients: Arc::default(),
        relay_metrics: Arc::default(),
        modules: None,
    };
    let proxy = Proxy::new(setup.proxy, parts, tasks.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    proxy.serve(listener).unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    ProxyFixture { server, serving, proxy, tasks, url, client, caches }
}

impl ProxyFixture {
    fn filter(&self, rule: &str, script: &Script) {
        self.activate(script.set(rule));
    }

    fn no_filters(&self) {
        self.activate(FilterSet::default());
    }

    /// Replaces the filters, as a reload does.
    fn activate(&self, set: FilterSet) {
        let before = self.serving.borrow().clone();
        let set = match before {
            Serving::Live(before) => set.succeeding(&before),
            Serving::Unknown | Serving::Pending(_) => set,
        };
        self.serving.send_replace(Serving::Live(Arc::new(set)));
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
        let mut request = Request::get(format!("{}{path}", self.url));
        let agent = ("user-agent", "kube-proxy/v1.34.0");
        let is_named = headers.iter().any(|(name, _)| *name == agent.0);
        for (name, value) in headers.iter().chain((!is_named).then_some(&agent)) {
            request = request.header(*name, *value);
        }
        self.client.request(request.body(Empty::new()).unwrap()).await.unwrap()
    }

    async fn json(&self, path: &str) -> (StatusCode, Value) {
        let (parts, body) = self.send(path, &[]).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, serde_json::from_slice(&body).unwrap())
    }

    async fn watch(&self, path: &str) -> EventReader {
        self.watch_as(path, &[]).await
    }

    async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> EventReader {
        let response = self.send(path, headers).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        EventReader { body: response.into_body(), rest: Vec::new() }
    }

    /// Waits until the stamps of all views are known, and the newest version is above them: from then on a client that continues
    /// from it gets nothing twice.
    async fn settle(&self, list: &str) -> Value {
        let views = self.caches.views.as_ref().unwrap();
        for _ in 0..2000 {
            let (status, listed) = self.json(list).await;
            assert_eq!(status, StatusCode::OK, "{listed}");
            let stores = views.status();
            let mut open = stores.iter().flat_map(|store| &store.views);
            if open.all(|view| view.unanswered_change().is_none()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.service("settled", "ClusterIP");
        self.server.store().delete("v1", "Service", "default", "settled").unwrap();
        let newest = self.server.store().revision();
        loop {
            let (_, listed) = self.json(list).await;
            if version(&listed).parse::<u64>().unwrap() >= newest {
                return listed;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The API server answers the lists of stores once true is sent.
    fn hold_lists(&self) -> watch::Sender<bool> {
        let (release, released) = watch::channel(false);
        self.server.on_request(move |request| match request.query.contains("limit=500") {
            true => {
                let mut released = released.clone();
                let wait = async move { drop(released.wait_for(|is| *is).await) };
                Action::After(Box::pin(wait), Box::new(Action::Serve))
            }
            false => Action::Serve,
        });
        release
    }

    fn service(&self, name: &str, kind: &str) {
        self.server
            .store()
            .put(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"type": kind, "ports": [{"port": 80}]}
            }))
            .unwrap();
    }

    fn upstream_headers(&self) -> HeaderMap {
        let requests = self.server.requests();
        // Reviews and probes are of Weir's own making.
        let is_clients = |path: &str| !path.contains("selfsubject") && path != "/readyz";
        requests.iter().rfind(|request| is_clients(&request.path)).unwrap().headers.clone()
    }
}

impl EventReader {
    /// Returns the next event; none at a clean end. Panics if the stream is interrupted.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                // See `settle`.
                if event["object"]["metadata"]["name"] != "settled" {
                    return Some(event);
                }
                continue;
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(20), self.body.frame()).await.expect("an event in time");
            match frame {
                Some(frame) => self.rest.extend_from_slice(frame.unwrap().data_ref().unwrap()),
                None => return None,
            }
        }
    }

    /// What a client holds after the events up to a version, by name.
    async fn held(&mut self, held: &[&str], until: u64) -> Vec<String> {
        let mut held: BTreeSet<String> = held.iter().map(|name| (*name).to_owned()).collect();
        loop {
            let event = self.next().await.expect("an event");
            let metadata = &event["object"]["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            match event["type"].as_str().unwrap() {
                "DELETED" => drop(held.remove(&name)),
                "ADDED" | "MODIFIED" => drop(held.insert(name)),
                "BOOKMARK" if version(&event["object"]).parse::<u64>().unwrap() >= until => {
                    return held.into_iter().collect();
                }
                "BOOKMARK" => {}
                _ => panic!("{event}"),
            }
        }
    }

    /// Returns the next event as `TYPE name`, or `ERROR code`.
    async fn next_summary(&mut self) -> String {
        let event = self.next().await.expect("an event");
        let kind = event["type"].as_str().unwrap();
        match kind {
            "ERROR" => format!("ERROR {}", event["object"]["code"]),
            _ => format!("{kind} {}", event["object"]["metadata"]["name"].as_str().unwrap_or_default()),
        }
    }
}

fn version(list: &Value) -> &str {
    list["metadata"]["resourceVersion"].as_str().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_listener_that_is_not_on_loopback_must_be_allowed() {
    for (allow, rejected) in [(false, true), (true, false)] {
        let fixture = fixture_with(|config| config.proxy.allow_remote_plaintext = allow).await;
        let result = fixture.proxy.serve(TcpListener::bind("0.0.0.0:0").await.unwrap());
        assert_eq!(matches!(result, Err(ListenError::NotLoopback(_))), rejected);
    }
}

#[tokio::test]
async fn reads_wait_for_the_first_set_and_other_requests_do_not() {
    let fixture = fixture_with(|setup| setup.proxy.start_wait = Duration::from_millis(50)).await;
    fixture.serving.send_replace(Serving::Unknown);
    let (status, error) = fixture.json("/api/v1/services").await;
    assert_eq!((status, &error["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("ServiceUnavailable")));
    assert_eq!(fixture.json("/version").await.0, StatusCode::OK);
    fixture.serving.send_replace(Serving::Pending(Some(Arc::new(["*/pods".parse().unwrap()]))));
    assert_eq!(fixture.json("/api/v1/services").await.0, StatusCode::OK);
    assert_eq!(fixture.json("/api/v1/pods").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

/// Its client may hold what the filters of a former process have made, which the first set says.
#[tokio::test]
async fn a_watch_that_continues_waits_for_the_first_set_and_is_forwarded_without_one() {
    let fixture = fixture_with(|setup| {
        setup.serving = Serving::Pending(Some([].into()));
        setup.proxy.start_wait = Duration::from_millis(50);
    });
    let fixture = fixture.await;
    fixture.service("a", "ClusterIP");
    let from = |fixture: &ProxyFixture| {
        format!("/api/v1/services?watch=1&resourceVersion={}", fixture.server.store().revision())
    };
    let mut events = fixture.watch(&from(&fixture)).await;
    fixture.service("b", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED b");
    let fixture = fixture_with(|setup| setup.serving = Serving::Pending(Some([].into()))).await;
    let from = from(&fixture);
    let watch = fixture.client.request(request(&fixture.url, &from));
    let live = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        fixture.no_filters();
    };
    let both = async { tokio::join!(watch, live).0 };
    let response = tokio::time::timeout(Duration::from_secs(5), both).await.expect("without the whole wait");
    assert_eq!(response.unwrap().status(), StatusCode::OK);
}

fn request(url: &str, path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("{url}{path}")).header("user-agent", "kube-proxy/v1.34.0").body(Empty::new()).unwrap()
}

#[tokio::test]
async fn filtered_watches_end_cleanly_when_the_daemon_stops() {
    let fixture = fixture().await;
    fixture.filter("*/services", &Script::new(|_| weir_runtime::Outcome::Unchanged));
    fixture.service("a", "ClusterIP");
    let mut events = fixture.watch("/api/v1/services?watch=1").await;
    assert_eq!(events.next_summary().await, "ADDED a");
    let drained = fixture.tasks.drain(Duration::from_secs(10));
    let (drained, end) = tokio::join!(drained, events.next());
    assert!(drained);
    assert_eq!(end, None);
}

/// The items of a protobuf list. Its own metadata may name empty fields.
fn protobuf_items(body: &Bytes) -> Vec<Bytes> {
    let envelope = weir_document::protobuf::Envelope::open(body.clone()).unwrap();
    let mut splitter = weir_document::protobuf::ListSplitter::new();
    splitter.push(envelope.body().clone());
    splitter.finish();
    let mut items = Vec::new();
    while let Some(piece) = splitter.next().unwrap() {
        if let weir_document::list::Piece::Batch(batch) = piece {
            items.extend((0..batch.items.len()).map(|index| batch.item(index).unwrap()));
        }
    }
    items
}
