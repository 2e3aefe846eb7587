//! The state of each way to an API server, and the order in which requests try them.
//!
//! A way is direct, or a tunnel through a peer. Tunnels come last, and count only while no direct way is up.
//!
//! A server is down when connecting to it or a probe of its `/readyz` fails, and not ready when the probe returns an error
//! status. Requests try both last, but never skip them, so that a wrong state delays a request but does not fail it. Requests
//! fail at once only while all servers are unresponsive ([`crate::unanswered_probes`]).

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::Uri;
use http::uri::Scheme;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;
use crate::connect::SetupError;
use crate::dial::Dialer;
use crate::server_address::ServerAddress;
use crate::server_status::{ServerState, ServerStatus};
use crate::unanswered_probes::UnansweredProbes;

/// A server that was down is up again after this many answers in a row.
const CONFIRMATIONS: u32 = 2;

/// How requests select one of several API servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerMode {
    /// Rotates over all servers that are up.
    #[default]
    RoundRobin,
    /// Uses the first server that is up, in the configured order.
    Priority,
}

/// The ways to all API servers: the direct ones in the configured order, then those through peers.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<Server>,
    /// The number of direct ways.
    direct: usize,
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
    /// A [`Condition`].
    condition: AtomicU8,
    /// The number of answers in a row while the server is down.
    answers: AtomicU32,
    /// Whether the last probe met a certificate of another name or CA: another machine has the address.
    is_stranger: AtomicBool,
    /// Why a peer did not relay, since it last had to.
    reason: Mutex<String>,
    /// When the server went down, for reports only.
    down_since: Mutex<Option<SystemTime>>,
    /// Counts probes to which the server sent nothing.
    pub(super) unanswered_probes: UnansweredProbes,
    /// Notified when the server goes down, to start probing it.
    pub(super) went_down: Notify,
    /// Notified when the server is to be asked for the time.
    pub(super) time_due: Notify,
    /// When it was asked last although its certificate seemed to be out of time.
    time_asked: Mutex<Option<Instant>>,
    /// Locked during a probe, so that requests share its result.
    pub(super) last_probe: tokio::sync::Mutex<Option<Probe>>,
}

/// What is known of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is used.
    Up,
    /// It answers, and its probe returned an error status. It may still process requests.
    NotReady,
    /// Connecting to it or a probe failed, or it is a way through a peer that is not known to work.
    Down,
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
        Ok(Self { all, direct, mode, requests: AtomicUsize::new(0) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.all.iter()
    }

    /// The direct ways.
    pub(super) fn direct(&self) -> &[Server] {
        self.all.get(..self.direct).unwrap_or_default()
    }

    /// The ways through peers.
    fn relayed(&self) -> &[Server] {
        self.all.get(self.direct..).unwrap_or_default()
    }

    /// Whether a direct way is up.
    pub(super) fn has_direct(&self) -> bool {
        self.direct().iter().any(Server::is_up)
    }

    /// The index of the first way through a peer that is up; 0 while a direct way is up, and the maximum while none is.
    pub(super) fn in_use(&self) -> usize {
        if self.has_direct() {
            return 0;
        }
        let relayed = self.relayed().iter().position(Server::is_up);
        relayed.map_or(usize::MAX, |index| self.direct + index)
    }

    /// Whether a way through a peer is up.
    pub(super) fn has_relayed(&self) -> bool {
        self.relayed().iter().any(Server::is_up)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Server> {
        self.all.get(index)
    }

    /// Returns whether all servers are unresponsive, and no peer relays to one.
    pub(super) fn are_unresponsive(&self) -> bool {
        self.direct().iter().all(|server| server.unanswered_probes.is_unresponsive()) && !self.has_relayed()
    }

    /// Returns whether any server has sent anything since the start.
    pub(super) fn have_answered(&self) -> bool {
        self.all.iter().any(|server| server.unanswered_probes.has_answered())
    }

    /// Returns whether all servers are down, or all of them are unresponsive.
    pub(super) fn are_down(&self) -> bool {
        self.are_unresponsive() || self.all.iter().all(Server::is_down)
    }

    /// Returns when the last server went down; `None` while one is not.
    pub(super) fn down_since(&self) -> Option<SystemTime> {
        if !self.all.iter().all(Server::is_down) {
            return None;
        }
        let since = |server: &Server| *server.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.all.iter().filter_map(since).max()
    }

    /// Returns the state of each way.
    pub(super) fn status(&self) -> Vec<ServerStatus> {
        self.all.iter().map(Server::status).collect()
    }

    /// Returns the names of all servers, for messages.
    pub(super) fn names(&self) -> String {
        self.direct().iter().map(|server| &*server.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the URLs name these servers in this order.
    pub(super) fn matches(&self, urls: &[Uri]) -> bool {
        let same =
            |(server, url): (&Server, &Uri)| ServerAddress::new(url).is_ok_and(|address| address == server.address);
        urls.len() == self.direct && self.direct().iter().zip(urls).all(same)
    }

    /// Returns the indexes of the servers in the order to try them.
    pub(super) fn order(&self) -> Vec<usize> {
        let first = match self.mode {
            ServerMode::Priority => 0,
            ServerMode::RoundRobin => self.requests.fetch_add(1, Ordering::Relaxed),
        };
        let direct = (0..self.direct).map(|index| index.wrapping_add(first) % self.direct);
        let mut order: Vec<usize> = direct.chain(self.direct..self.all.len()).collect();
        // The sort is stable and keeps the order of the servers that are up.
        order.sort_by_key(|index| self.all.get(*index).is_some_and(|server| !server.is_up()));
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
            condition: AtomicU8::new(if relay.is_none() { Condition::Up } else { Condition::Down } as u8),
            answers: AtomicU32::new(0),
            relay,
            is_stranger: AtomicBool::new(false),
            reason: Mutex::default(),
            down_since: Mutex::default(),
            unanswered_probes: UnansweredProbes::default(),
            went_down: Notify::new(),
            time_due: Notify::new(),
            time_asked: Mutex::default(),
            last_probe: tokio::sync::Mutex::default(),
        })
    }

    fn condition(&self) -> Condition {
        match self.condition.load(Ordering::Acquire) {
            up if up == Condition::Up as u8 => Condition::Up,
            not_ready if not_ready == Condition::NotReady as u8 => Condition::NotReady,
            _ => Condition::Down,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.condition() == Condition::Up
    }

    pub(super) fn is_down(&self) -> bool {
        self.condition() == Condition::Down
    }

    /// Counts an answer. Returns whether the server may count as up: one that was down needs two answers in a row, as a flapping
    /// link lets single ones through. A way through a peer needs one.
    pub(super) fn confirm(&self) -> bool {
        self.relay.is_some() || !self.is_down() || self.answers.fetch_add(1, Ordering::AcqRel) + 1 >= CONFIRMATIONS
    }

    /// Whether the server, which is down, has answered often enough to count as up.
    pub(super) fn is_confirmed(&self) -> bool {
        self.answers.load(Ordering::Acquire) >= CONFIRMATIONS
    }

    fn status(&self) -> ServerStatus {
        let since = *self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match (self.condition(), since) {
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

    /// Ends the use of a way through a peer.
    pub(super) fn rest(&self) {
        self.note_reason("");
        self.condition.store(Condition::Down as u8, Ordering::Release);
        *self.down_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Continues an outage that began before the daemon started, if the next probe does not end it.
    pub(super) fn resume_outage(&self, since: SystemTime) {
        self.unanswered_probes.expect_none();
        *self.down_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(since);
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

    /// Sets the condition, and returns whether that is a change.
    pub(super) fn set(&self, condition: Condition) -> bool {
        let is_down = condition == Condition::Down;
        if is_down {
            self.answers.store(0, Ordering::Release);
        }
        let changed = self.condition.swap(condition as u8, Ordering::AcqRel) != condition as u8;
        let mut down_since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        *down_since = is_down.then(|| down_since.unwrap_or_else(clock::now));
        drop(down_since);
        if changed && condition != Condition::Up {
            self.went_down.notify_one();
        }
        changed
    }
}
