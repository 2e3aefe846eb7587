//! How a watch that continues from a version joins the history of its view.

use weir_runtime::ChainVersion;

use super::older::{OlderBatch, OlderEvents};
use super::watch::{CachedWatch, Phase, StateReason};
use super::{CacheableRequest, CachedRead, Start};
use crate::proxy::Proxy;
use crate::proxy::respond::StatusError;
use crate::proxy::resume::ClientKey;
use crate::view::{EarlierEvent, HeldState, View, WatchStart};

/// How a watch begins; `None` if it begins before the view's history.
pub(super) fn phase(read: &CachedRead, view: &View) -> Option<Phase> {
    Some(match read.start {
        Start::Any => Phase::State { state: view.whole_state(), reason: StateReason::Start },
        Start::NotOlderThan(version) => Phase::NotOlderThan(version),
        Start::Now => Phase::Events { position: view.snapshot_and_position().1 },
        Start::Exact => return None,
        Start::After(version) if view.is_too_old(version) => return None,
        Start::After(version) => Phase::After { version, earlier: None },
    })
}

/// Begins a watch before the view's history. `None`: the API server does not answer with events.
pub(super) async fn older_phase(
    proxy: &Proxy,
    request: &CacheableRequest,
    read: &CachedRead,
    view: &View,
) -> Option<Phase> {
    let Start::After(version) = read.start else { return None };
    let chain = view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED);
    let is_shown = matches!(held(proxy, read, view, version), HeldState::Listed | HeldState::Shown);
    let events = OlderEvents::start(proxy, request, read.media_type, is_shown.then_some(chain)).await?;
    Some(Phase::Older(Box::new(events)))
}

/// What is known of the state that a client holds at a version.
fn held(proxy: &Proxy, read: &CachedRead, view: &View, version: u64) -> HeldState {
    if read.for_peer {
        return HeldState::Listed;
    }
    let chain = view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED);
    // Since then the client has got the API server's events, if it starts before the history.
    let start = if let Start::After(start) = read.start { start } else { version }.to_string();
    // Others with the same name may have listed. Over HTTP/1 a client has several connections, so that they do not tell.
    let is_listed = |client: &ClientKey| {
        read.lists.as_ref().is_none_or(|lists| lists.contain(client.read()))
            && proxy.resume.was_made_by(client, chain, &start)
    };
    if is_listed(&read.client) {
        HeldState::Listed
    } else if proxy.chain_starts.covers(chain, &read.resource.resource, &start) {
        HeldState::Shown
    } else if is_listed(&read.any_read) {
        HeldState::ListedByAny
    } else {
        HeldState::Unknown
    }
}

impl CachedWatch {
    /// Joins the history after a version, or waits until the view has reached it. A client with `earlier` events of before the
    /// history has got none of them, and gets the whole state. Returns false if the view has not reached the version.
    pub(super) fn join(&mut self, version: u64, earlier: Option<Vec<EarlierEvent>>) -> Result<bool, StatusError> {
        let held = match &earlier {
            Some(_) => HeldState::Incomplete,
            None => held(&self.proxy, &self.read, &self.view, version),
        };
        match self.view.watch_start(version, held) {
            WatchStart::At { position, lacking } => {
                self.version = version;
                self.phase = Phase::Events { position };
                self.catch_up(&lacking)?;
            }
            WatchStart::State(mut state) => {
                tracing::debug!(
                    path = self.read.resource.collection,
                    component = self.read.component,
                    version,
                    "the client's state is not known, it gets all objects"
                );
                state.add(earlier.unwrap_or_default());
                self.phase = Phase::State { state, reason: StateReason::Unknown };
            }
            WatchStart::Ahead => {
                self.phase = Phase::After { version, earlier };
                return Ok(false);
            }
            // The history has moved on meanwhile. The client continues with another watch.
            WatchStart::TooOld => self.over = true,
        }
        Ok(true)
    }

    /// Follows the API server's events until they reach the view's history.
    pub(super) async fn follow_older(&mut self) -> Result<(), StatusError> {
        let Phase::Older(older) = &mut self.phase else { return Ok(()) };
        let batch = tokio::select! {
            batch = older.next(&self.proxy, &self.request, &self.view) => batch?,
            () = &mut self.deadline => OlderBatch::end(),
            () = self.proxy.tasks.stopping() => OlderBatch::end(),
        };
        self.ready.extend(batch.events);
        self.over |= batch.ended;
        let Some(version) = batch.version.filter(|_| !self.over) else { return Ok(()) };
        self.version = version;
        if !self.view.is_too_old(version) {
            // Only a BOOKMARK may be ahead of a view that has all events: a quiet resource gets one a minute. Where no event
            // is in between, the view's version is the same state.
            let start = version.min(self.view.snapshot().version.max(older.last_event()));
            let earlier = older.take_collected();
            self.join(start, earlier)?;
            self.version = version;
        }
        Ok(())
    }
}
