//! The proxy: what a node's clients talk to.
//!
//! A request's road: [`listener`] (HTTPS by [`tls`]) → [`route`] (parsed by `weir_kube::RequestInfo`, its identity by [`identity`]) → either
//! [`forward`], byte for byte, or one of [`get`], [`list`], [`watch`], [`mod@write`], which send what the chain leaves. `weir_upstream`
//! carries both. `weir_kube::MediaType` says in which form a client wants what filters match. Whatever goes wrong is worded by [`respond`]; after an answer's head it is a [`body::BodyError`].
//! Nothing here knows WebAssembly: a chain turns documents into outcomes.

mod access;
mod body;
mod budget;
mod certificate;
mod compress;
mod forward;
mod gather;
mod get;
mod headers;
mod identity;
mod leaf;
mod ledger;
mod list;
mod listener;
mod metrics;
mod object;
mod object_type;
mod peer_uid;
mod read;
mod respond;
mod reviews;
mod route;
#[cfg(test)]
mod tests;
mod tls;
mod until;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use weir_runtime::ServingReceiver;
use weir_upstream::{Tasks, Upstream};

use self::budget::Budget;
pub use self::leaf::Leaf;
use self::ledger::Ledger;
pub use self::listener::ListenError;
pub use self::metrics::ProxyMetrics;
pub use self::tls::{ServerTls, TlsError};
use crate::config::Compression;

/// How the proxy is to work.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// The uids of the processes whose requests get the node credential.
    pub node_credential_uids: Vec<u32>,
    /// How long a read waits for the first complete filter set before it is answered 503.
    pub start_wait: Duration,
    /// Whether a listener may be bound beyond loopback.
    pub allow_remote_plaintext: bool,
    /// Client connections at a time; more wait to be accepted.
    pub max_connections: usize,
    /// Which clients get large filtered answers compressed.
    pub compression: Compression,
    /// Bytes that answers may take that are held until they are whole: protobuf lists and Tables, all together.
    pub answer_memory: usize,
    /// How long connections may finish what they do when the daemon stops.
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
    reviews: reviews::Reviews,
    serving: ServingReceiver,
    metrics: Arc<ProxyMetrics>,
    tasks: Tasks,
    ledger: Ledger,
    failed: list::Failed,
    budget: Budget,
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
    /// A proxy for these API servers.
    #[must_use]
    pub fn new(
        config: ProxyConfig,
        upstream: Arc<Upstream>,
        serving: ServingReceiver,
        metrics: Arc<ProxyMetrics>,
        tasks: Tasks,
    ) -> Arc<Self> {
        Arc::new(Self {
            client: upstream.client(),
            upstream,
            node_credential_uids: config.node_credential_uids,
            reviews: reviews::Reviews::default(),
            serving,
            metrics,
            tasks,
            ledger: Ledger::default(),
            failed: list::Failed::default(),
            budget: Budget::new(config.answer_memory),
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
    /// The listener is bound beyond loopback and that was not allowed.
    pub fn serve(self: &Arc<Self>, listener: TcpListener) -> Result<(), ListenError> {
        let address = listener.local_addr().map_err(ListenError::Socket)?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote_plaintext {
            return Err(ListenError::NotLoopback(address));
        }
        self.accept(listener, None);
        Ok(())
    }

    /// Serves HTTPS on a bound listener until the daemon stops, with the certificate taken anew when its files change;
    /// returns at once.
    pub fn serve_tls(self: &Arc<Self>, listener: TcpListener, tls: Arc<ServerTls>) {
        self.tasks.spawn_until_stop(tls.clone().follow());
        self.accept(listener, Some(tls));
    }

    fn accept(self: &Arc<Self>, listener: TcpListener, tls: Option<Arc<ServerTls>>) {
        self.tasks.spawn(listener::accept(self.clone(), listener, tls));
    }
}
