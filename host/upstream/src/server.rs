//! The servers at the end of each way, and the order in which requests try them.
//!
//! A server is down when connecting to it or a probe of its `/readyz` fails, and not ready when the probe returns an error
//! status. Requests try both last, but never skip them, so that a wrong state delays a request but does not fail it. Requests
//! fail at once only while all servers are unresponsive ([`crate::unanswered_probes`]).

#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connect::SetupError;
use crate::dial::Dialer;
use crate::server_address::ServerAddress;
use crate::server_status::{ServerState, ServerStatus};
use crate::ways::{Condition, Way, Ways};

/// How requests select one of several API servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerMode {
    /// Rotates over all servers that are up.
    #[default]
    RoundRobin,
    /// Uses the first server that is up, in the configured order.
    Priority,
}

/// The ways to all API servers.
#[derive(Debug)]
pub(super) struct Servers {
    ways: Ways<Server>,
    mode: ServerMode,
    /// The number of requests so far, for [`ServerMode::RoundRobin`].
    requests: AtomicUsize,
}

/// One way to an API server.
#[derive(Debug)]
pub(super) struct Server {
    /// `host[:port]`, and the peer that relays.
    pub(super) name: Arc<str>,
    pub(super) address: ServerAddress,
    pub(super) dialer: Dialer,
    /// The node of the peer that relays; `None` if this is a direct way.
    pub(super) relay: Option<Arc<str>>,
    way: Way,
    /// Whether the last probe met a certificate of another name or CA: another machine has the address.
    is_stranger: AtomicBool,
    /// Why a peer did not relay, since it last had to.
    reason: Mutex<String>,
    /// Notified when the server goes down, to start probing it.
    pub(super) went_down: Notify,
    /// Notified when the server is to be asked for the time.
    pub(super) time_due: Notify,
    /// When it was asked last although its certificate seemed to be out of time.
    time_asked: Mutex<Option<Instant>>,
    /// Locked during a probe, so that requests share its result.
    pub(super) last_probe: tokio::sync::Mutex<Option<Probe>>,
}

/// The result of a probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) at: Instant,
    /// Since when the server answers probes; `None` if it did not answer this one.
    answers_since: Option<Instant>,
}

impl Probe {
    /// The result of a probe that ends now.
    pub(super) fn after(before: Option<Self>, answered: bool) -> Self {
        let at = Instant::now();
        let since = before.and_then(|before| before.answers_since).unwrap_or(at);
        Self { at, answers_since: answered.then_some(since) }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answers_since.is_some()
    }

    /// For how long the server has answered probes.
    pub(super) fn answers_for(&self) -> Duration {
        self.answers_since.map(|since| self.at.duration_since(since)).unwrap_or_default()
    }
}

impl Servers {
    /// Creates the ways to servers. `relays` are the peers that relay, by node. Only TLS goes through them.
    pub(super) fn new(
        urls: &[&Uri],
        direct: &Dialer,
        relays: &[(Arc<str>, Dialer)],
        mode: ServerMode,
    ) -> Result<Self, SetupError> {
        let mut all =
            urls.iter().map(|url| Server::new(url, direct.clone(), None)).collect::<Result<Vec<_>, SetupError>>()?;
        let direct = all.len();
        for (node, dialer) in relays {
            for url in urls.iter().filter(|url| url.scheme() != Some(&Scheme::HTTP)) {
                all.push(Server::new(url, dialer.clone(), Some(node.clone()))?);
            }
        }
        Ok(Self { ways: Ways::new(all, direct), mode, requests: AtomicUsize::new(0) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.all().iter()
    }

    /// Returns the state of each way.
    pub(super) fn status(&self) -> Vec<ServerStatus> {
        self.iter().map(Server::status).collect()
    }

    /// Returns the names of all servers, for messages.
    pub(super) fn names(&self) -> String {
        self.direct().iter().map(|server| &*server.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the URLs name these servers in this order.
    pub(super) fn matches(&self, urls: &[Uri]) -> bool {
        let same =
            |(server, url): (&Server, &Uri)| ServerAddress::new(url).is_ok_and(|address| address == server.address);
        urls.len() == self.direct().len() && self.direct().iter().zip(urls).all(same)
    }

    /// Returns the indexes of the servers in the order to try them.
    pub(super) fn order(&self) -> Vec<usize> {
        let first = match self.mode {
            ServerMode::Priority => 0,
            ServerMode::RoundRobin => self.requests.fetch_add(1, Ordering::Relaxed),
        };
        let (count, all) = (self.direct().len(), self.all().len());
        let direct = (0..count).map(|index| index.wrapping_add(first) % count);
        let mut order: Vec<usize> = direct.chain(count..all).collect();
        // The sort is stable and keeps the order of the servers that are up.
        order.sort_by_key(|index| self.get(*index).is_some_and(|server| !server.is_up()));
        order
    }
}

impl Server {
    fn new(url: &Uri, dialer: Dialer, relay: Option<Arc<str>>) -> Result<Self, SetupError> {
        let address = ServerAddress::new(url)?;
        let name = match &relay {
            Some(node) => format!("{} through {node}", address.name()).into(),
            None => address.name(),
        };
        Ok(Self {
            name,
            address,
            dialer,
            way: Way::new(relay.is_some()),
            relay,
            is_stranger: AtomicBool::new(false),
            reason: Mutex::default(),
            went_down: Notify::new(),
            time_due: Notify::new(),
            time_asked: Mutex::default(),
            last_probe: tokio::sync::Mutex::default(),
        })
    }

    fn status(&self) -> ServerStatus {
        let state = match (self.condition(), self.down_since()) {
            (Condition::Up, _) if self.unanswered_probes.is_unresponsive() => ServerState::Unresponsive,
            (Condition::Up, _) => ServerState::Up,
            (Condition::NotReady, _) => ServerState::NotReady,
            (Condition::Down, None) if self.relay.is_some() => ServerState::Standby,
            (Condition::Down, since) => ServerState::Down { since },
        };
        let is_stranger = self.is_stranger.load(Ordering::Acquire);
        ServerStatus { name: self.name.clone(), relay: self.relay.clone(), state, is_stranger }
    }

    /// Notes whether a probe met a certificate of another name or CA.
    pub(super) fn note_stranger(&self, is_stranger: bool) {
        self.is_stranger.store(is_stranger, Ordering::Release);
    }

    /// Notes why a peer does not relay. Returns whether that is news.
    pub(super) fn note_reason(&self, reason: &str) -> bool {
        let mut known = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != reason;
        if is_new {
            reason.clone_into(&mut known);
        }
        is_new
    }

    /// Whether the server was not asked for the time within an interval. It is asked now.
    pub(super) fn may_ask_time(&self, interval: Duration) -> bool {
        let mut asked = self.time_asked.lock().unwrap_or_else(PoisonError::into_inner);
        let may_ask = asked.is_none_or(|asked| asked.elapsed() >= interval);
        if may_ask {
            *asked = Some(Instant::now());
        }
        may_ask
    }
}

impl Deref for Servers {
    type Target = Ways<Server>;

    fn deref(&self) -> &Self::Target {
        &self.ways
    }
}

impl Deref for Server {
    type Target = Way;

    fn deref(&self) -> &Self::Target {
        &self.way
    }
}
