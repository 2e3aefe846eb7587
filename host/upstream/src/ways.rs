//! Which ways to the API servers work, and what is published of that.
//!
//! A way is direct, or a tunnel through a peer. Tunnels come last, and count only while no direct way is up. One change at a time
//! is made and published, so that of two the later one counts both. Readers of conditions take no lock.

use std::ops::Deref;
use std::time::SystemTime;

use weir_process::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use weir_process::sync::{Mutex, MutexGuard, PoisonError, watch};

use crate::clock;
use crate::unanswered_probes::UnansweredProbes;

/// A server that was down is up again after this many answers in a row.
const CONFIRMATIONS: u32 = 2;

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

/// The state of one way to an API server.
#[derive(Debug)]
pub(super) struct Way {
    is_relayed: bool,
    /// A [`Condition`].
    condition: AtomicU8,
    /// The number of answers in a row while the server is down.
    answers: AtomicU32,
    /// When the server went down, for reports only. Locked while the condition changes.
    down_since: Mutex<Option<SystemTime>>,
    /// Counts probes to which the server sent nothing.
    pub(super) unanswered_probes: UnansweredProbes,
}

/// All ways: the direct ones in the configured order, then those through peers.
#[derive(Debug)]
pub(super) struct Ways<S> {
    all: Vec<S>,
    /// The number of direct ways.
    direct: usize,
    changing: Mutex<()>,
    /// Whether not all are down.
    reachable: watch::Sender<bool>,
    /// [`Ways::in_use`].
    in_use: watch::Sender<usize>,
}

/// The right to change the condition of a way. There is one at a time.
#[derive(Debug)]
pub(super) struct Changing<'a, S> {
    ways: &'a Ways<S>,
    _one: MutexGuard<'a, ()>,
}

impl Way {
    /// A direct way counts as up until it fails, one through a peer as down until a probe has passed.
    pub(super) fn new(is_relayed: bool) -> Self {
        Self {
            is_relayed,
            condition: AtomicU8::new(if is_relayed { Condition::Down } else { Condition::Up } as u8),
            answers: AtomicU32::new(0),
            down_since: Mutex::default(),
            unanswered_probes: UnansweredProbes::default(),
        }
    }

    pub(super) fn condition(&self) -> Condition {
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

    /// When the server went down.
    pub(super) fn down_since(&self) -> Option<SystemTime> {
        *self.since()
    }

    /// Counts an answer. Returns whether the server may count as up: one that was down needs two answers in a row, as a flapping
    /// link lets single ones through. A way through a peer needs one.
    pub(super) fn confirm(&self) -> bool {
        self.is_relayed || !self.is_down() || self.answers.fetch_add(1, Ordering::AcqRel) + 1 >= CONFIRMATIONS
    }

    /// Whether the server, which is down, has answered often enough to count as up.
    pub(super) fn is_confirmed(&self) -> bool {
        self.answers.load(Ordering::Acquire) >= CONFIRMATIONS
    }

    /// Continues an outage that began before the daemon started, if the next probe does not end it.
    pub(super) fn resume_outage(&self, since: SystemTime) {
        self.unanswered_probes.expect_none();
        *self.since() = Some(since);
    }

    /// Sets the condition, and returns whether that is a change. A server that is seen as down has been so since a known time.
    fn set(&self, condition: Condition) -> bool {
        let is_down = condition == Condition::Down;
        if is_down {
            self.answers.store(0, Ordering::Release);
        }
        let mut since = self.since();
        *since = is_down.then(|| since.unwrap_or_else(clock::now));
        self.condition.swap(condition as u8, Ordering::AcqRel) != condition as u8
    }

    /// A way through a peer is not used any more. That is no outage.
    fn rest(&self) {
        let mut since = self.since();
        self.condition.store(Condition::Down as u8, Ordering::Release);
        *since = None;
    }

    fn since(&self) -> MutexGuard<'_, Option<SystemTime>> {
        self.down_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Deref<Target = Way>> Ways<S> {
    pub(super) fn new(all: Vec<S>, direct: usize) -> Self {
        let (reachable, in_use) = (watch::Sender::new(true), watch::Sender::new(0));
        Self { all, direct, changing: Mutex::default(), reachable, in_use }
    }

    /// Begins a change. Later ones wait until the result is dropped.
    pub(super) fn change(&self) -> Changing<'_, S> {
        Changing { ways: self, _one: self.changing.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Whether not all ways are down, as it is published.
    pub(super) fn reachable(&self) -> watch::Receiver<bool> {
        self.reachable.subscribe()
    }

    /// [`Ways::in_use`], as it is published.
    pub(super) fn used(&self) -> watch::Receiver<usize> {
        self.in_use.subscribe()
    }

    pub(super) fn get(&self, index: usize) -> Option<&S> {
        self.all.get(index)
    }

    pub(super) fn all(&self) -> &[S] {
        &self.all
    }

    /// The direct ways.
    pub(super) fn direct(&self) -> &[S] {
        self.all.get(..self.direct).unwrap_or_default()
    }

    /// The ways through peers.
    fn relayed(&self) -> &[S] {
        self.all.get(self.direct..).unwrap_or_default()
    }

    /// Whether a direct way is up.
    pub(super) fn has_direct(&self) -> bool {
        self.direct().iter().any(|way| way.is_up())
    }

    /// Whether a way through a peer is up.
    pub(super) fn has_relayed(&self) -> bool {
        self.relayed().iter().any(|way| way.is_up())
    }

    /// The index of the first way through a peer that is up; 0 while a direct way is up, and the maximum while none is.
    pub(super) fn in_use(&self) -> usize {
        if self.has_direct() {
            return 0;
        }
        let relayed = self.relayed().iter().position(|way| way.is_up());
        relayed.map_or(usize::MAX, |index| self.direct + index)
    }

    /// Returns whether all servers are unresponsive, and no peer relays to one.
    pub(super) fn are_unresponsive(&self) -> bool {
        self.direct().iter().all(|way| way.unanswered_probes.is_unresponsive()) && !self.has_relayed()
    }

    /// Returns whether any server has sent anything since the start.
    pub(super) fn have_answered(&self) -> bool {
        self.all.iter().any(|way| way.unanswered_probes.has_answered())
    }

    /// Returns whether all servers are down, or all of them are unresponsive.
    pub(super) fn are_down(&self) -> bool {
        self.are_unresponsive() || self.all.iter().all(|way| way.is_down())
    }

    /// Returns when the last server went down; `None` while one is not.
    pub(super) fn down_since(&self) -> Option<SystemTime> {
        if !self.all.iter().all(|way| way.is_down()) {
            return None;
        }
        self.all.iter().filter_map(|way| way.down_since()).max()
    }
}

impl<S: Deref<Target = Way>> Changing<'_, S> {
    /// Sets the condition of a way, and returns whether that is a change.
    pub(super) fn set(&self, index: usize, condition: Condition) -> bool {
        let is_changed = self.ways.get(index).is_some_and(|way| way.set(condition));
        if is_changed {
            self.publish();
        }
        is_changed
    }

    /// Ends the use of a way through a peer, unless there is no better one any more. Returns whether it has ended.
    pub(super) fn rest(&self, index: usize) -> bool {
        let replaced = self.ways.get(index).filter(|_| self.ways.in_use() < index);
        replaced.inspect(|way| way.rest()).is_some()
    }

    fn publish(&self) {
        let (reachable, in_use) = (!self.ways.are_down(), self.ways.in_use());
        self.ways.reachable.send_if_modified(|before| std::mem::replace(before, reachable) != reachable);
        self.ways.in_use.send_if_modified(|before| std::mem::replace(before, in_use) != in_use);
    }
}
