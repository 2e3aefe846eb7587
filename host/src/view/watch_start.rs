//! Where a watch starts in a view's history, and what its client lacks before that.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_store::StoreKey;

use super::event::{Cause, ViewEvent};
use super::object::ViewObject;
use super::state::{View, ViewLog, ViewSnapshot};
use super::whole_state::WholeState;

/// How a watch from a resourceVersion starts.
#[derive(Debug)]
pub(crate) enum WatchStart {
    /// At a position of the history.
    At {
        /// The position.
        position: u64,
        /// What the client gets first.
        lacking: Vec<LackingObject>,
    },
    /// With the whole state: what the client was shown is not known.
    State(WholeState),
    /// The version is ahead of the view: wait for its next event.
    Ahead,
    /// The version is older than the history, or the history leads past it: only the API server can serve the watch.
    TooOld,
}

/// An object whose outcome changed without a version of its own, or which changed after that up to the client's version. What
/// the client holds of it, the chain of before may have made.
#[derive(Debug)]
pub(crate) struct LackingObject {
    /// The object before that.
    pub(crate) before: Option<Arc<ViewObject>>,
    /// The last event of the object.
    pub(crate) latest: Arc<ViewEvent>,
    /// Whether the API server changed the object, and the chain of before may have shown that.
    pub(crate) changed: bool,
}

/// What is known of the state that a client holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldState {
    /// It is not complete at the version: what came before is missing.
    Incomplete,
    /// Nothing: filters of before may have made it, also in an earlier process. Other clients with the same name may be
    /// known, which tells nothing of this one.
    Unknown,
    /// What the chain version that made the view's present objects has shown: it was in force when the API server made the
    /// version. A client that was cut off while the view filtered its objects again may lack changes without a version.
    Shown,
    /// A list of the chain version that made the view's present objects, if a client of this process holds it. Another
    /// client with the same name may hold less, so that changes without a version of their own are sent all the same.
    ListedByAny,
    /// The same, and the client itself has listed it.
    Listed,
}

impl View {
    /// Finds the start of a watch that continues from `version`.
    ///
    /// An event without a version of its own may be missing in what the client holds if the client's version is not above
    /// the event's stamp. Such a client gets it once more, and what changed after it up to the client's version.
    pub(crate) fn watch_start(&self, version: u64, held: HeldState) -> WatchStart {
        let log = self.log();
        let snapshot = self.snapshot();
        if !self.has_reached(version) {
            return WatchStart::Ahead;
        }
        if self.is_before_history(version, &snapshot, &log) {
            return WatchStart::TooOld;
        }
        let position = log
            .history
            .iter()
            .find(|(_, event)| event.version > version)
            .map_or(log.history.end(), |(position, _)| position);
        let is_unknown = match held {
            HeldState::Incomplete => true,
            HeldState::Unknown => version <= log.unknown_until.max(log.first_version).max(log.earlier_until),
            HeldState::Shown => version <= log.lost_until,
            HeldState::ListedByAny => version <= log.earlier_until.max(log.lost_until),
            HeldState::Listed => false,
        };
        if is_unknown {
            return WatchStart::State(WholeState::at(version, position, &snapshot, &log));
        }
        WatchStart::At { position, lacking: lacking(version, position, &log) }
    }

    /// Whether only the API server can serve a watch from this version.
    pub(crate) fn is_too_old(&self, version: u64) -> bool {
        let log = self.log();
        self.is_before_history(version, &self.snapshot(), &log)
    }

    /// Whether the store jumped over this version by a list. Nobody knows what a client of it holds: it may have got a part of
    /// the events that the list made, whose deletions do not have their real versions.
    pub(crate) fn jumped_over(&self, version: u64) -> bool {
        self.store.jumped_over(version)
    }

    fn is_before_history(&self, version: u64, snapshot: &ViewSnapshot, log: &ViewLog) -> bool {
        let oldest = log.history.iter().next().map_or(snapshot.version, |(_, event)| event.previous);
        version < oldest || self.jumped_over(version)
    }

    /// The whole state, for a client that holds nothing.
    pub(crate) fn whole_state(&self) -> WholeState {
        let log = self.log();
        let snapshot = self.snapshot();
        WholeState::at(snapshot.version, log.history.end(), &snapshot, &log)
    }
}

/// What a client may lack that continues from `version` at a position of the history.
fn lacking(version: u64, position: u64, log: &ViewLog) -> Vec<LackingObject> {
    let may_lack = |event: &ViewEvent| matches!(event.cause, Cause::Refiltered { stamp } if stamp >= version);
    let events = log.history.iter().take_while(|(at, _)| *at < position).map(|(_, event)| event);
    let mut lacking: BTreeMap<StoreKey, LackingObject> = BTreeMap::new();
    for event in events.skip_while(|event| !may_lack(event)) {
        let Some(key) = event.key() else { continue };
        let first = || LackingObject { before: event.old.clone(), latest: event.clone(), changed: false };
        let object = lacking.entry(key.clone()).or_insert_with(first);
        object.latest = event.clone();
        object.changed |= event.cause == Cause::Upstream;
    }
    lacking.into_values().collect()
}
