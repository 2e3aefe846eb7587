//! What a client of API servers is made from.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use kube::config::AuthInfo;

use super::Upstream;
use crate::server::ServerMode;

/// The API servers and the credentials for them.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// The preferred API server, the CA bundle for all servers, and the daemon's own credential.
    pub upstream: kube::Config,
    /// Why the daemon's own credential is not usable yet: `upstream` has none then, and requests with it fail.
    pub unusable: Option<String>,
    /// Further API servers of the same cluster.
    pub other_servers: Vec<http::Uri>,
    /// How requests select a server.
    pub server_mode: ServerMode,
    /// The node credential, which Weir attaches to requests of local clients without a credential.
    ///
    /// `None` attaches nothing. An error says why the credential is not usable yet, and such clients receive it.
    pub node_credential: Option<Result<kube::Config, String>>,
    /// What the servers are.
    pub role: ServerRole,
    /// Peers that relay connections to the API servers while no direct way is up, in the order to try them.
    pub relays: Vec<Relay>,
    /// Makes the headers of a request name the current span, for traces that go on at the server.
    pub trace_context: Option<fn(&mut HeaderMap)>,
    /// The timeout of connecting to a server, including TLS.
    pub(crate) connect_timeout: Duration,
}

/// A peer that relays connections.
#[derive(Debug, Clone)]
pub struct Relay {
    /// The node of the peer.
    pub node: Arc<str>,
    /// The client of the peer.
    pub peer: Arc<Upstream>,
}

/// What servers are. `Display` is their name in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRole {
    /// The API servers of the cluster.
    ApiServer,
    /// Another Weir of the pool. There is always another way: the API server.
    Peer,
}

impl std::fmt::Display for ServerRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ApiServer => "API server",
            Self::Peer => "peer",
        })
    }
}

impl UpstreamConfig {
    /// Returns the configuration of one server without a node credential.
    #[must_use]
    pub fn new(upstream: kube::Config) -> Self {
        Self {
            upstream,
            unusable: None,
            other_servers: Vec::new(),
            server_mode: ServerMode::default(),
            node_credential: None,
            role: ServerRole::ApiServer,
            relays: Vec::new(),
            trace_context: None,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Returns the configuration with the same server and CA bundle, but without a credential.
pub(super) fn without_credential(config: &kube::Config) -> kube::Config {
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config
}
