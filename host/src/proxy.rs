//! The proxy, which serves the clients of a node.
//!
//! A request passes these modules in order:
//!
//! 1. [`weir_front`] accepts connections and identifies the peer of each.
//! 2. [`service`] handles one request: it parses the request and calls the next three.
//! 3. [`weir_access`] selects the credential that the request has upstream.
//! 4. [`route`] selects the handler.
//! 5. [`response`] contains the handlers: forward, get, list, watch, write.
//! 6. [`websocket`] sends a watch over a WebSocket, if its client asks for one.
//!
//! [`explain`] explains why a client sees an object as it does.
//! [`respond`] turns every error into a Kubernetes `Status`. [`weir_wire`] reads and writes lists, objects and events, and `weir_upstream` sends
//! requests to the API servers. Nothing here knows WebAssembly: a chain maps documents to outcomes.
//!
//! `tests/layers.rs` checks that these modules depend on each other in one direction only.

mod body;
mod explain;
mod failure_log;
mod in_flight;
mod metrics;
mod request_span;
mod respond;
mod response;
mod route;
mod service;
#[cfg(test)]
mod tests;
mod unread;
mod websocket;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weir_front::{Front, FrontConfig, ListenError, Listener, ServerTls};
use weir_runtime::ServingReceiver;
use weir_store::{ClusterWatch, UplinkLimit};
use weir_upstream::{Refusal, Tasks, Upstream};

pub use self::explain::{ExplainError, ExplainRequest};
use self::failure_log::FailureLog;
pub(crate) use self::failure_log::FailureStatus;
use self::in_flight::InFlight;
pub use self::metrics::ProxyMetrics;
use self::response::answer_memory::AnswerMemory;
use self::response::cached::list_memory::ListMemory;
use self::response::memory_budget::MemoryBudget;
use self::response::read::ReadRequest;
pub use self::response::relay::RelayMetrics;
use self::response::relay::Relays;
use self::unread::UnreadAnswers;
use crate::client_table::ClientTable;
use crate::config::{Compression, Resend};
use crate::local_status::LocalStatus;
use crate::modules::ModuleCache;
use weir_access::Outage;
use weir_access::{Access, AccessParts};
use weir_process::ledger::Ledger;
use weir_view::{ChainStamps, Views};

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
    upstream: Arc<Upstream>,
    access: Arc<Access>,
    /// Those that clients share. `None`: there are none.
    views: Option<Arc<Views>>,
    /// All, also those for one client alone.
    all_views: Arc<Views>,
    local_status: Option<Arc<LocalStatus>>,
    /// Responses for the time without an API server.
    answers: AnswerMemory,
    ledger: Ledger,
    outage: Arc<Outage>,
    failures: FailureLog,
    serving: ServingReceiver,
    metrics: Arc<ProxyMetrics>,
    clients: Arc<ClientTable>,
    tasks: Tasks,
    chain_stamps: Arc<ChainStamps>,
    memory_budget: Arc<MemoryBudget>,
    unread: Arc<UnreadAnswers>,
    in_flight: Arc<InFlight>,
    lists: Arc<ListMemory>,
    compression: Compression,
    resend: Resend,
    start_wait: Duration,
    /// The ports.
    front: Arc<Front>,
    peer_nodes: Vec<String>,
    modules: Option<Arc<ModuleCache>>,
    /// `None`: `CONNECT` is no method of this daemon.
    relays: Option<Relays>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Creates a proxy for these API servers.
    #[must_use]
    pub fn new(config: ProxyConfig, parts: ProxyParts, tasks: Tasks) -> Arc<Self> {
        let ProxyParts {
            upstream,
            outage,
            serving,
            views: all_views,
            local_status,
            metrics,
            clients,
            relay_metrics,
            modules,
            ledger,
        } = parts;
        let rate = config.relay_rate.filter(|_| !config.peer_nodes.is_empty()).map(UplinkLimit::new);
        let views = Some(all_views.clone()).filter(|views| views.are_shared());
        let disk = views.as_ref().and_then(|views| views.disk());
        let chain_stamps = all_views.chain_stamps().clone();
        let lists = Arc::new(ListMemory::default());
        tasks.spawn_until_stop(lists.clone().expire());
        let (memory_budget, unread) = (Arc::new(MemoryBudget::new(config.response_memory)), UnreadAnswers::new());
        let (budget, answers) = (memory_budget.clone(), unread.clone());
        tasks.spawn_until_stop(async move { answers.give_up(|| budget.free()).await });
        let front = FrontConfig {
            allow_remote_plaintext: config.allow_remote_plaintext,
            max_connections: config.max_connections,
            drain: config.drain,
        };
        let front = Front::new(&front, tasks.clone());
        let access = Access::new(AccessParts {
            upstream: upstream.clone(),
            outage: outage.clone(),
            views: views.clone(),
            node_credential_uids: config.node_credential_uids,
            node_service_accounts: config.node_service_accounts,
            tasks: tasks.clone(),
        });
        Arc::new(Self {
            lists,
            access,
            upstream,
            views,
            all_views,
            local_status,
            answers: AnswerMemory::new(disk, ledger.clone()),
            ledger,
            outage,
            failures: FailureLog::default(),
            serving,
            metrics,
            clients,
            tasks,
            chain_stamps,
            memory_budget,
            unread,
            in_flight: Arc::default(),
            compression: config.compression,
            resend: config.resend,
            start_wait: config.start_wait,
            front,
            relays: rate.map(|rate| Relays::new(&config.peer_nodes, rate, relay_metrics)),
            peer_nodes: config.peer_nodes,
            modules,
        })
    }

    /// Notes what the API server refuses to the credentials of clients with which Weir itself reads.
    pub(crate) fn note_refusals(&self, refused: mpsc::Receiver<Refusal>) {
        self.access.note_refusals(refused);
    }

    /// Forgets credentials, permissions and responses in memory when they turn out to be of another cluster. Those on disk are
    /// set aside.
    pub(crate) fn forget_other_clusters(self: &Arc<Self>, cluster: &ClusterWatch) {
        let (proxy, mut changes) = (self.clone(), cluster.changes());
        self.tasks.spawn_until_stop(async move {
            while changes.changed().await.is_ok() {
                proxy.access.forget();
                proxy.answers.forget_all();
                proxy.chain_stamps.forget();
            }
        });
    }

    /// What requests fail for.
    pub(crate) fn failures(&self) -> Vec<FailureStatus> {
        self.failures.status()
    }

    /// Starts to serve plain HTTP on a bound listener, and returns. It stops with the daemon.
    ///
    /// # Errors
    /// The listener is not on a loopback address, and the configuration does not allow that.
    pub fn serve(self: &Arc<Self>, listener: impl Into<Listener>) -> Result<(), ListenError> {
        self.front.serve(self, listener.into())
    }

    /// Starts to serve HTTPS on a bound listener and to reload the certificate files, and returns. Both stop with the daemon.
    pub fn serve_tls(self: &Arc<Self>, listener: impl Into<Listener>, tls: Arc<ServerTls>) {
        self.front.serve_tls(self, listener.into(), tls);
    }

    /// Notes the version to which a stream from the API server has brought its client: a change of outcomes concerns it, too, and
    /// the end of what failure policies decide is one.
    fn end_stream(&self, read: &ReadRequest, version: u64) {
        let (filtering, resource) = (&read.filtering, &read.resource.resource);
        // A Table is a screen.
        let is_degraded = filtering.is_degraded() && !read.is_table();
        if is_degraded {
            self.chain_stamps.degrade(filtering.version(), resource, version);
        }
        let shown_by = (!is_degraded).then(|| filtering.of_views());
        self.all_views.end_stream(&read.component, resource, version, shown_by);
    }
}
