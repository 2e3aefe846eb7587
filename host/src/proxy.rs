//! The proxy: what a node's clients talk to.
//!
//! A request's road: [`listener`] (HTTPS by [`tls`]) → [`route`] (parsed by [`request`], its identity by [`identity`]) → either
//! [`forward`], byte for byte, or one of [`get`], [`list`], [`watch`], [`mod@write`], which send what the chain leaves. [`upstream`]
//! carries both. [`accept`] says in which form a client wants what filters match. Whatever goes wrong is worded by [`respond`]; after an answer's head it is a [`body::BodyError`].
//! Nothing here knows WebAssembly: a chain turns documents into outcomes.

mod accept;
mod access;
mod body;
mod budget;
mod certificate;
mod compress;
mod encoding;
mod forward;
mod gather;
mod get;
mod headers;
mod identity;
mod leaf;
mod ledger;
mod list;
mod listener;
mod object;
mod object_type;
mod peer_uid;
mod read;
pub mod request;
mod respond;
mod reviews;
mod route;
#[cfg(test)]
mod tests;
mod tls;
mod until;
mod upstream;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use self::budget::Budget;
pub use self::leaf::Leaf;
use self::ledger::Ledger;
pub use self::listener::ListenError;
pub use self::tls::{ServerTls, TlsError};
pub use self::upstream::SetupError;
use self::upstream::{Renewal, Upstream};
use crate::admin::metrics::Metrics;
use crate::config::{self, Compression, ServerMode};
use crate::feed::Reach;
use crate::filter::ServingReceiver;
use crate::tasks::Tasks;

/// How the proxy is to work.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Where the preferred API server is, which CA all are trusted by, and who the daemon is there; its credentials are
    /// not used for clients' requests.
    pub upstream: kube::Config,
    /// API servers of the same cluster beside that one.
    pub other_servers: Vec<http::Uri>,
    /// Which of several is asked.
    pub server_mode: ServerMode,
    /// The node credential, attached to requests of local clients that send none of their own; none: nothing is attached.
    /// An error says why it is not usable yet, and is what those clients get.
    pub node_credential: Option<Result<kube::Config, String>>,
    /// The uids of the processes whose requests get the node credential.
    pub node_credential_uids: Vec<u32>,
    /// Bound on dialling the API server, TLS included.
    pub connect_timeout: Duration,
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

impl ProxyConfig {
    /// Default limits, no node credential, loopback only.
    #[must_use]
    pub fn new(upstream: kube::Config) -> Self {
        Self {
            upstream,
            other_servers: Vec::new(),
            server_mode: ServerMode::default(),
            node_credential: None,
            node_credential_uids: vec![0],
            connect_timeout: Duration::from_secs(10),
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
    metrics: Arc<Metrics>,
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
    /// Makes the clients for the API server; dials nothing.
    ///
    /// # Errors
    /// Credentials or an address that cannot be used.
    pub fn new(
        config: ProxyConfig,
        serving: ServingReceiver,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Result<Arc<Self>, SetupError> {
        let upstream = Arc::new(Upstream::new(&config, metrics.clone())?);
        upstream.watch_servers(&tasks);
        Ok(Arc::new(Self {
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
        }))
    }

    /// A client for the daemon's own requests: over the same servers and with the same fail-over as those of clients.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A client with the node credential if there is one, else with the daemon's own.
    #[must_use]
    pub fn node_client(&self) -> kube::Client {
        self.upstream.node_client()
    }

    /// Tells whether the API server is reached, of all requests that go there.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.upstream.reach()
    }

    /// Reloads credentials whenever their files change, until the daemon stops.
    pub fn renew_credentials(&self, own: config::Upstream, node: Option<config::Upstream>) {
        let node = node.map(|node| (Renewal::Node, node));
        for (which, source) in std::iter::once((Renewal::Own, own)).chain(node) {
            self.tasks.spawn_until_stop(self.upstream.clone().renew(which, source));
        }
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
