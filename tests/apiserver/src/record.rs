//! Records requests and counts open streams. Tests await both instead of sleeping.
//!
//! Memory: the last `limit` requests without their bodies, and two counters.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Request, Version};
use tokio::sync::watch;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its number in the order of arrival, from 1.
    pub number: u64,
    /// Its method.
    pub method: Method,
    /// Its path, still encoded.
    pub path: String,
    /// Its query, still encoded; empty if there is none.
    pub query: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// The client certificate of its connection, DER.
    pub certificate: Option<Certificate>,
    /// The number of its connection in the order of acceptance, from 1.
    pub connection: u64,
}

/// A client certificate, DER.
pub type Certificate = Arc<[u8]>;

/// The properties of a request's connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) certificate: Option<Certificate>,
}

/// The last requests.
#[derive(Debug)]
pub(crate) struct RequestLog {
    requests: Mutex<VecDeque<Recorded>>,
    limit: usize,
    count: watch::Sender<u64>,
}

/// The number of open things of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(Arc<watch::Sender<usize>>);

/// One open thing. Dropping it decrements the count.
#[derive(Debug)]
pub(crate) struct OpenGuard(Gauge);

// === impl Recorded ===

impl Recorded {
    /// Path and query as in the request line.
    pub fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }

    /// A header as text; empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

// === impl RequestLog ===

impl RequestLog {
    pub(crate) fn new(limit: usize) -> Self {
        Self { requests: Mutex::default(), limit, count: watch::Sender::new(0) }
    }

    pub(crate) fn add<B>(&self, request: &Request<B>, connection: &Connection) -> Recorded {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.count.borrow() + 1;
        let recorded = Recorded {
            number,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or("").to_owned(),
            headers: request.headers().clone(),
            version: request.version(),
            certificate: connection.certificate.clone(),
            connection: connection.number,
        };
        requests.push_back(recorded.clone());
        while requests.len() > self.limit {
            requests.pop_front();
        }
        self.count.send_replace(number);
        recorded
    }

    pub(crate) fn all(&self) -> Vec<Recorded> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.clear();
    }

    pub(crate) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
}

// === impl Gauge ===

impl Gauge {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn open(&self) -> OpenGuard {
        self.0.send_modify(|open| *open += 1);
        OpenGuard(self.clone())
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

// === impl OpenGuard ===

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}
