//! The connections to the API servers: which identity travels on which, how many there are, which server is asked, and
//! what an error on them means.
//!
//! Two identities never share a connection: requests with a token of their own go over connections without a client
//! certificate, because the API server takes the certificate where it gets both. Reads that end soon, watches, heartbeats
//! and upgrades have connections of their own, so that a bulk list starves neither a watch nor a lease, and a byte stream
//! is HTTP/1.1. Bounds: [`lane::LANES`] connections per identity, kind and server, of as many streams as it allows; a
//! request beyond that is refused at once.
//!
//! While no server answers, all requests fail at once, and probes find out when one answers again ([`health`]).
//!
//! A request goes to another server when nothing of it has reached the first one (connecting failed), or when it is safe
//! to repeat and has no answer yet.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response};
use http_body::Body as _;
use kube::config::AuthInfo;

use crate::body::RequestBody;
use crate::connect::SetupError;
use crate::error::UpstreamError;
use crate::kept::Kept;
use crate::lane::UpstreamBody;
use crate::server::{ServerMode, Servers};
use crate::wire::Wire;
use crate::{Identity, Reach, UpstreamMetrics, in_full};

/// What a request needs of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Ends soon: everything but the others.
    Short,
    /// A watch or another body without an end.
    Stream,
    /// What the cluster takes for a sign of life: leases and status.
    Heartbeat,
    /// A look at whether the server works.
    Probe,
    /// HTTP/1.1 that becomes a byte stream.
    Upgrade,
}

/// A request on its way up: everything but its body.
#[derive(Debug, Clone)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// As `weir_kube::RequestInfo::forward`.
    pub path: PathAndQuery,
    /// Without what belongs to the client's hop only.
    pub headers: HeaderMap,
}

/// Where the API servers are, and who asks.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// The preferred API server, which CA all are trusted by, and who the daemon is there; its credentials are not used for
    /// clients' requests.
    pub upstream: kube::Config,
    /// API servers of the same cluster beside that one.
    pub other_servers: Vec<http::Uri>,
    /// Which of several is asked.
    pub server_mode: ServerMode,
    /// The node credential, attached to requests of local clients that send none of their own; none: nothing is attached.
    /// An error says why it is not usable yet, and is what those clients get.
    pub node_credential: Option<Result<kube::Config, String>>,
    /// Bound on dialling the API server, TLS included.
    pub connect_timeout: Duration,
}

impl UpstreamConfig {
    /// One server, no node credential.
    #[must_use]
    pub fn new(upstream: kube::Config) -> Self {
        Self {
            upstream,
            other_servers: Vec::new(),
            server_mode: ServerMode::default(),
            node_credential: None,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// The API servers.
#[derive(Debug)]
pub struct Upstream {
    pub(super) servers: Servers,
    /// For clients' own credentials.
    pub(super) bare: ArcSwap<Wire>,
    /// For the daemon's.
    pub(super) own: ArcSwap<Wire>,
    /// For the node credential.
    pub(super) node: ArcSwap<NodeCredential>,
    pub(super) connect_timeout: Duration,
    pub(super) metrics: Arc<UpstreamMetrics>,
    pub(super) reach: Reach,
}

/// The node credential, attached to requests of local clients that send none.
#[derive(Debug)]
pub(super) enum NodeCredential {
    /// None is configured.
    None,
    /// Loaded.
    Usable(Arc<Wire>),
    /// Configured, and never loaded so far; with the reason.
    Unusable(String),
}

/// One attempt at one server.
struct Attempt<'a> {
    wire: &'a Wire,
    at: usize,
    purpose: Purpose,
    head: &'a Head,
    body: &'a Kept,
    /// Whether it may be repeated after something of it was sent.
    safe: bool,
    /// Whether there is another server to go to.
    others: bool,
}

impl Upstream {
    /// Makes the clients; nothing is dialled yet.
    ///
    /// # Errors
    /// A certificate, key, token or address that cannot be used.
    pub fn new(config: &UpstreamConfig, metrics: Arc<UpstreamMetrics>) -> Result<Self, SetupError> {
        let urls = std::iter::once(&config.upstream.cluster_url).chain(&config.other_servers);
        let servers = Servers::new(urls, config.server_mode)?;
        let (count, timeout) = (servers.len(), config.connect_timeout);
        let node = match &config.node_credential {
            None => NodeCredential::None,
            Some(Ok(node)) => match Wire::new(node, count, timeout) {
                Ok(wire) => NodeCredential::Usable(Arc::new(wire)),
                Err(error) => NodeCredential::Unusable(in_full(&error)),
            },
            Some(Err(reason)) => NodeCredential::Unusable(reason.clone()),
        };
        Ok(Self {
            bare: ArcSwap::from_pointee(Wire::bare(&anonymous(&config.upstream), count, timeout)?),
            own: ArcSwap::from_pointee(Wire::new(&config.upstream, count, timeout)?),
            node: ArcSwap::from_pointee(node),
            servers,
            connect_timeout: timeout,
            metrics,
            reach: Reach::default(),
        })
    }

    /// Whether a node credential is configured.
    #[must_use]
    pub fn has_node_credential(&self) -> bool {
        !matches!(**self.node.load(), NodeCredential::None)
    }

    /// Where it is told whether servers are reached.
    pub fn reach(&self) -> Reach {
        self.reach.clone()
    }

    /// Sends a request and waits for the head of its answer. Dropping the future, or later the body, frees the stream.
    ///
    /// # Errors
    /// See [`UpstreamError`]: that of the last server that was asked.
    pub async fn send(
        &self,
        identity: Identity,
        purpose: Purpose,
        mut head: Head,
        body: RequestBody,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let wire = self.wire(identity)?;
        if identity == Identity::Daemon {
            crate::own::sign(&mut head.headers);
        }
        if let Some(credential) = &wire.credential {
            credential.apply(&mut head.headers).await?;
        }
        if self.servers.are_silent() {
            self.reach.lost();
            return Err(self.silent());
        }
        let safe =
            purpose != Purpose::Upgrade && matches!(head.method, Method::GET | Method::HEAD) && body.is_end_stream();
        let body = Kept::new(body);
        let order = self.servers.order();
        let mut result = Err(UpstreamError::Busy);
        for (nth, at) in order.iter().copied().enumerate() {
            let others = nth + 1 < order.len();
            let attempt = Attempt { wire: &wire, at, purpose, head: &head, body: &body, safe, others };
            result = self.attempt(&attempt).await;
            match &result {
                Err(error) if others && error.may_be_another_servers(safe) => {
                    tracing::debug!(%error, path = %head.path, "another API server is asked");
                }
                _ => break,
            }
        }
        match &result {
            // A server that has just begun refuses at first what it grants a moment later.
            Ok(answer) if answer.status().is_success() => self.reach.answered(),
            Err(error) if error.is_unanswered() => self.reach.lost(),
            _ => {}
        }
        result
    }

    /// A safe request that broke is tried once more at the same server: its connection may just have been closed for
    /// idleness.
    async fn attempt(&self, attempt: &Attempt<'_>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(server) = self.servers.get(attempt.at) else { return Err(UpstreamError::Busy) };
        let sent = async {
            match self.once(attempt).await {
                Err(error @ UpstreamError::Broken { .. }) if attempt.safe => {
                    tracing::debug!(%error, "the connection broke before an answer, the read is sent again");
                    self.once(attempt).await
                }
                result => result,
            }
        };
        let result = if attempt.safe {
            tokio::select! {
                result = sent => result,
                () = self.lost(attempt.at, attempt.others) => Err(match attempt.others {
                    true => UpstreamError::Lost { server: server.name.clone() },
                    false => self.silent(),
                }),
            }
        } else {
            sent.await
        };
        self.metrics.server_request(&server.name, result.as_ref().err().map_or("answered", UpstreamError::label));
        match &result {
            // Of several, a probe decides: an answer may be one of the last of a server that goes down.
            Ok(_) if self.servers.len() == 1 && !server.is_up() => self.turned(attempt.at, true, "it answers"),
            Err(error) if error.is_of_connecting() => self.turned(attempt.at, false, &in_full(error)),
            _ => {}
        }
        result
    }

    fn silent(&self) -> UpstreamError {
        UpstreamError::Silent { servers: self.servers.names() }
    }

    async fn once(&self, attempt: &Attempt<'_>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(server) = self.servers.get(attempt.at) else { return Err(UpstreamError::Busy) };
        let body = match attempt.body.take() {
            Some(body) => body,
            // An empty body is as good as new.
            None if attempt.safe => crate::body::no_request_body(),
            None => return Err(UpstreamError::Lost { server: server.name.clone() }),
        };
        let request = server.base.request(attempt.head.clone(), body)?;
        attempt.wire.send(attempt.at, server, attempt.purpose, request).await
    }

    fn wire(&self, identity: Identity) -> Result<Arc<Wire>, UpstreamError> {
        match identity {
            Identity::Own => Ok(self.bare.load_full()),
            Identity::Daemon | Identity::Certified => Ok(self.own.load_full()),
            Identity::Node => match &**self.node.load() {
                NodeCredential::Usable(wire) => Ok(wire.clone()),
                NodeCredential::Unusable(reason) => Err(UpstreamError::Credential(reason.clone())),
                NodeCredential::None => Ok(self.bare.load_full()),
            },
        }
    }

    /// Throws away all connections to a server.
    pub(super) fn retire(&self, server: usize) {
        self.bare.load().retire(server);
        self.own.load().retire(server);
        if let NodeCredential::Usable(wire) = &**self.node.load() {
            wire.retire(server);
        }
    }
}

/// The same servers and trust without a credential.
pub(super) fn anonymous(config: &kube::Config) -> kube::Config {
    let mut anonymous = config.clone();
    anonymous.auth_info = AuthInfo::default();
    anonymous
}
