//! Sends requests to the API servers: selects the server, the identity and the connections, and fails over.
//!
//! Two identities never share a connection. The API server prefers a client certificate to a token, so requests with the
//! client's own token use connections without a client certificate.
//!
//! Each [`Purpose`] has its own connections, so that a bulk list delays neither a watch nor a lease. Bounds:
//! `h2_pool::MAX_CONNECTIONS` connections per identity, purpose, server and thread, each with as many streams as the
//! server allows. A request beyond that fails at once.
//!
//! A request goes to the next server if connecting failed. A repeatable request (a read without a body) also does so if it
//! got no response. A request that the server says it did not process is sent to it again. While all servers are
//! unresponsive, requests fail at once, and probes detect the recovery ([`health`]). A small write whose server becomes
//! unresponsive before it responds fails then, too.

mod config;
mod credential_reload;
mod health;
mod relay;
#[cfg(test)]
mod tests;
mod time;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderMap, Method, Response};
use http_body::Body as _;
use tracing::Instrument as _;
use tracing::field::Empty;

use self::config::without_credential;
pub use self::config::{Relay, ServerRole, UpstreamConfig};
pub use self::credential_reload::{FirstLoad, ReloadedCredential};
pub use self::relay::RelayError;
use crate::connect::SetupError;
use crate::dial::Dialer;
use crate::error::UpstreamError;
use crate::replay_body::ReplayBody;
use crate::request::{RequestBody, no_request_body};
use crate::server::{Server, Servers};
use crate::server_status::ServerStatus;
use crate::transport::Transport;
use crate::user_agent::set_user_agent;
use crate::ways::Condition;
use crate::{AnsweredBy, Connectivity, Purpose, RequestHead, UpstreamBody, UpstreamMetrics, error_report};
use weir_kube::Identity;

/// The largest body of a write that probes may give up. A larger one may itself delay the probes on a thin link.
const MAX_ABANDONED_BODY: u64 = 64 << 10;

/// The target of spans that are sent as traces.
const SPANS: &str = "weir_trace";

/// How often a request is sent again that the server did not process.
const MAX_REPEATS: u32 = 3;

/// The client of the API servers.
#[derive(Debug)]
pub struct Upstream {
    servers: Servers,
    /// For [`Identity::Client`]. It adds no credential.
    passthrough: ArcSwap<Transport>,
    /// For [`Identity::Daemon`] and [`Identity::Impersonated`].
    daemon: ArcSwap<Transport>,
    /// Why the daemon has no credential, if it has none.
    daemon_unusable: ArcSwapOption<String>,
    /// The servers that the daemon's configuration names now, if they are others than these.
    named_now: ArcSwapOption<String>,
    /// For [`Identity::Node`].
    node: ArcSwap<NodeCredential>,
    role: ServerRole,
    /// [`UpstreamConfig::trace_context`].
    trace_context: Option<fn(&mut HeaderMap)>,
    connect_timeout: Duration,
    metrics: Arc<UpstreamMetrics>,
    connectivity: Connectivity,
}

/// The node credential, which Weir attaches to requests of local clients without a credential.
#[derive(Debug)]
enum NodeCredential {
    /// None is configured.
    None,
    /// It is loaded.
    Usable(Arc<Transport>),
    /// It is configured but never loaded so far, for this reason.
    Unusable(String),
}

/// One attempt to send a request to one server.
struct Attempt<'a> {
    transport: &'a Transport,
    /// The index of the server.
    index: usize,
    purpose: Purpose,
    head: &'a RequestHead,
    body: &'a ReplayBody,
    /// Whether sending the request twice is harmless.
    repeatable: bool,
    /// Whether the request fails once probes find that no server responds.
    abandonable: bool,
    /// Whether another server is left to try.
    has_next: bool,
}

impl Upstream {
    /// Creates the client without connecting.
    ///
    /// # Errors
    /// A URL, certificate, key or other credential is not usable. An unusable node credential is no error.
    pub fn new(config: &UpstreamConfig, metrics: Arc<UpstreamMetrics>) -> Result<Self, SetupError> {
        let urls: Vec<_> = std::iter::once(&config.upstream.cluster_url).chain(&config.other_servers).collect();
        let timeout = config.connect_timeout;
        let relays: Vec<_> = config.relays.iter().map(relay::route_through).collect();
        let servers = Servers::new(&urls, &Dialer::direct(timeout), &relays, config.server_mode)?;
        let node = match &config.node_credential {
            None => NodeCredential::None,
            Some(Ok(node)) => match Transport::new(node, &servers, timeout) {
                Ok(transport) => NodeCredential::Usable(Arc::new(transport)),
                Err(error) => NodeCredential::Unusable(error_report(&error)),
            },
            Some(Err(reason)) => NodeCredential::Unusable(reason.clone()),
        };
        let passthrough = Transport::without_headers(&without_credential(&config.upstream), &servers, timeout)?;
        Ok(Self {
            passthrough: ArcSwap::from_pointee(passthrough),
            daemon: ArcSwap::from_pointee(Transport::new(&config.upstream, &servers, timeout)?),
            daemon_unusable: ArcSwapOption::new(config.unusable.clone().map(Arc::new)),
            named_now: ArcSwapOption::empty(),
            node: ArcSwap::from_pointee(node),
            role: config.role,
            trace_context: config.trace_context,
            servers,
            connect_timeout: timeout,
            metrics,
            connectivity: Connectivity::default(),
        })
    }

    /// Returns whether a node credential is configured.
    #[must_use]
    pub fn has_node_credential(&self) -> bool {
        !matches!(**self.node.load(), NodeCredential::None)
    }

    /// Returns whether a server responds, as far as probes and requests know.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        !self.servers.are_down()
    }

    /// Returns whether a server has answered anything since the start. Until then what is known is of before the start.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.servers.have_answered()
    }

    /// Returns whether no server responds: none is up, or the last request got no response. For a request that failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        !self.is_reachable() || self.connectivity.is_failing()
    }

    /// Whether requests have another way than one server. Then idle servers are probed, too, and one unanswered probe is enough
    /// to mark a server as down. A relay is no alternative to a server that is slow.
    fn has_alternative(&self) -> bool {
        self.servers.direct().len() > 1 || self.role == ServerRole::Peer
    }

    /// Resolves when no server responds any more. Cancel safe.
    pub async fn unreachable(&self) {
        // The client owns the sender.
        let _ = self.servers.reachable().wait_for(|reachable| !reachable).await;
    }

    /// Returns when the last API server went down; `None` while one is up.
    #[must_use]
    pub fn offline_since(&self) -> Option<std::time::SystemTime> {
        self.servers.down_since()
    }

    /// Returns the state of each way to an API server: the direct ones in the configured order, then those through peers.
    #[must_use]
    pub fn server_status(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }

    /// Returns the connectivity that this client records.
    pub fn connectivity(&self) -> Connectivity {
        self.connectivity.clone()
    }

    /// Sends a request and returns the response once its head has arrived.
    ///
    /// Dropping the future, or later the body, resets the stream. The API server may have processed the request.
    ///
    /// # Errors
    /// [`UpstreamError`] of the last server tried.
    pub async fn send(
        &self,
        identity: Identity,
        purpose: Purpose,
        head: RequestHead,
        body: RequestBody,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let span = tracing::info_span!(
            target: SPANS,
            "upstream",
            otel.kind = "client",
            otel.name = %format_args!("{} upstream", head.method),
            otel.status_code = Empty,
            http.request.method = %head.method,
            url.path = head.path.path(),
            http.response.status_code = Empty,
        );
        if span.is_disabled() {
            return self.send_in_span(identity, purpose, head, body).await;
        }
        let result = self.send_in_span(identity, purpose, head, body).instrument(span.clone()).await;
        match &result {
            Ok(response) => span.record("http.response.status_code", response.status().as_u16()),
            Err(_) => span.record("otel.status_code", "ERROR"),
        };
        result
    }

    async fn send_in_span(
        &self,
        identity: Identity,
        purpose: Purpose,
        mut head: RequestHead,
        body: RequestBody,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        if let Some(pass_context_on) = self.trace_context {
            pass_context_on(&mut head.headers);
        }
        let transport = self.transport(identity)?;
        if identity == Identity::Daemon {
            set_user_agent(&mut head.headers);
        }
        if let Some(credential) = &transport.credential {
            credential.apply(&mut head.headers).await?;
        }
        if self.servers.are_unresponsive() {
            self.connectivity.record_failure();
            return Err(self.unresponsive());
        }
        let is_read = matches!(head.method, Method::GET | Method::HEAD) && body.is_end_stream();
        let repeatable = purpose != Purpose::Upgrade && is_read;
        let is_small = body.size_hint().upper().is_some_and(|size| size <= MAX_ABANDONED_BODY);
        let abandonable = repeatable || (purpose != Purpose::Upgrade && is_small);
        let body = ReplayBody::new(body);
        let order = self.servers.order();
        let mut result = Err(UpstreamError::Busy);
        for (tried, index) in order.iter().copied().enumerate() {
            let has_next = tried + 1 < order.len();
            let transport = &transport;
            let attempt =
                Attempt { transport, index, purpose, head: &head, body: &body, repeatable, abandonable, has_next };
            result = self.attempt(&attempt).await;
            match &result {
                Err(error) if has_next && error.allows_other_server(repeatable) => {
                    tracing::debug!(%error, path = %head.path, "request failed, trying the next API server");
                }
                _ => break,
            }
        }
        self.note_result(head.answered_by, &result);
        result
    }

    /// Records what a request shows about the connectivity. A backend may break off its own responses and send any status.
    fn note_result(&self, answered_by: AnsweredBy, result: &Result<Response<UpstreamBody>, UpstreamError>) {
        let is_own_answer = answered_by == AnsweredBy::Server;
        match result {
            // Only a success counts: a starting API server rejects requests that it accepts a moment later.
            Ok(response) if response.status().is_success() && is_own_answer => self.connectivity.record_success(),
            Err(UpstreamError::Broken { .. }) if !is_own_answer => {}
            Err(error) if error.is_unreachable() => self.connectivity.record_failure(),
            _ => {}
        }
    }

    /// Sends a request to one server, and records the result in metrics and in the server's state.
    ///
    /// It gives up a repeatable request once probes find that the server is down, and a small write once they
    /// find that no server responds: the server may have processed it.
    async fn attempt(&self, attempt: &Attempt<'_>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(server) = self.servers.get(attempt.index) else { return Err(UpstreamError::Busy) };
        let sent = self.send_until_processed(attempt);
        let result = if attempt.abandonable {
            let goes_on = attempt.repeatable && attempt.has_next;
            tokio::select! {
                result = sent => result,
                () = self.server_lost(attempt.index, goes_on) => Err(match attempt.repeatable && !attempt.has_next {
                    true => self.unresponsive(),
                    false => UpstreamError::Lost { server: server.name.clone() },
                }),
            }
        } else {
            sent.await
        };
        let result = match result {
            // Whatever became of the connection then, the server did not cause it.
            Err(error) if attempt.body.is_broken() && !error.is_connect_error() => Err(UpstreamError::RequestBody),
            result => result,
        };
        self.metrics.server_request(&server.name, result.as_ref().err().map_or("answered", UpstreamError::label));
        match &result {
            Ok(_) if attempt.head.answered_by == AnsweredBy::Server => {
                self.note_answer(attempt.index, server);
                self.ask_time_if_due(server);
            }
            Err(error) if error.is_connect_error() => {
                self.set_server(attempt.index, Condition::Down, &error_report(error));
            }
            _ => {}
        }
        result
    }

    /// Notes that the only server has answered a request. Of several, only probes mark one as up: a server that shuts down may
    /// still respond to requests.
    fn note_answer(&self, index: usize, server: &Server) {
        if self.servers.direct().len() == 1 && server.relay.is_none() && server.is_down() && server.confirm() {
            self.set_server(index, Condition::Up, "it responds");
        }
    }

    fn unresponsive(&self) -> UpstreamError {
        UpstreamError::Unresponsive { servers: self.servers.names() }
    }

    /// Sends a request, and sends it again if the server did not process it: a server that closes a connection names the last
    /// request that it processes. It sends a repeatable request a second time if the connection broke, which happens when the
    /// server closes an idle connection.
    async fn send_until_processed(&self, attempt: &Attempt<'_>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let mut repeated = 0;
        loop {
            let error = match self.send_once(attempt).await.inspect(|_| self.connectivity.answered_after(repeated)) {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let repeats = match &error {
                UpstreamError::Unprocessed { .. } if attempt.body.is_whole() => MAX_REPEATS,
                UpstreamError::Broken { .. } if attempt.repeatable => 1,
                _ => 0,
            };
            if repeated >= repeats {
                return Err(error);
            }
            repeated += 1;
            tracing::debug!(%error, path = %attempt.head.path, "no response from the connection, sending the request again");
        }
    }

    async fn send_once(&self, attempt: &Attempt<'_>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(server) = self.servers.get(attempt.index) else { return Err(UpstreamError::Busy) };
        let body = match attempt.body.take() {
            Some(body) => body,
            // The body of a repeatable request is empty.
            None if attempt.repeatable => no_request_body(),
            None => return Err(UpstreamError::Lost { server: server.name.clone() }),
        };
        let request = server.address.request(attempt.head.clone(), body)?;
        attempt.transport.send(attempt.index, server, attempt.purpose, request).await
    }

    fn transport(&self, identity: Identity) -> Result<Arc<Transport>, UpstreamError> {
        match identity {
            Identity::Client => Ok(self.passthrough.load_full()),
            Identity::Daemon | Identity::Impersonated => match &*self.daemon_unusable.load() {
                Some(reason) => Err(UpstreamError::Credential(reason.to_string())),
                None => Ok(self.daemon.load_full()),
            },
            Identity::Node => match &**self.node.load() {
                NodeCredential::Usable(transport) => Ok(transport.clone()),
                NodeCredential::Unusable(reason) => Err(UpstreamError::Credential(reason.clone())),
                NodeCredential::None => Ok(self.passthrough.load_full()),
            },
        }
    }

    /// Drops all pooled connections to a server. Open streams continue.
    fn disconnect(&self, server: usize) {
        self.passthrough.load().disconnect(server);
        self.daemon.load().disconnect(server);
        if let NodeCredential::Usable(transport) = &**self.node.load() {
            transport.disconnect(server);
        }
    }
}
