//! The proxy in front of the in-memory API server, its chain a function: what `tests/behaviour` cannot reach from
//! outside the daemon.

mod cached;
mod filtered;
mod identity;
mod rooms;
mod script;
mod tls;
mod types;

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
use weir_apiserver::ApiServer;

use super::{ListenError, Proxy, ProxyConfig};
use weir_runtime::{FilterSet, Serving, ServingSender};
use weir_upstream::{Tasks, Upstream, UpstreamConfig};

use self::script::Script;

/// Everything between a client and an API server.
struct Rig {
    server: ApiServer,
    serving: ServingSender,
    tasks: Tasks,
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// A watch as its client sees it.
struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

/// How the proxy and its way to the API server are made.
struct Setup {
    upstream: UpstreamConfig,
    proxy: ProxyConfig,
    /// The resources that views serve.
    cached: Vec<weir_kube::GroupResource>,
}

fn upstream(server: &ApiServer) -> UpstreamConfig {
    UpstreamConfig::new(kube::Config::new(server.url().parse().unwrap()))
}

async fn rig() -> Rig {
    rig_with(|_| {}).await
}

async fn rig_with(adjust: impl FnOnce(&mut Setup)) -> Rig {
    let server = ApiServer::builder().start().await.unwrap();
    let mut setup = Setup { upstream: upstream(&server), proxy: ProxyConfig::default(), cached: Vec::new() };
    adjust(&mut setup);
    let (serving, served) = watch::channel(Serving::Live(Arc::new(FilterSet::default())));
    let tasks = Tasks::default();
    let upstream = Arc::new(Upstream::new(&setup.upstream, Arc::default()).unwrap());
    upstream.start_probes(&tasks);
    let views = setup.views(&upstream, &served, &tasks);
    let proxy = Proxy::new(setup.proxy, upstream, served, views, Arc::default(), tasks.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    proxy.serve(listener).unwrap();
    Rig { server, serving, tasks, url, client: Client::builder(TokioExecutor::new()).build_http() }
}

impl Rig {
    fn filter(&self, rule: &str, script: &Script) {
        self.serving.send_replace(Serving::Live(script.set(rule)));
    }

    fn no_filters(&self) {
        self.serving.send_replace(Serving::Live(Arc::new(FilterSet::default())));
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
        let mut request = Request::get(format!("{}{path}", self.url)).header("user-agent", "kube-proxy/v1.34.0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.request(request.body(Empty::new()).unwrap()).await.unwrap()
    }

    async fn json(&self, path: &str) -> (StatusCode, Value) {
        let (parts, body) = self.send(path, &[]).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, serde_json::from_slice(&body).unwrap())
    }

    async fn watch(&self, path: &str) -> Events {
        let answer = self.send(path, &[]).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        Events { body: answer.into_body(), rest: Vec::new() }
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
        self.server.requests().last().unwrap().headers.clone()
    }
}

impl Events {
    /// The next event; none at a clean end. Fails the test when the stream breaks.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(20), self.body.frame()).await.expect("an event in time");
            match frame {
                Some(frame) => self.rest.extend_from_slice(frame.unwrap().data_ref().unwrap()),
                None => return None,
            }
        }
    }

    /// The next event as `TYPE name`, an ERROR as `ERROR code`.
    async fn told(&mut self) -> String {
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
async fn a_listener_beyond_loopback_is_refused_unless_allowed() {
    let server = ApiServer::builder().start().await.unwrap();
    for (allow, refused) in [(false, true), (true, false)] {
        let config = ProxyConfig { allow_remote_plaintext: allow, ..ProxyConfig::default() };
        let upstream = Arc::new(Upstream::new(&upstream(&server), Arc::default()).unwrap());
        let (_serving, served) = watch::channel(Serving::Unknown);
        let proxy = Proxy::new(config, upstream, served, None, Arc::default(), Tasks::default());
        let result = proxy.serve(TcpListener::bind("0.0.0.0:0").await.unwrap());
        assert_eq!(matches!(result, Err(ListenError::NotLoopback(_))), refused);
    }
}

#[tokio::test]
async fn reads_wait_for_the_first_set_and_other_requests_do_not() {
    let rig = rig_with(|setup| setup.proxy.start_wait = Duration::from_millis(50)).await;
    rig.serving.send_replace(Serving::Unknown);
    let (status, refusal) = rig.json("/api/v1/services").await;
    assert_eq!((status, &refusal["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("ServiceUnavailable")));
    assert_eq!(rig.json("/version").await.0, StatusCode::OK);
    rig.serving.send_replace(Serving::Pending(Some(Arc::new(["*/pods".parse().unwrap()]))));
    assert_eq!(rig.json("/api/v1/services").await.0, StatusCode::OK);
    assert_eq!(rig.json("/api/v1/pods").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_stopping_daemon_ends_filtered_watches_cleanly_and_drains() {
    let rig = rig().await;
    rig.filter("*/services", &Script::new(|_| weir_runtime::Outcome::Unchanged));
    rig.service("a", "ClusterIP");
    let mut events = rig.watch("/api/v1/services?watch=1").await;
    assert_eq!(events.told().await, "ADDED a");
    let drained = rig.tasks.drain(Duration::from_secs(10));
    let (drained, end) = tokio::join!(drained, events.next());
    assert!(drained);
    assert_eq!(end, None);
}
