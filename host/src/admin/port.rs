//! The HTTP server of the admin port: the status page (`/`), `/status`, `/livez`, `/readyz`, `/metrics`, `/filters`, `/caches`
//! and `/explain`, by GET and HEAD. The server never reads a request body.
//!
//! The number of connections and the time without a request are bounded: probes of kubelet must find room
//! ([`Connections`]). The `Host` must be an address or a name of this machine, because a web page can make its own name
//! resolve to this port (DNS rebinding). Probes may have any.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
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

use super::health::{HealthReport, HealthSources};
use super::overview::overview;
use super::page::page;
use super::{Activity, AdminMetrics};
use crate::client_table::ClientTable;
use crate::explanation::of_node;
use crate::proxy::{ExplainRequest, Proxy};
use weir_front::{Connection, ConnectionPeer, Connections};
use weir_process::LogLimit;
use weir_runtime::{Engine, RuntimeMetrics};
use weir_store::ReflectorStatus;
use weir_upstream::Tasks;
use weir_wire::named_host::{NamedHost, authorities};

/// The most connections at a time. Probes, scrapers and an operator need a few.
const MAX_CONNECTIONS: usize = 64;
/// The time that a connection may have no request, and with it the time to receive a request head.
const IDLE: Duration = Duration::from_secs(60);
/// The largest request head.
const HEAD_BYTES: usize = 16 << 10;
/// How long answers may take to be read when the daemon stops.
const LINGER: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The pause after `accept` failed, probably because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server of the admin port. Clones share its state.
#[derive(Clone)]
pub struct Admin(Arc<Shared>);

/// What the admin port reports about.
#[expect(missing_debug_implementations, reason = "reports only")]
pub struct AdminParts {
    /// The filters, lookups and watch caches, and what an operator should know of them.
    pub sources: HealthSources,
    /// All metrics.
    pub registry: Registry,
    /// Those that are sampled when they are exported. They must be registered in `registry`.
    pub metrics: Arc<AdminMetrics>,
    /// What filters have done.
    pub runtime: Arc<RuntimeMetrics>,
    /// The engine of modules.
    pub engine: Engine,
    /// The requests of clients.
    pub clients: Arc<ClientTable>,
    /// The last hour.
    pub activity: Arc<Activity>,
    /// The name of this node.
    pub node_name: String,
    /// Explains what clients see; `None` in tests.
    pub proxy: Option<Arc<Proxy>>,
}

pub(super) struct Shared {
    pub(super) parts: AdminParts,
    pub(super) started: Instant,
    /// Locked from sampling to encoding, so that the values of a scrape are consistent.
    scraping: Mutex<()>,
}

/// The client of a request.
struct Client {
    address: SocketAddr,
    local: Option<SocketAddr>,
    connection: Connection,
}

impl Admin {
    /// Creates the server.
    #[must_use]
    pub fn new(parts: AdminParts) -> Self {
        Self(Arc::new(Shared { parts, started: Instant::now(), scraping: Mutex::default() }))
    }

    /// Starts to serve and returns. The server stops with the daemon, on an inherited socket, too: a request
    /// during its drain means the next daemon.
    pub fn serve(&self, listener: TcpListener, tasks: &Tasks) {
        let (admin, spawner) = (self.clone(), tasks.clone());
        tasks.spawn_until_stop(async move {
            let connections = Connections::new(MAX_CONNECTIONS);
            let refused = LogLimit::default();
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let peer = ConnectionPeer::of(address, stream.local_addr().ok());
                        match connections.admit(peer) {
                            Some(connection) => admin.connection(stream, address, connection, &spawner),
                            None => if let Some(omitted) = refused.permit() {
                                tracing::warn!(%address, client = %peer, omitted, "connection to the admin port refused: half of all connections are of this client, or all, and have requests");
                            }
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

    fn connection(&self, stream: TcpStream, address: SocketAddr, connection: Connection, tasks: &Tasks) {
        let (admin, stopping) = (self.clone(), tasks.clone());
        tasks.spawn(async move {
            let counted = connection.clone();
            let local = stream.local_addr().ok();
            let service = service_fn(move |request: Request<Incoming>| {
                let (admin, connection) = (admin.clone(), counted.clone());
                async move {
                    // The answer is in memory. A client that does not read it counts as idle.
                    let _active = connection.begin();
                    let client = Client { address, local, connection: connection.clone() };
                    Ok::<_, Infallible>(admin.checked(request, &client).await)
                }
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
    async fn checked<B>(&self, request: Request<B>, client: &Client) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let mut hosts = authorities(request.uri(), request.headers());
        if !matches!(path, "/livez" | "/readyz") && hosts.any(|host| !is_own(host, &self.0.parts.node_name)) {
            return with(
                StatusCode::FORBIDDEN,
                TEXT,
                "the Host is neither an address nor localhost nor the name of the node\n",
            );
        }
        let (method, path) = (request.method(), request.uri().path());
        if let (&Method::GET, Some(object), Some(proxy)) = (method, path.strip_prefix("/explain/"), &self.0.parts.proxy)
        {
            // Its filters are not known, and the command waits for less than the proxy would.
            return match self.unready() {
                Some(unready) => unready,
                None => explain(proxy, object, &request, client, &self.0.parts).await,
            };
        }
        self.respond(method, path, request.uri().query().unwrap_or_default())
    }

    fn respond(&self, method: &Method, path: &str, query: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut response = with(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/" => page(),
            "/status" => with(StatusCode::OK, JSON, format!("{}\n", overview(&self.0))),
            "/livez" => with(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => match self.unready() {
                None if query.split('&').any(|option| option == "verbose") => {
                    with(StatusCode::OK, TEXT, HealthReport::of(&self.0.parts.sources).to_lines())
                }
                None => with(StatusCode::OK, TEXT, "ok\n"),
                Some(unready) => unready,
            },
            "/metrics" => match self.metrics() {
                Ok(text) => with(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                Err(error) => with(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            "/filters" => with(StatusCode::OK, JSON, self.filters()),
            "/caches" => with(StatusCode::OK, JSON, format!("{:#}\n", self.0.parts.sources.caches.to_json())),
            _ => with(
                StatusCode::NOT_FOUND,
                TEXT,
                "not found; paths are /, /status, /livez, /readyz, /metrics, /filters, /caches and /explain/PATH\n",
            ),
        }
    }

    /// The response of a daemon that is not ready.
    fn unready(&self) -> Option<Response<Full<Bytes>>> {
        self.0.parts.sources.status.ready().err()?;
        let reason = HealthReport::of(&self.0.parts.sources).not_ready?;
        Some(with(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {reason}\n")))
    }

    fn filters(&self) -> String {
        let HealthSources { status, reflectors, .. } = &self.0.parts.sources;
        let mut json = status.to_json();
        if let Some(json) = json.as_object_mut() {
            json.insert("lookups".into(), reflectors.status().iter().map(lookup).collect());
            json.insert("lastKnown".into(), reflectors.standing_in().into());
        }
        format!("{json:#}\n")
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let AdminParts { sources, engine, registry, metrics, .. } = &self.0.parts;
        let _scraping = self.0.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.sample(sources, &HealthReport::of(sources), engine);
        sources.caches.sample();
        let mut text = String::new();
        encode(&mut text, registry).map(|()| text)
    }
}

/// Explains what a client component sees of an object: `/explain/api/v1/namespaces/NS/services/NAME?component=kube-proxy`.
async fn explain<B>(
    proxy: &Proxy,
    object: &str,
    request: &Request<B>,
    client: &Client,
    parts: &AdminParts,
) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    let Ok(uri) = format!("/{object}?{query}").parse() else {
        return with(StatusCode::BAD_REQUEST, TEXT, "the path after /explain is not a path\n");
    };
    let Client { address, local, connection } = client;
    let asked = ExplainRequest {
        uri,
        headers: request.headers().clone(),
        client: *address,
        local: *local,
        connection: connection.clone(),
    };
    match proxy.explain(asked).await {
        Ok(explained) => {
            let is_off = parts.sources.notices.node.as_ref().is_some_and(|(_, state)| state.borrow().is_off());
            let explained = of_node(explained, &parts.node_name, is_off);
            with(StatusCode::OK, JSON, format!("{explained:#}\n"))
        }
        Err(error) => with(error.code, TEXT, format!("{}\n", error.message)),
    }
}

/// Whether a Host is an address, `localhost` or the name of this node.
fn is_own(host: &str, node_name: &str) -> bool {
    let is_own = |host: NamedHost| matches!(host, NamedHost::Address(_)) || host.is("localhost") || host.is(node_name);
    NamedHost::parse(host).is_some_and(is_own)
}

pub(super) fn lookup(reflector: &ReflectorStatus) -> Value {
    json!({
        "resource": reflector.lookup.resource.to_string(),
        "name": reflector.lookup.name,
        "labelSelector": reflector.lookup.label_selector,
        "metadataOnly": reflector.lookup.metadata_only,
        "synced": reflector.state.synced,
        "objects": reflector.objects,
        "stale": reflector.stale,
        "lagSeconds": reflector.lag.map(super::caches::seconds),
        "error": reflector.state.error.as_ref().map(ToString::to_string),
    })
}

/// Returns a response.
pub(super) fn with(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // An HTTP cache must not respond for the daemon.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
