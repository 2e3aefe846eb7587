//! The proxy: what a node's clients talk to.
//!
//! A request's road: [`listener`] → [`route`] (parsed by [`request`], its identity by [`headers`]) → either
//! [`forward`], byte for byte, or one of [`get`], [`list`], [`watch`], which send what the chain leaves. [`upstream`]
//! carries both. [`accept`] says in which form a client wants what filters match. Whatever goes wrong is worded by [`respond`]; after an answer's head it is a [`body::BodyError`].
//! Nothing here knows WebAssembly: a chain turns documents into outcomes.

mod accept;
mod body;
mod budget;
mod compress;
mod encoding;
mod forward;
mod get;
mod headers;
mod ledger;
mod list;
mod listener;
mod object;
mod read;
pub mod request;
mod respond;
mod route;
#[cfg(test)]
mod tests;
mod upstream;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use self::budget::Budget;
use self::ledger::Ledger;
pub use self::listener::ListenError;
pub use self::upstream::SetupError;
use self::upstream::Upstream;
use crate::admin::metrics::Metrics;
use crate::config::Compression;
use crate::filter::ServingReceiver;
use crate::tasks::Tasks;

/// How the proxy is to work.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Where the API server is and which CA it is trusted by; its credentials are not used for clients' requests.
    pub upstream: kube::Config,
    /// The identity lent to loopback clients that bring none; without it nothing is lent.
    pub lent: Option<kube::Config>,
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
    /// Usual limits, nothing lent, loopback only.
    #[must_use]
    pub fn new(upstream: kube::Config) -> Self {
        Self {
            upstream,
            lent: None,
            connect_timeout: Duration::from_secs(10),
            start_wait: Duration::from_secs(10),
            allow_remote_plaintext: false,
            max_connections: 4096,
            compression: Compression::default(),
            answer_memory: 256 << 20,
            drain: Duration::from_secs(5),
        }
    }
}

/// The proxy; serves any number of listeners.
#[derive(Debug)]
pub struct Proxy {
    upstream: Upstream,
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
        Ok(Arc::new(Self {
            upstream: Upstream::new(&config.upstream, config.lent.as_ref(), config.connect_timeout)?,
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

    /// Serves plain HTTP on a bound listener until the daemon stops; returns at once.
    ///
    /// # Errors
    /// The listener is bound beyond loopback and that was not allowed.
    pub fn serve(self: &Arc<Self>, listener: TcpListener) -> Result<(), ListenError> {
        let address = listener.local_addr().map_err(ListenError::Socket)?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote_plaintext {
            return Err(ListenError::NotLoopback(address));
        }
        self.tasks.spawn(listener::accept(self.clone(), listener, self.max_connections, self.drain));
        Ok(())
    }
}
