//! The admin port: `/livez`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};

use crate::health::Health;
use crate::metrics::Metrics;

/// The most connections at a time: probes, scrapers and an operator need a few.
const MAX_CONNECTIONS: usize = 32;
/// The time to send a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 16 << 10;
/// The pause after `accept` failed, probably because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the port shows.
#[derive(Debug)]
pub struct Admin {
    health: Arc<Health>,
    metrics: Metrics,
    registry: Registry,
}

impl Admin {
    /// Registers the metrics.
    #[must_use]
    pub fn new(health: Arc<Health>, metrics: Metrics) -> Self {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        Self { health, metrics, registry }
    }

    /// Serves for ever.
    pub async fn serve(&self, listener: TcpListener) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            let has_room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                accepted = listener.accept(), if has_room => match accepted {
                    Ok((stream, _)) => connections.push(self.connection(stream).boxed()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection on the admin port");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(()) = connections.next() => {}
            }
        }
    }

    /// One request for each connection: nobody holds one that is idle.
    async fn connection(&self, stream: TcpStream) {
        let service = service_fn(|request: Request<Incoming>| {
            let response = self.respond(request.uri().path());
            async move { Ok::<_, Infallible>(response) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .keep_alive(false)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Ok(Err(error)) = tokio::time::timeout(HEAD_TIMEOUT * 2, served).await {
            tracing::debug!(%error, "a connection to the admin port failed");
        }
    }

    fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match path {
            "/livez" => (StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match self.health.report() {
                problems if problems.is_empty() => (StatusCode::OK, format!("ok\n{}", self.health.notes())),
                problems => (StatusCode::SERVICE_UNAVAILABLE, problems),
            },
            "/metrics" => {
                self.metrics.sample();
                let mut text = String::new();
                match encode(&mut text, &self.registry) {
                    Ok(()) => (StatusCode::OK, text),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                }
            }
            _ => (StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics\n".to_owned()),
        };
        let kind = match path {
            "/metrics" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    }
}
