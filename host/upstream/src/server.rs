//! The API servers: which of them work, and in which order they are asked.
//!
//! A server counts as down when it cannot be connected to, or a probe of its `/readyz` fails. Servers that are down are
//! asked last, never left out: a wrong judgement costs time and no answer. Only while all of them are silent
//! ([`super::silence`]) requests fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Uri;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::Base;
use crate::connect::SetupError;
use crate::silence::Silence;

/// Which of several API servers is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerMode {
    /// All that work, in turn.
    #[default]
    RoundRobin,
    /// The first one that works, in the order given.
    Priority,
}

/// All of them, in the order given.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<Server>,
    mode: ServerMode,
    turn: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) base: Base,
    up: AtomicBool,
    /// Whether it sends anything at all.
    pub(super) silence: Silence,
    /// Notified when it goes down: from then on it is probed.
    pub(super) fell: Notify,
    /// When it was last probed, and whether it worked. Held during a probe, so that requests share its result.
    pub(super) probed: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Servers {
    pub(super) fn new<'a>(urls: impl IntoIterator<Item = &'a Uri>, mode: ServerMode) -> Result<Self, SetupError> {
        let all = urls.into_iter().map(Server::new).collect::<Result<_, _>>()?;
        Ok(Self { all, mode, turn: AtomicUsize::new(0) })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Server> {
        self.all.get(at)
    }

    /// Whether none of them sends anything.
    pub(super) fn are_silent(&self) -> bool {
        self.all.iter().all(|server| server.silence.is_silent())
    }

    /// Their names, for people.
    pub(super) fn names(&self) -> String {
        self.all.iter().map(|server| &*server.name).collect::<Vec<_>>().join(", ")
    }

    /// Whether these are the same ones in the same order.
    pub(super) fn are(&self, urls: &[Uri]) -> bool {
        let same = |(server, url): (&Server, &Uri)| Base::new(url).is_ok_and(|base| base == server.base);
        urls.len() == self.all.len() && self.all.iter().zip(urls).all(same)
    }

    /// Whom to ask, and whom next if that fails.
    pub(super) fn order(&self) -> Vec<usize> {
        let first = match self.mode {
            ServerMode::Priority => 0,
            ServerMode::RoundRobin => self.turn.fetch_add(1, Ordering::Relaxed),
        };
        let mut order: Vec<usize> = (0..self.all.len()).map(|at| at.wrapping_add(first) % self.all.len()).collect();
        // Stable: among those that work the order stays.
        order.sort_by_key(|at| self.all.get(*at).is_some_and(|server| !server.is_up()));
        order
    }
}

impl Server {
    fn new(url: &Uri) -> Result<Self, SetupError> {
        let base = Base::new(url)?;
        Ok(Self {
            name: base.name(),
            base,
            up: AtomicBool::new(true),
            silence: Silence::default(),
            fell: Notify::new(),
            probed: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Takes note of whether it works; true when that is news.
    pub(super) fn turns(&self, up: bool) -> bool {
        let news = self.up.swap(up, Ordering::AcqRel) != up;
        if news && !up {
            self.fell.notify_one();
        }
        news
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
    fn the_preferred_server_is_asked_first_unless_it_is_down_and_again_when_it_is_back() {
        let servers = servers(ServerMode::Priority);
        assert_eq!(servers.order(), [0, 1, 2]);
        assert!(servers.all[0].turns(false));
        assert!(!servers.all[0].turns(false), "no news");
        assert_eq!(servers.order(), [1, 2, 0]);
        servers.all[0].turns(true);
        assert_eq!(servers.order(), [0, 1, 2]);
    }

    #[test]
    fn other_servers_are_told_from_the_same_ones() {
        let servers = servers(ServerMode::Priority);
        let are = |urls: &[&str]| servers.are(&urls.iter().map(|url| url.parse().unwrap()).collect::<Vec<_>>());
        assert!(are(&["http://a", "http://b/", "http://c"]));
        for urls in [
            &["http://a", "http://b"][..],
            &["http://a", "http://b", "https://c"],
            &["http://a", "http://b", "http://c/x"],
        ] {
            assert!(!are(urls), "{urls:?}");
        }
    }

    #[test]
    fn all_that_work_are_asked_in_turn() {
        let servers = servers(ServerMode::RoundRobin);
        assert_eq!([servers.order(), servers.order()], [[0, 1, 2], [1, 2, 0]]);
        servers.all[0].turns(false);
        assert_eq!([servers.order(), servers.order()], [[2, 1, 0], [1, 2, 0]]);
    }
}
