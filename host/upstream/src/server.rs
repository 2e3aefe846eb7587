//! The state of each way to an API server, and the order in which requests try them.
//!
//! A way is direct, or a tunnel through a peer. Tunnels come last, and count only while no direct way is up.
//!
//! A server is down when connecting to it or a probe of its `/readyz` fails. Requests try servers that are down last, but
//! never skip them, so that a wrong state delays a request but does not fail it. Requests fail at once only while all
//! servers are unresponsive ([`crate::unanswered_probes`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    up: AtomicBool,
    /// Why a peer did not relay, since it last had to.
    reason: Mutex<String>,
    /// When the server went down, for reports only.
    down_since: Mutex<Option<SystemTime>>,
    /// Tells whether the server sends anything at all.
    pub(super) unanswered_probes: UnansweredProbes,
    /// Notified when the server goes down, to start probing it.
    pub(super) went_down: Notify,
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

    /// Returns whether no server is up, or all of them are unresponsive.
    pub(super) fn are_down(&self) -> bool {
        self.are_unresponsive() || self.all.iter().all(|server| !server.is_up())
    }

    /// Returns when the last server went down; `None` while one is up.
    pub(super) fn down_since(&self) -> Option<SystemTime> {
        if self.all.iter().any(Server::is_up) {
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
            up: AtomicBool::new(relay.is_none()),
            relay,
            reason: Mutex::default(),
            down_since: Mutex::default(),
            unanswered_probes: UnansweredProbes::default(),
            went_down: Notify::new(),
            last_probe: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    fn status(&self) -> ServerStatus {
        let since = *self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match (self.is_up(), since) {
            (true, _) if self.unanswered_probes.is_unresponsive() => ServerState::Unresponsive,
            (true, _) => ServerState::Up,
            (false, None) if self.relay.is_some() => ServerState::Standby,
            (false, since) => ServerState::Down { since },
        };
        ServerStatus { name: self.name.clone(), relay: self.relay.clone(), state }
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
        self.up.store(false, Ordering::Release);
        *self.down_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sets whether the server is up, and returns whether that is a change.
    pub(super) fn set_up(&self, up: bool) -> bool {
        let changed = self.up.swap(up, Ordering::AcqRel) != up;
        if changed {
            let since = (!up).then(clock::now);
            *self.down_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
        }
        if changed && !up {
            self.went_down.notify_one();
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(mode: ServerMode) -> Servers {
        with_relays(["http://a", "http://b", "http://c"], &[], mode)
    }

    fn with_relays<const N: usize>(urls: [&str; N], relays: &[&str], mode: ServerMode) -> Servers {
        let urls = urls.map(|url| url.parse().unwrap());
        let direct = Dialer::direct(Duration::from_secs(1));
        let relays: Vec<_> = relays.iter().map(|node| (Arc::from(*node), direct.clone())).collect();
        Servers::new(&urls.iter().collect::<Vec<_>>(), &direct, &relays, mode).unwrap()
    }

    #[test]
    fn the_preferred_server_is_first_unless_it_is_down() {
        let servers = servers(ServerMode::Priority);
        assert_eq!(servers.order(), [0, 1, 2]);
        assert!(servers.all[0].set_up(false));
        assert!(!servers.all[0].set_up(false), "no change");
        assert_eq!(servers.order(), [1, 2, 0]);
        servers.all[0].set_up(true);
        assert_eq!(servers.order(), [0, 1, 2]);
    }

    #[test]
    fn the_outage_begins_when_the_last_server_goes_down_and_ends_with_the_first_that_is_up() {
        let servers = servers(ServerMode::Priority);
        servers.all[0].set_up(false);
        servers.all[1].set_up(false);
        assert_eq!(servers.down_since(), None);
        let before = clock::now();
        servers.all[2].set_up(false);
        let since = servers.down_since();
        assert!(since.is_some_and(|since| since >= before));
        servers.all[2].set_up(false);
        assert_eq!(servers.down_since(), since, "a repeated report does not move it");
        servers.all[0].set_up(true);
        assert_eq!(servers.down_since(), None);
        let states: Vec<_> = servers.status().into_iter().map(|server| server.state).collect();
        assert_eq!(states[0], ServerState::Up);
        assert_eq!(states[2], ServerState::Down { since });
    }

    #[test]
    fn other_servers_differ_from_the_configured_ones() {
        let servers = servers(ServerMode::Priority);
        let matches = |urls: &[&str]| servers.matches(&urls.iter().map(|url| url.parse().unwrap()).collect::<Vec<_>>());
        assert!(matches(&["http://a", "http://b/", "http://c"]));
        for urls in [
            &["http://a", "http://b"][..],
            &["http://a", "http://b", "https://c"],
            &["http://a", "http://b", "http://c/x"],
        ] {
            assert!(!matches(urls), "{urls:?}");
        }
    }

    #[test]
    fn requests_rotate_over_the_servers_that_are_up() {
        let servers = servers(ServerMode::RoundRobin);
        assert_eq!([servers.order(), servers.order()], [[0, 1, 2], [1, 2, 0]]);
        servers.all[0].set_up(false);
        assert_eq!([servers.order(), servers.order()], [[2, 1, 0], [1, 2, 0]]);
    }

    #[test]
    fn peers_come_last_and_are_no_way_until_a_probe_has_passed() {
        let servers = with_relays(["https://a", "http://b"], &["x", "y"], ServerMode::RoundRobin);
        let names: Vec<_> = servers.iter().map(|server| &*server.name).collect();
        assert_eq!(names, ["a", "b", "a through x", "a through y"], "nothing without TLS goes through a peer");
        assert_eq!(servers.status()[2].state, ServerState::Standby);
        assert_eq!([servers.order(), servers.order()], [[0, 1, 2, 3], [1, 0, 2, 3]]);
        servers.all[0].set_up(false);
        servers.all[1].set_up(false);
        assert!(servers.are_down() && servers.down_since().is_some());
        servers.all[3].set_up(true);
        assert!(!servers.are_down() && servers.down_since().is_none());
        assert_eq!((servers.order(), servers.in_use()), (vec![3, 0, 1, 2], 3));
        servers.all[2].set_up(true);
        assert_eq!(servers.in_use(), 2, "the first of them");
        servers.all[0].set_up(true);
        assert_eq!(servers.in_use(), 0);
        assert_eq!(servers.order()[0], 0, "a direct way is preferred");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_answers_begins_again_after_a_failure() {
        let first = Probe::after(None, true);
        tokio::time::sleep(Duration::from_secs(4)).await;
        let second = Probe::after(Some(first), true);
        assert_eq!(second.answers_for().as_secs(), 4);
        let failed = Probe::after(Some(second), false);
        assert!(!failed.is_answered() && failed.answers_for().is_zero());
        assert!(Probe::after(Some(failed), true).answers_for().is_zero());
    }
}
