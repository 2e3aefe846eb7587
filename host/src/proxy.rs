//! The proxy, which serves the clients of a node. It alone knows the modules that a request passes; they do not know it.
//!
//! A request passes them in this order:
//!
//! 1. [`weir_front`] accepts its connection and identifies the peer.
//! 2. [`service`] parses it, in a span of its own ([`request_span`]), and calls all that follow. If it is refused before a handler
//!    has it, [`error`] says why.
//! 3. [`crate::pool`] answers the other Weirs of the pool.
//! 4. [`weir_access`] selects the credential that the request has upstream.
//! 5. [`crate::serve::route`] selects the handler.
//! 6. [`in_flight`] lets what no view answers go upstream, within the share of its peer.
//! 7. [`crate::serve`] contains the handlers: forward, get, list, watch, write.
//! 8. [`crate::offline`] keeps what clients need again without an API server, and answers with it.
//! 9. [`websocket`] sends a watch over a WebSocket, if its client asks for one.
//! 10. [`unread`] gives up the response, if its client does not read it.
//!
//! Beside them, [`explain`] explains why a client sees an object as it does.

mod error;
mod explain;
mod in_flight;
mod request_span;
mod service;
#[cfg(test)]
mod tests;
mod unread;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weir_access::{Access, AccessParts, Outage};
use weir_front::{Front, Listener, ServerTls};
use weir_process::ledger::Ledger;
use weir_runtime::ServingReceiver;
use weir_store::ClusterWatch;
use weir_upstream::{Refusal, Tasks, Upstream};
use weir_view::Views;

use self::error::RequestError;
pub use self::explain::{ExplainError, ExplainRequest};
use self::in_flight::InFlight;
use self::unread::UnreadAnswers;
use crate::client_table::ClientTable;
use crate::config::{Compression, Resend};
use crate::local_status::LocalStatus;
use crate::modules::ModuleCache;
use crate::offline::Offline;
use crate::pool::{Pool, PoolParts, RelayMetrics};
use crate::serve::cached::list_memory::ListMemory;
use crate::serve::memory_budget::MemoryBudget;
use crate::serve::route::Chains;
use crate::serve::{FailureLog, FailureStatus, Handlers, ProxyMetrics};

/// The settings of the proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// The uids of the processes whose requests get the node credential.
    pub node_credential_uids: Vec<u32>,
    /// The service accounts of the node's own components, as `namespace/name`.
    pub node_service_accounts: Vec<String>,
    /// How long a request waits for the first filter set before it gets 503.
    pub start_wait: Duration,
    /// Whether plain HTTP may be served on other addresses than loopback.
    pub allow_remote_plaintext: bool,
    /// The most concurrent connections of a listener. One peer has at most half of them.
    pub max_connections: usize,
    /// The clients whose large filtered responses are compressed.
    pub compression: Compression,
    /// How watches send what filters show in another state.
    pub resend: Resend,
    /// Total bytes for responses that must be buffered (protobuf lists and Tables), and for what clients do not read.
    pub response_memory: usize,
    /// The longest time to finish open requests when the daemon stops.
    pub drain: Duration,
    /// The nodes of the other Weirs of the pool, which may read what every node may read.
    pub peer_nodes: Vec<String>,
    /// Bytes a second that are relayed for them; `None` relays nothing.
    pub relay_rate: Option<NonZeroU64>,
}

impl Default for ProxyConfig {
    /// Default limits. Only root gets the node credential, and plain HTTP is served on loopback only.
    fn default() -> Self {
        Self {
            node_credential_uids: vec![0],
            node_service_accounts: Vec::new(),
            start_wait: Duration::from_secs(10),
            allow_remote_plaintext: false,
            max_connections: 4096,
            compression: Compression::default(),
            resend: Resend::default(),
            response_memory: 256 << 20,
            drain: Duration::from_secs(10),
            peer_nodes: Vec::new(),
            relay_rate: None,
        }
    }
}

/// A reason why a listener cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The plain port is not on a loopback address.
    #[error(
        "{0} is not a loopback address: without TLS, tokens travel in clear text; --allow-remote-plaintext permits it"
    )]
    NotLoopback(SocketAddr),
    /// The socket has no local address.
    #[error("the listening socket has no local address")]
    Socket(#[source] io::Error),
}

/// The parts of the daemon that the proxy uses.
#[derive(Debug)]
pub struct ProxyParts {
    /// The API servers.
    pub upstream: Arc<Upstream>,
    /// The time without them.
    pub(crate) outage: Arc<Outage>,
    /// The filter set in force.
    pub serving: ServingReceiver,
    /// If none of them are shared, only filtered watches are served from one.
    pub views: Arc<Views>,
    /// `None`: nothing stands in for the API server's objects.
    pub local_status: Option<Arc<LocalStatus>>,
    /// Counts requests.
    pub metrics: Arc<ProxyMetrics>,
    /// Counts requests by client component.
    pub clients: Arc<ClientTable>,
    /// The bytes that are held for each owner.
    pub ledger: Ledger,
    /// Counts what is relayed for peers.
    pub relay_metrics: Arc<RelayMetrics>,
    /// What peers get of modules. `None`: nothing.
    pub modules: Option<Arc<ModuleCache>>,
}

/// The proxy. It serves any number of listeners.
pub struct Proxy {
    handlers: Arc<Handlers>,
    offline: Arc<Offline>,
    pool: Pool,
    /// The ports.
    front: Arc<Front>,
    allow_remote_plaintext: bool,
    clients: Arc<ClientTable>,
    in_flight: Arc<InFlight>,
    unread: Arc<UnreadAnswers>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("upstream", &self.handlers.upstream).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Creates a proxy for these API servers.
    #[must_use]
    pub fn new(config: ProxyConfig, parts: ProxyParts, tasks: Tasks) -> Arc<Self> {
        let access = Access::new(AccessParts {
            upstream: parts.upstream.clone(),
            outage: parts.outage.clone(),
            views: Some(parts.views.clone()).filter(|views| views.are_shared()),
            node_credential_uids: config.node_credential_uids,
            node_service_accounts: config.node_service_accounts,
            tasks: tasks.clone(),
        });
        let handlers = Arc::new(Handlers {
            upstream: parts.upstream,
            access,
            chains: Chains::new(parts.serving),
            views: parts.views,
            outage: parts.outage,
            ledger: parts.ledger,
            failures: FailureLog::default(),
            metrics: parts.metrics,
            tasks: tasks.clone(),
            memory_budget: Arc::new(MemoryBudget::new(config.response_memory)),
            lists: Arc::new(ListMemory::default()),
            compression: config.compression,
            resend: config.resend,
            start_wait: config.start_wait,
        });
        tasks.spawn_until_stop(handlers.lists.clone().expire());
        let unread = UnreadAnswers::new();
        let (budget, answers) = (handlers.memory_budget.clone(), unread.clone());
        tasks.spawn_until_stop(async move { answers.give_up(|| (budget.free(), budget.is_wanted())).await });
        let pool = PoolParts {
            peer_nodes: config.peer_nodes,
            relay_rate: config.relay_rate,
            relay_metrics: parts.relay_metrics,
            local_status: parts.local_status.clone(),
            modules: parts.modules,
        };
        Arc::new(Self {
            offline: Offline::new(handlers.clone(), parts.local_status),
            pool: Pool::new(handlers.clone(), pool),
            handlers,
            front: Front::new(config.max_connections, config.drain, tasks),
            allow_remote_plaintext: config.allow_remote_plaintext,
            clients: parts.clients,
            in_flight: Arc::default(),
            unread,
        })
    }

    /// Notes what the API server refuses to the credentials of clients with which Weir itself reads.
    pub(crate) fn note_refusals(&self, refused: mpsc::Receiver<Refusal>) {
        self.handlers.access.note_refusals(refused);
    }

    /// Forgets credentials, permissions and responses in memory when they turn out to be of another cluster. Those on disk are
    /// set aside.
    pub(crate) fn forget_other_clusters(self: &Arc<Self>, cluster: &ClusterWatch) {
        let (proxy, mut changes) = (self.clone(), cluster.changes());
        self.handlers.tasks.spawn_until_stop(async move {
            while changes.changed().await.is_ok() {
                proxy.handlers.access.forget();
                proxy.offline.forget();
                proxy.handlers.views.chain_stamps().forget();
            }
        });
    }

    /// Keeps what kubectl asks for first, until the daemon stops.
    pub(crate) fn keep_discovery(&self) {
        self.offline.keep_discovery();
    }

    /// What requests fail for.
    pub(crate) fn failures(&self) -> Vec<FailureStatus> {
        self.handlers.failures.status()
    }

    /// Starts to serve plain HTTP on a bound listener, and returns. It stops with the daemon.
    ///
    /// # Errors
    /// The listener is not on a loopback address, and the configuration does not allow that.
    pub fn serve(self: &Arc<Self>, listener: impl Into<Listener>) -> Result<(), ListenError> {
        let listener = listener.into();
        let address = listener.socket.local_addr().map_err(ListenError::Socket)?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote_plaintext {
            return Err(ListenError::NotLoopback(address));
        }
        self.front.serve(self, listener, None);
        Ok(())
    }

    /// Starts to serve HTTPS on a bound listener and to reload the certificate files, and returns. Both stop with the daemon.
    pub fn serve_tls(self: &Arc<Self>, listener: impl Into<Listener>, tls: Arc<ServerTls>) {
        self.front.serve(self, listener.into(), Some(tls));
    }
}
