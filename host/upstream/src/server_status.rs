//! The state of the ways to the API servers, as the admin port shows it.

use std::sync::Arc;
use std::time::SystemTime;

/// One way to an API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// `host[:port]`, and the peer that relays.
    pub name: Arc<str>,
    /// The node of the peer that relays; `None` if this is a direct way.
    pub relay: Option<Arc<str>>,
    /// Its state.
    pub state: ServerState,
    /// Whether the last probe met a certificate of another name or CA: another machine has the address.
    pub is_stranger: bool,
}

/// The state of a way to an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It is used.
    Up,
    /// Probes get no answer. Requests are still tried.
    Unresponsive,
    /// It answers, and its probe returned an error status. Requests try it last.
    NotReady,
    /// Connecting or a probe failed. Requests try it last.
    Down {
        /// Since when.
        since: Option<SystemTime>,
    },
    /// A way through a peer, which is not needed while a direct one is up.
    Standby,
}

impl ServerState {
    /// The name in reports.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unresponsive => "unresponsive",
            Self::NotReady => "not ready",
            Self::Down { .. } => "down",
            Self::Standby => "standby",
        }
    }
}
