//! The state of each API server, and the order in which requests try them.
//!
//! A server is down when connecting to it or a probe of its `/readyz` fails. Requests try servers that are down last, but
//! never skip them, so that a wrong state delays a request but does not fail it. Requests fail at once only while all
//! servers are unresponsive ([`crate::unanswered_probes`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use http::Uri;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;
use crate::connect::SetupError;
use crate::server_address::ServerAddress;
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

/// All API servers, in the configured order.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<Server>,
    mode: ServerMode,
    /// The number of requests so far, for [`ServerMode::RoundRobin`].
    requests: AtomicUsize,
}

/// One API server.
#[derive(Debug)]
pub(super) struct Server {
    /// `host[:port]`.
    pub(super) name: Arc<str>,
    pub(super) address: ServerAddress,
    up: AtomicBool,
    /// When the server went down, for reports only.
    down_since: Mutex<Option<SystemTime>>,
    /// Tells whether the server sends anything at all.
    pub(super) unanswered_probes: UnansweredProbes,
    /// Notified when the server goes down, to start probing it.
    pub(super) went_down: Notify,
    /// The time and result of the last probe. Locked during a probe, so that requests share its result.
    pub(super) last_probe: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Servers {
    pub(super) fn new<'a>(urls: impl IntoIterator<Item = &'a Uri>, mode: ServerMode) -> Result<Self, SetupError> {
        let all = urls.into_iter().map(Server::new).collect::<Result<_, _>>()?;
        Ok(Self { all, mode, requests: AtomicUsize::new(0) })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Server> {
        self.all.get(index)
    }

    /// Returns whether all servers are unresponsive.
    pub(super) fn are_unresponsive(&self) -> bool {
        self.all.iter().all(|server| server.unanswered_probes.is_unresponsive())
    }

    /// Returns whether no server is up, or all of them are unresponsive.
    pub(super) fn are_down(&self) -> bool {
        self.are_unresponsive() || self.all.iter().all(|server| !server.is_up())
    }

    /// Returns when the last server went down; `None` while one is up.
    pub(super) fn down_since(&self) -> Option<SystemTime> {
        let since = |server: &Server| *server.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.all.iter().map(since).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the names of all servers, for messages.
    pub(super) fn names(&self) -> String {
        self.all.iter().map(|server| &*server.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the URLs name these servers in this order.
    pub(super) fn matches(&self, urls: &[Uri]) -> bool {
        let same =
            |(server, url): (&Server, &Uri)| ServerAddress::new(url).is_ok_and(|address| address == server.address);
        urls.len() == self.all.len() && self.all.iter().zip(urls).all(same)
    }

    /// Returns the indexes of the servers in the order to try them.
    pub(super) fn order(&self) -> Vec<usize> {
        let first = match self.mode {
            ServerMode::Priority => 0,
            ServerMode::RoundRobin => self.requests.fetch_add(1, Ordering::Relaxed),
        };
        let mut order: Vec<usize> =
            (0..self.all.len()).map(|index| index.wrapping_add(first) % self.all.len()).collect();
        // The sort is stable and keeps the order of the servers that are up.
        order.sort_by_key(|index| self.all.get(*index).is_some_and(|server| !server.is_up()));
        order
    }
}

impl Server {
    fn new(url: &Uri) -> Result<Self, SetupError> {
        let address = ServerAddress::new(url)?;
        Ok(Self {
            name: address.name(),
            address,
            up: AtomicBool::new(true),
            down_since: Mutex::default(),
            unanswered_probes: UnansweredProbes::default(),
            went_down: Notify::new(),
            last_probe: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
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
        let urls: Vec<Uri> = ["http://a", "http://b", "http://c"].map(|url| url.parse().unwrap()).into();
        Servers::new(&urls, mode).unwrap()
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
}
