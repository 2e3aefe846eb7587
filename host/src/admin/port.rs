//! The HTTP server of the admin port: `/livez`, `/readyz`, `/metrics`, `/filters` and `/caches`, by GET and HEAD. The server
//! never reads a request body.
//!
//! The number of connections and the time without a request are bounded: probes of kubelet must find room
//! ([`crate::connections`]). The `Host` must be an address or a name of this machine, because a web page can make its own name
//! resolve to this port (DNS rebinding). Probes may have any.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::status::FilterStatus;
use super::{AdminMetrics, Caches};
use crate::connections::{Connection, ConnectionPeer, Connections};
use crate::named_host::{NamedHost, authorities};
use weir_runtime::Engine;
use weir_store::{ReflectorStatus, Reflectors};
use weir_upstream::Tasks;

/// The most connections at a time. Probes, scrapers and an operator need a few.
const MAX_CONNECTIONS: usize = 64;
/// The time that a connection may have no request, and with it the time to receive a request head.
const IDLE: Duration = Duration::from_secs(60);
/// The largest request head.
const HEAD_BYTES: usize = 16 << 10;
/// How long answers may take to be read when the daemon stops.
const LINGER: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";
/// The pause after `accept` failed, probably because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server of the admin port. Clones share its state.
#[derive(Clone)]
pub struct Admin(Arc<Shared>);

struct Shared {
    status: Arc<FilterStatus>,
    engine: Engine,
    reflectors: Reflectors,
    caches: Caches,
    registry: Registry,
    metrics: Arc<AdminMetrics>,
    node_name: String,
    /// Locked from sampling to encoding, so that the values of a scrape are consistent.
    scraping: Mutex<()>,
}

impl Admin {
    /// Creates the server. `metrics` must be registered in `registry`.
    #[must_use]
    pub fn new(
        status: Arc<FilterStatus>,
        registry: Registry,
        metrics: Arc<AdminMetrics>,
        engine: Engine,
        reflectors: Reflectors,
        caches: Caches,
        node_name: &str,
    ) -> Self {
        let (scraping, node_name) = (Mutex::default(), node_name.to_owned());
        Self(Arc::new(Shared { status, engine, reflectors, caches, registry, metrics, node_name, scraping }))
    }

    /// Starts to serve and returns. The server stops with the daemon.
    pub fn serve(&self, listener: TcpListener, tasks: &Tasks) {
        let (admin, spawner) = (self.clone(), tasks.clone());
        tasks.spawn_until_stop(async move {
            let connections = Connections::new(MAX_CONNECTIONS);
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let peer = ConnectionPeer::of(address, stream.local_addr().ok());
                        match connections.try_admit(peer) {
                            Ok(connection) => admin.connection(stream, connection, &spawner),
                            Err(_) => tracing::warn!(%address, client = %peer, "connection to the admin port refused: half of all connections are of this client, or all, and have requests"),
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection on the admin port");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    fn connection(&self, stream: TcpStream, connection: Connection, tasks: &Tasks) {
        let (admin, stopping) = (self.clone(), tasks.clone());
        tasks.spawn(async move {
            let counted = connection.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                // The answer is in memory. Whoever does not read it is as good as idle.
                let _active = counted.begin();
                let response = admin.checked(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(served);
            let ended = tokio::select! {
                ended = served.as_mut() => ended,
                () = connection.close().cancelled() => return,
                () = connection.idle(IDLE) => return,
                () = stopping.stopping() => {
                    served.as_mut().graceful_shutdown();
                    tokio::time::timeout(LINGER, served).await.unwrap_or(Ok(()))
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "connection to the admin port failed");
            }
        });
    }

    /// Checks the `Host` of a request before it responds.
    fn checked<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let mut hosts = authorities(request.uri(), request.headers());
        if !matches!(path, "/livez" | "/readyz") && hosts.any(|host| !is_own(host, &self.0.node_name)) {
            return with(
                StatusCode::FORBIDDEN,
                TEXT,
                "the Host is neither an address nor localhost nor the name of the node\n",
            );
        }
        self.respond(request.method(), path)
    }

    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut response = with(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/livez" => with(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => match self.0.status.ready() {
                Ok(()) => with(StatusCode::OK, TEXT, "ok\n"),
                Err(missing) => with(StatusCode::SERVICE_UNAVAILABLE, TEXT, self.unready(missing)),
            },
            "/metrics" => match self.metrics() {
                Ok(text) => with(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                Err(error) => with(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            "/filters" => with(StatusCode::OK, "application/json", self.filters()),
            "/caches" => with(StatusCode::OK, "application/json", format!("{:#}\n", self.0.caches.to_json())),
            _ => with(
                StatusCode::NOT_FOUND,
                TEXT,
                "not found; paths are /livez, /readyz, /metrics, /filters and /caches\n",
            ),
        }
    }

    /// Returns why the daemon is not ready. This includes errors of reflectors, because a filter is loaded only after its
    /// reflectors have synced.
    fn unready(&self, missing: String) -> String {
        let errors = self.0.reflectors.status().into_iter().filter_map(|reflector| reflector.state.error);
        errors.fold(format!("not ready: {missing}"), |text, error| format!("{text}; {error}")) + "\n"
    }

    fn filters(&self) -> String {
        let mut json = self.0.status.to_json();
        if let Some(json) = json.as_object_mut() {
            json.insert("lookups".into(), self.0.reflectors.status().iter().map(lookup).collect());
        }
        format!("{json:#}\n")
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let Shared { status, engine, reflectors, caches, registry, metrics, scraping, .. } = &*self.0;
        let _scraping = scraping.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.sample(status, engine, reflectors);
        caches.sample();
        let mut text = String::new();
        encode(&mut text, registry).map(|()| text)
    }
}

/// Whether a Host is an address, `localhost` or the name of this node.
fn is_own(host: &str, node_name: &str) -> bool {
    let is_own = |host: NamedHost| matches!(host, NamedHost::Address(_)) || host.is("localhost") || host.is(node_name);
    NamedHost::parse(host).is_some_and(is_own)
}

fn lookup(reflector: &ReflectorStatus) -> Value {
    json!({
        "resource": reflector.lookup.resource.to_string(),
        "name": reflector.lookup.name,
        "labelSelector": reflector.lookup.label_selector,
        "metadataOnly": reflector.lookup.metadata_only,
        "synced": reflector.state.synced,
        "objects": reflector.objects,
        "stale": reflector.stale,
        "error": reflector.state.error.as_ref().map(ToString::to_string),
    })
}

fn with(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // An HTTP cache must not response for the daemon.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::status::{ReloadError, ReloadResult};
    use super::*;
    use weir_kube::LookupSpec;
    use weir_store::{ResourceStores, ResourceStoresConfig};

    use crate::proxy::ProxyMetrics;
    use crate::reload::ReloadMetrics;

    fn admin() -> (Admin, Arc<FilterStatus>, Arc<ReloadMetrics>) {
        let (status, mut registry) = (Arc::new(FilterStatus::default()), Registry::default());
        let (reload, metrics) = (Arc::<ReloadMetrics>::default(), Arc::<AdminMetrics>::default());
        reload.register(&mut registry);
        metrics.register(&mut registry);
        ProxyMetrics::default().register(&mut registry);
        let stores = ResourceStores::new(ResourceStoresConfig::default(), Tasks::default());
        let reflectors = Reflectors::new(stores);
        let caches = Caches { upstream: None, views: None, local_status: None, metrics: Arc::default() };
        let engine = Engine::new(None).unwrap();
        (Admin::new(status.clone(), registry, metrics, engine, reflectors, caches, "edge-a"), status, reload)
    }

    async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
        let response = admin.respond(&Method::GET, path);
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_reports_why_the_daemon_is_not_ready() {
        let (admin, filters, _) = admin();
        assert_eq!(get(&admin, "/livez").await, (StatusCode::OK, "ok\n".into()));
        let (status, text) = get(&admin, "/readyz").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: the configuration has not been read yet\n")
        );
        let error = ReloadError { filter: Some("a".parse().unwrap()), reason: "no such module".into() };
        filters.refused(ReloadResult::refused("f.yaml", vec![error], &[]));
        let (status, text) = get(&admin, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "not ready: f.yaml was refused: filter a: no such module\n");
        filters.live(&[], ReloadResult::applied("f.yaml", &[]));
        assert_eq!(get(&admin, "/readyz").await.0, StatusCode::OK, "a set without filters is complete");
    }

    #[tokio::test]
    async fn filters_shows_the_last_reload() {
        let (admin, filters, _) = admin();
        filters.live(&[], ReloadResult::applied("ConfigMap kube-system/weir-filters", &["a warning".into()]));
        let (status, text) = get(&admin, "/filters").await;
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!(json["lastReload"]["source"], "ConfigMap kube-system/weir-filters");
        assert_eq!(json["lastReload"]["warnings"][0], "a warning");
        assert_eq!(json["ready"], true);
    }

    #[tokio::test]
    async fn metrics_are_openmetrics() {
        let (admin, filters, metrics) = admin();
        metrics.reload("applied");
        let (_, text) = get(&admin, "/metrics").await;
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in [
            "weir_reloads_total{result=\"applied\"} 1",
            "weir_ready 0",
            "weir_code_cache_hits_total 0",
            "weir_watches 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let memory = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")).unwrap();
        assert!(memory.parse::<u64>().unwrap() > 1 << 20, "{memory}");
        filters.live(&[], ReloadResult::applied("f", &[]));
        assert!(get(&admin, "/metrics").await.1.contains("weir_ready 1"));
    }

    #[tokio::test]
    async fn readyz_filters_and_metrics_report_a_failing_reflector() {
        let (admin, ..) = admin();
        let lookup = LookupSpec::all("services".parse().unwrap());
        let _handle = admin.0.reflectors.open(&lookup);
        let (_, text) = get(&admin, "/readyz").await;
        assert!(text.ends_with("yet; listing services failed: no API server is configured\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&get(&admin, "/filters").await.1).unwrap();
        assert_eq!(json["lookups"][0]["resource"], "services");
        assert_eq!(json["lookups"][0]["error"], "listing services failed: no API server is configured");
        let text = get(&admin, "/metrics").await.1;
        assert!(text.contains("weir_reflectors 1\n") && text.contains("weir_reflectors_degraded 1\n"), "{text}");
    }

    #[tokio::test]
    async fn a_foreign_host_gets_nothing_but_probes() {
        let (admin, ..) = admin();
        let status = |path: &str, host: &str| {
            let request = Request::builder().uri(path).header(HOST, host).body(()).unwrap();
            admin.checked(&request).status()
        };
        for host in ["evil.example", "evil.example:10267", "edge-b", "", "127.0.0.1.evil.example", "a b"] {
            for path in ["/filters", "/caches", "/metrics", "/"] {
                assert_eq!(status(path, host), StatusCode::FORBIDDEN, "{host} {path}");
            }
            assert_eq!(status("/livez", host), StatusCode::OK, "kubelet's configuration may name any");
        }
        for host in ["127.0.0.1:10267", "[::1]:10267", "10.0.0.7", "localhost:1", "Edge-A:10267"] {
            assert_eq!(status("/filters", host), StatusCode::OK, "{host}");
        }
        let absolute =
            Request::builder().uri("http://evil.example/filters").header(HOST, "localhost").body(()).unwrap();
        assert_eq!(admin.checked(&absolute).status(), StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn other_paths_and_methods_get_404_and_405() {
        let (admin, ..) = admin();
        assert_eq!(get(&admin, "/").await.0, StatusCode::NOT_FOUND);
        let response = admin.respond(&Method::POST, "/livez");
        assert_eq!(
            (response.status(), response.headers()[ALLOW].to_str().unwrap()),
            (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD")
        );
    }

    #[tokio::test]
    async fn the_port_serves_over_tcp_until_the_daemon_stops() {
        let (admin, ..) = admin();
        let tasks = Tasks::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        admin.serve(listener, &tasks);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("ok\n"), "{text}");
        let idle = TcpStream::connect(address).await.unwrap();
        assert!(tasks.drain(Duration::from_secs(10)).await, "an idle connection does not delay the stop");
        drop(idle);
    }
}
