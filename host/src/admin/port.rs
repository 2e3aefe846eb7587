//! The admin port's HTTP server: small answers to GET and HEAD, nothing else. Bounded in connections and in the time that
//! a request may take to arrive; a body is never read.

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
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::status::StatusBoard;
use weir_runtime::Engine;
use weir_store::{ReflectorStatus, Reflectors};
use weir_upstream::Tasks;

/// Connections at a time: probes, one or two scrapers and a person.
const MAX_CONNECTIONS: usize = 64;
/// For a request's head, which also bounds an idle connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after the system refused a connection: it is out of file descriptors.
const REFUSED: Duration = Duration::from_millis(100);

/// What the admin port shows. Clones share it.
#[derive(Clone)]
pub struct Admin(Arc<Shown>);

struct Shown {
    board: Arc<StatusBoard>,
    engine: Engine,
    reflectors: Reflectors,
    registry: Registry,
    sampled: Sampled,
    /// One scrape at a time: the sampled values and the text belong together.
    scraping: Mutex<()>,
}

/// What is read when asked, not counted as it happens.
#[derive(Default)]
struct Sampled {
    resident_memory: Gauge,
    code_cache_hits: Gauge,
    code_cache_misses: Gauge,
    warm_instances: Gauge,
    ready: Gauge,
    reflectors: Gauge,
    reflectors_degraded: Gauge,
    reflector_objects: Gauge,
}

impl Admin {
    /// Over the daemon's status and figures.
    #[must_use]
    pub fn new(board: Arc<StatusBoard>, mut registry: Registry, engine: Engine, reflectors: Reflectors) -> Self {
        let sampled = Sampled::default();
        sampled.register(&mut registry);
        Self(Arc::new(Shown { board, engine, reflectors, registry, sampled, scraping: Mutex::default() }))
    }

    /// Serves until the daemon stops; returns at once.
    pub fn serve(&self, listener: TcpListener, tasks: &Tasks) {
        let (admin, spawner) = (self.clone(), tasks.clone());
        tasks.spawn_until_stop(async move {
            let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            // The semaphore is never closed.
            while let Ok(permit) = permits.clone().acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => admin.connection(stream, permit, &spawner),
                    Err(error) => {
                        tracing::warn!(%error, "the admin port can not accept a connection");
                        tokio::time::sleep(REFUSED).await;
                    }
                }
            }
        });
    }

    fn connection(&self, stream: TcpStream, permit: OwnedSemaphorePermit, tasks: &Tasks) {
        let (admin, stopping) = (self.clone(), tasks.clone());
        tasks.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = admin.answer(request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopping.stopping() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the admin port failed");
            }
            drop(permit);
        });
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        const TEXT: &str = "text/plain; charset=utf-8";
        if method != Method::GET && method != Method::HEAD {
            let mut answer = with(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/livez" => with(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => match self.0.board.ready() {
                Ok(()) => with(StatusCode::OK, TEXT, "ok\n"),
                Err(missing) => with(StatusCode::SERVICE_UNAVAILABLE, TEXT, self.unready(missing)),
            },
            "/metrics" => match self.metrics() {
                Ok(text) => with(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                Err(error) => with(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            "/filters" => with(StatusCode::OK, "application/json", self.filters()),
            _ => with(StatusCode::NOT_FOUND, TEXT, "there is /livez, /readyz, /metrics and /filters\n"),
        }
    }

    /// Why the daemon is not ready, and the errors of reflectors that may be the cause.
    fn unready(&self, missing: String) -> String {
        let errors = self.0.reflectors.status().into_iter().filter_map(|reflector| reflector.state.error);
        errors.fold(format!("not ready: {missing}"), |text, error| format!("{text}; {error}")) + "\n"
    }

    fn filters(&self) -> String {
        let mut json = self.0.board.to_json();
        if let Some(json) = json.as_object_mut() {
            json.insert("lookups".into(), self.0.reflectors.status().iter().map(lookup).collect());
        }
        format!("{json:#}\n")
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let shown = &self.0;
        let _turn = shown.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        shown.sampled.take(shown);
        let mut text = String::new();
        encode(&mut text, &shown.registry).map(|()| text)
    }
}

impl Sampled {
    fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "process_resident_memory",
            "Memory that the daemon has in use",
            Unit::Bytes,
            self.resident_memory.clone(),
        );
        let mut gauge = |name, help, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("weir_code_cache_hits", "Modules whose compiled code was on disk", &self.code_cache_hits);
        gauge("weir_code_cache_misses", "Modules that had to be compiled", &self.code_cache_misses);
        gauge("weir_warm_instances", "Instances of filter modules that wait for work", &self.warm_instances);
        gauge("weir_reflectors", "Reflectors that list and watch looked-up resources", &self.reflectors);
        gauge("weir_reflectors_degraded", "Reflectors whose last list or watch failed", &self.reflectors_degraded);
        gauge("weir_reflector_objects", "Objects in the stores of all reflectors", &self.reflector_objects);
        gauge("weir_ready", "1 when a complete set of filters is in force", &self.ready);
    }

    fn take(&self, shown: &Shown) {
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let (hits, misses) = shown.engine.cache_hits_and_misses();
        set(&self.resident_memory, resident_memory().unwrap_or(0));
        set(&self.code_cache_hits, hits);
        set(&self.code_cache_misses, misses);
        set(&self.warm_instances, shown.board.warm_instances());
        let reflectors = shown.reflectors.status();
        set(&self.reflectors, reflectors.len());
        set(&self.reflectors_degraded, reflectors.iter().filter(|reflector| reflector.state.error.is_some()).count());
        set(&self.reflector_objects, reflectors.iter().map(|reflector| reflector.objects).sum());
        set(&self.ready, usize::from(shown.board.ready().is_ok()));
    }
}

fn lookup(reflector: &ReflectorStatus) -> Value {
    json!({
        "resource": reflector.lookup.resource.to_string(),
        "name": reflector.lookup.name,
        "labelSelector": reflector.lookup.label_selector,
        "metadataOnly": reflector.lookup.metadata_only,
        "synced": reflector.state.synced,
        "objects": reflector.objects,
        "error": reflector.state.error.as_ref().map(ToString::to_string),
    })
}

/// As the kernel counts it; none where it does not tell.
fn resident_memory() -> Option<usize> {
    // A read from the kernel's memory, not from a disk.
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

fn with(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // A proxy between must not answer for the daemon.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::status::{Reloaded, Trouble};
    use super::*;
    use weir_kube::Lookup;

    use crate::proxy::ProxyMetrics;
    use crate::reload::ReloadMetrics;

    fn admin() -> (Admin, Arc<StatusBoard>, ReloadMetrics) {
        let (board, mut registry) = (Arc::new(StatusBoard::default()), Registry::default());
        let metrics = ReloadMetrics::default();
        metrics.register(&mut registry);
        ProxyMetrics::default().register(&mut registry);
        let reflectors = Reflectors::new(None, Tasks::default());
        (Admin::new(board.clone(), registry, Engine::new(None).unwrap(), reflectors), board, metrics)
    }

    async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
        let answer = admin.answer(&Method::GET, path);
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_before_ready_and_readyz_says_what_is_missing() {
        let (admin, board, _) = admin();
        assert_eq!(get(&admin, "/livez").await, (StatusCode::OK, "ok\n".into()));
        let (status, text) = get(&admin, "/readyz").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: no configuration was read yet\n")
        );
        let trouble = Trouble { filter: Some("a".parse().unwrap()), reason: "no such module".into() };
        board.refused(Reloaded::refused("f.yaml", vec![trouble]));
        let (status, text) = get(&admin, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "not ready: f.yaml was refused: filter a: no such module\n");
        board.live(&[], Reloaded::applied("f.yaml", &[]));
        assert_eq!(get(&admin, "/readyz").await.0, StatusCode::OK, "no filters is a complete set");
    }

    #[tokio::test]
    async fn filters_tells_the_last_reload() {
        let (admin, board, _) = admin();
        board.live(&[], Reloaded::applied("ConfigMap kube-system/weir-filters", &["a warning".into()]));
        let (status, text) = get(&admin, "/filters").await;
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!(json["lastReload"]["source"], "ConfigMap kube-system/weir-filters");
        assert_eq!(json["lastReload"]["warnings"][0], "a warning");
        assert_eq!(json["ready"], true);
    }

    #[tokio::test]
    async fn metrics_are_openmetrics_with_the_daemons_own_figures() {
        let (admin, board, metrics) = admin();
        metrics.reload("applied");
        let (_, text) = get(&admin, "/metrics").await;
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in
            ["weir_reloads_total{result=\"applied\"} 1", "weir_ready 0", "weir_code_cache_hits 0", "weir_watches 0"]
        {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let memory = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")).unwrap();
        assert!(memory.parse::<u64>().unwrap() > 1 << 20, "{memory}");
        board.live(&[], Reloaded::applied("f", &[]));
        assert!(get(&admin, "/metrics").await.1.contains("weir_ready 1"));
    }

    #[tokio::test]
    async fn a_lookup_in_trouble_is_told_where_one_looks_for_it() {
        let (admin, ..) = admin();
        let lookup = Lookup::all("services".parse().unwrap());
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
    async fn other_paths_and_methods_are_refused() {
        let (admin, ..) = admin();
        assert_eq!(get(&admin, "/").await.0, StatusCode::NOT_FOUND);
        let answer = admin.answer(&Method::POST, "/livez");
        assert_eq!(
            (answer.status(), answer.headers()[ALLOW].to_str().unwrap()),
            (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD")
        );
    }

    #[tokio::test]
    async fn it_serves_over_tcp_and_ends_with_the_daemon() {
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
        assert!(tasks.drain(Duration::from_secs(10)).await, "an idle connection does not hold the daemon");
        drop(idle);
    }
}
