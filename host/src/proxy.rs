//! The proxy: it serves a node's clients.
//!
//! [`server`] accepts connections and knows the peer of each. [`route`] parses a request, has [`identity`] decide with whose
//! credential it goes upstream, and picks a [`response`]: forwarded byte for byte, or filtered. [`resume`] remembers what
//! filters hid from each client, so that its watches can continue. [`crate::codec`] reads and writes lists, objects and
//! events, and `weir_upstream` talks to the API servers.
//!
//! The rooms depend on each other in one direction: `route` on `identity` and `response`, those on `server`, `response` on
//! `resume`. All of them share [`Proxy`], [`body`] and [`respond`], which turns every failure into a Kubernetes Status.
//! Nothing here knows WebAssembly: a chain turns documents into outcomes.

mod body;
mod headers;
mod identity;
mod metrics;
mod respond;
mod response;
mod resume;
mod route;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use weir_kube::GroupResource;
use weir_runtime::ServingReceiver;
use weir_upstream::{Tasks, Upstream};

use self::identity::reviews::Reviews;
pub use self::metrics::ProxyMetrics;
use self::response::list::FailedObjects;
use self::response::memory_budget::MemoryBudget;
use self::resume::ResumeState;
pub use self::server::leaf::Leaf;
use self::server::listener;
pub use self::server::listener::ListenError;
pub use self::server::tls::{ServerTls, TlsError};
use crate::config::Compression;
use crate::view::Views;

/// The settings of the proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// The uids of the processes whose requests get the node credential.
    pub node_credential_uids: Vec<u32>,
    /// How long a read waits for the first complete filter set before Weir answers 503.
    pub start_wait: Duration,
    /// Whether plain HTTP may be served beyond loopback.
    pub allow_remote_plaintext: bool,
    /// The number of concurrent client connections; further ones wait to be accepted.
    pub max_connections: usize,
    /// Which clients get large filtered answers compressed.
    pub compression: Compression,
    /// The bytes that all answers together may take that Weir holds until they are complete: protobuf lists and Tables.
    pub answer_memory: usize,
    /// How long open requests may take to finish when the daemon stops.
    pub drain: Duration,
}

impl Default for ProxyConfig {
    /// Default limits, root alone gets the node credential, loopback only.
    fn default() -> Self {
        Self {
            node_credential_uids: vec![0],
            start_wait: Duration::from_secs(10),
            allow_remote_plaintext: false,
            max_connections: 4096,
            compression: Compression::default(),
            answer_memory: 256 << 20,
            drain: Duration::from_secs(10),
        }
    }
}

/// The proxy; serves any number of listeners.
pub struct Proxy {
    upstream: Arc<Upstream>,
    /// For the daemon's own requests.
    client: kube::Client,
    node_credential_uids: Vec<u32>,
    reviews: Reviews,
    /// Whether clients may read what views answer.
    read_reviews: Reviews,
    /// None: every read goes upstream.
    views: Option<Arc<Views>>,
    serving: ServingReceiver,
    metrics: Arc<ProxyMetrics>,
    tasks: Tasks,
    resume: ResumeState,
    failed_objects: FailedObjects,
    memory_budget: MemoryBudget,
    compression: Compression,
    start_wait: Duration,
    allow_remote_plaintext: bool,
    max_connections: usize,
    drain: Duration,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Creates a proxy for these API servers.
    #[must_use]
    pub fn new(
        config: ProxyConfig,
        upstream: Arc<Upstream>,
        serving: ServingReceiver,
        views: Option<Arc<Views>>,
        metrics: Arc<ProxyMetrics>,
        tasks: Tasks,
    ) -> Arc<Self> {
        Arc::new(Self {
            client: upstream.client(),
            upstream,
            node_credential_uids: config.node_credential_uids,
            reviews: Reviews::of_certificates(),
            read_reviews: Reviews::of_reads(),
            views,
            serving,
            metrics,
            tasks,
            resume: ResumeState::default(),
            failed_objects: FailedObjects::default(),
            memory_budget: MemoryBudget::new(config.answer_memory),
            compression: config.compression,
            start_wait: config.start_wait,
            allow_remote_plaintext: config.allow_remote_plaintext,
            max_connections: config.max_connections,
            drain: config.drain,
        })
    }

    /// Serves plain HTTP on a bound listener until the daemon stops; returns at once.
    ///
    /// # Errors
    /// The listener is bound beyond loopback, and the settings do not allow that.
    pub fn serve(self: &Arc<Self>, listener: TcpListener) -> Result<(), ListenError> {
        let address = listener.local_addr().map_err(ListenError::Socket)?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote_plaintext {
            return Err(ListenError::NotLoopback(address));
        }
        self.accept(listener, None);
        Ok(())
    }

    /// Serves HTTPS on a bound listener until the daemon stops, and reloads the certificate when its files change; returns at
    /// once.
    pub fn serve_tls(self: &Arc<Self>, listener: TcpListener, tls: Arc<ServerTls>) {
        self.tasks.spawn_until_stop(tls.clone().follow());
        self.accept(listener, Some(tls));
    }

    /// Notes that a client got this version of a resource from upstream. A later change of outcomes concerns that client
    /// although the change has no version.
    fn hand_out(&self, resource: &GroupResource, version: Option<&str>) {
        if let (Some(views), Some(version)) = (&self.views, version.and_then(|version| version.parse().ok())) {
            views.hand_out(resource, version);
        }
    }

    fn accept(self: &Arc<Self>, listener: TcpListener, tls: Option<Arc<ServerTls>>) {
        self.tasks.spawn(listener::accept(self.clone(), listener, tls));
    }
}
