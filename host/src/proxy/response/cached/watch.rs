//! A watch from a view, while it is open.
//!
//! Each watch follows the view's history at its own position. Events are references to the history's bytes, encoded once
//! for all clients of an encoding, and the connection writes them from there.
//!
//! A client that is too slow for the history is ended, alone, and without an ERROR event: as the API server's own watch
//! cache does. The client continues with another watch from its last version. If it reads nothing at all, the view closes its
//! connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};
use weir_document::json::EventType;
use weir_kube::Verb;
use weir_runtime::ChainVersion;
use weir_store::cache::ObjectFormat;

use super::older::{OlderBatch, OlderEvents};
use super::{CacheableRequest, CachedRead, Start, head};
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody};
use crate::proxy::respond::StatusError;
use crate::view::{CatchUp, HeldState, OpenWatch, View, ViewObject, WatchStart};

/// The most events that are taken from the history at once.
const BATCH: usize = 64;
/// The size up to which small events leave together.
const CHUNK: usize = 16 << 10;
/// An event of this size leaves by itself. Copying it costs more than the connection's work for one more buffer.
const LARGE: usize = 2 << 10;
/// The interval of bookmarks; as kube-apiserver.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The shortest time after which a watch without `timeoutSeconds` ends; as kube-apiserver, the longest is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// An open watch.
pub(super) struct CachedWatch {
    proxy: Arc<Proxy>,
    request: Arc<CacheableRequest>,
    pub(super) read: CachedRead,
    pub(super) view: Arc<View>,
    /// The view counts it and observes its position.
    pub(super) open: OpenWatch,
    /// The view's. A view that changes it starts a new history, which ends its watches.
    pub(super) format: ObjectFormat,
    changes: tokio::sync::watch::Receiver<Option<u64>>,
    phase: Phase,
    /// The version that the client has got.
    pub(super) version: u64,
    /// Encoded events that leave next.
    pub(super) ready: VecDeque<Bytes>,
    /// Whether the client gets a BOOKMARK at the end of the history: events without a version of their own were sent.
    pub(super) bookmark_due: bool,
    bookmarks: Interval,
    deadline: Pin<Box<Sleep>>,
    /// Resolves when the daemon stops.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

/// How far a watch is.
enum Phase {
    /// Starts with all objects once the view has reached this version.
    NotOlderThan(u64),
    /// The client's version is older than the view's history: its events come from the API server.
    Older(Box<OlderEvents>),
    /// Continues after this version once the view has reached it.
    After(u64),
    /// The client gets these objects, which are the whole state at a version, and the position follows them.
    State { version: u64, rest: VecDeque<Arc<ViewObject>>, position: u64, reason: StateReason },
    /// At this position. If what the client holds is not known, it gets the whole state at the end of the history.
    Events { position: u64, reconcile: bool },
}

/// Why a client gets the whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateReason {
    /// It asked for it: its watch starts with all objects.
    Start,
    /// What it was shown is not known: objects that it may hold are changed, and hidden ones deleted.
    Unknown,
}

/// Responds to a watch; `None` if only the API server can, whose history reaches back further than the view's.
pub(super) async fn watch(
    proxy: &Arc<Proxy>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    view: Arc<View>,
) -> Option<Response<ResponseBody>> {
    let phase = match phase(&read, &view) {
        Some(phase) => phase,
        None => Phase::Older(Box::new(OlderEvents::start(proxy, request, read.media_type).await?)),
    };
    respond(proxy, request, read, view, phase)
}

/// Responds to a watch; `None` if it begins before the view's history.
pub(super) fn watch_within_history(
    proxy: &Arc<Proxy>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    view: Arc<View>,
) -> Option<Response<ResponseBody>> {
    let phase = phase(&read, &view)?;
    respond(proxy, request, read, view, phase)
}

/// How a watch begins; `None` if it begins before the view's history.
fn phase(read: &CachedRead, view: &View) -> Option<Phase> {
    Some(match read.start {
        Start::Any => whole_state(view, StateReason::Start),
        Start::NotOlderThan(version) => Phase::NotOlderThan(version),
        Start::Now => Phase::Events { position: view.snapshot_and_position().1, reconcile: false },
        Start::After(version) if matches!(view.watch_start(version, HeldState::Unknown), WatchStart::TooOld) => {
            return None;
        }
        Start::After(version) => Phase::After(version),
    })
}

fn respond(
    proxy: &Arc<Proxy>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    view: Arc<View>,
    phase: Phase,
) -> Option<Response<ResponseBody>> {
    let encoding = read.media_type.encoding;
    let watch = CachedWatch::new(proxy.clone(), request.clone(), read, view, phase);
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
    });
    head(encoding, Verb::Watch).body(StreamBody::new(events).boxed_unsync()).ok()
}

fn whole_state(view: &View, reason: StateReason) -> Phase {
    let (snapshot, position) = view.snapshot_and_position();
    let rest = snapshot.objects.values().cloned().collect();
    Phase::State { version: snapshot.version, rest, position, reason }
}

impl CachedWatch {
    fn new(proxy: Arc<Proxy>, request: Arc<CacheableRequest>, read: CachedRead, view: Arc<View>, phase: Phase) -> Self {
        proxy.metrics.watches().inc();
        let open = view.open_watch(&read.selector, request.close.clone());
        let tasks = proxy.tasks.clone();
        let seconds = read.query.first("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
        let timeout = match seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => MIN_TIMEOUT.mul_f64(1.0 + fastrand::f64()),
        };
        let snapshot = view.snapshot();
        let mut bookmarks = tokio::time::interval_at(Instant::now() + BOOKMARKS, BOOKMARKS);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            changes: view.subscribe(),
            format: snapshot.format.clone(),
            version: snapshot.version,
            deadline: Box::pin(tokio::time::sleep(timeout)),
            stopping: Box::pin(async move { tasks.stopping().await }),
            open,
            proxy,
            request,
            read,
            view,
            phase,
            ready: VecDeque::new(),
            bookmark_due: false,
            bookmarks,
            over: false,
        }
    }

    /// Returns the next complete events; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(events) = self.take_ready() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            self.open.at(self.position());
            let advanced = match self.phase {
                Phase::Older(_) => self.follow_older().await.map(|()| true),
                _ => self.advance(),
            };
            match advanced {
                Ok(true) => {}
                Ok(false) => self.wait().await,
                Err(error) => {
                    tracing::warn!(path = self.read.resource.collection, component = self.read.component, %error, "watch ended with an ERROR event");
                    self.ready.push_back(error.event(self.read.media_type.encoding));
                    self.over = true;
                }
            }
        }
    }

    /// Returns the next ready event, or several small ones as one chunk.
    fn take_ready(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        let is_small = |next: &&Bytes| next.len() < LARGE;
        if first.len() >= LARGE || self.ready.front().filter(is_small).is_none() {
            return Some(first);
        }
        let mut chunk = Vec::with_capacity(CHUNK);
        chunk.extend_from_slice(&first);
        while let Some(next) = self.ready.front().filter(is_small).filter(|next| chunk.len() + next.len() <= CHUNK) {
            chunk.extend_from_slice(next);
            self.ready.pop_front();
        }
        Some(chunk.into())
    }

    /// The events from here on are still to be sent.
    fn position(&self) -> u64 {
        match &self.phase {
            Phase::State { position, .. } | Phase::Events { position, .. } => *position,
            Phase::NotOlderThan(_) | Phase::Older(_) | Phase::After(_) => u64::MAX,
        }
    }

    /// Encodes what the client gets next. Returns false if there is nothing yet.
    fn advance(&mut self) -> Result<bool, StatusError> {
        match &mut self.phase {
            Phase::Older(_) => Ok(false),
            Phase::NotOlderThan(version) => {
                let reached = self.view.snapshot().version >= *version;
                if reached {
                    self.phase = whole_state(&self.view, StateReason::Start);
                }
                Ok(reached)
            }
            Phase::After(version) => {
                let version = *version;
                let held = self.held(version);
                match self.view.watch_start(version, held) {
                    WatchStart::Ahead => return Ok(false),
                    // The history has moved on meanwhile. The client continues with another watch.
                    WatchStart::TooOld => self.over = true,
                    WatchStart::At { position, catch_up } => {
                        self.version = version;
                        self.join(position, held, &catch_up)?;
                    }
                }
                Ok(true)
            }
            Phase::State { version, rest, position, reason } => {
                let (version, position, reason) = (*version, *position, *reason);
                let objects: Vec<_> = rest.drain(..rest.len().min(BATCH)).collect();
                let done = rest.is_empty();
                for object in objects {
                    let event = match reason {
                        StateReason::Start => EventType::Added,
                        StateReason::Unknown if object.shown().is_some() => EventType::Modified,
                        StateReason::Unknown => EventType::Deleted,
                    };
                    self.object(event, &object)?;
                }
                if done {
                    self.version = version;
                    self.phase = Phase::Events { position, reconcile: false };
                    self.bookmark_due |= reason == StateReason::Unknown;
                    if reason == StateReason::Start && self.read.is_watch_list() {
                        self.bookmark(true)?;
                    }
                }
                Ok(true)
            }
            Phase::Events { position, reconcile } => {
                let (from, reconcile) = (*position, *reconcile);
                let Ok(events) = self.view.events_from(from, BATCH) else {
                    tracing::info!(
                        path = self.read.resource.collection,
                        component = self.read.component,
                        "watch ended: the client reads too slowly for the history"
                    );
                    self.view.counters().slow.inc();
                    self.over = true;
                    return Ok(true);
                };
                if events.is_empty() && reconcile {
                    self.reconcile();
                    return Ok(true);
                }
                if events.is_empty() && self.bookmark_due {
                    return self.bookmark(false).map(|()| true);
                }
                self.phase = Phase::Events { position: from + events.len() as u64, reconcile };
                for event in &events {
                    self.event(event, reconcile)?;
                }
                Ok(!events.is_empty())
            }
        }
    }

    /// What is known of the state that the client holds at a version.
    fn held(&self, version: u64) -> HeldState {
        if self.read.for_peer {
            return HeldState::Listed;
        }
        let resume = &self.proxy.resume;
        let chain = self.view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED);
        // Since then the client has got the API server's events, if it starts before the history.
        let start = if let Start::After(start) = self.read.start { start } else { version }.to_string();
        if resume.was_made_by(&self.read.client, chain, &start) {
            HeldState::Listed
        } else if self.proxy.chain_starts.covers(chain, &self.read.resource.resource, &start) {
            HeldState::Shown
        } else if resume.was_made_by(&self.read.any_read, chain, &start) {
            HeldState::ListedByAny
        } else {
            HeldState::Unknown
        }
    }

    /// Continues at a position of the history.
    fn join(&mut self, position: u64, held: HeldState, catch_up: &CatchUp) -> Result<(), StatusError> {
        // The history says what a client lacks that held its state at this version. The events before the history say nothing of
        // objects that they do not concern.
        let starts_here = self.read.start == Start::After(self.version);
        let is_known = starts_here || matches!(held, HeldState::Listed | HeldState::Shown);
        match catch_up {
            CatchUp::Events(events) if is_known => {
                self.phase = Phase::Events { position, reconcile: false };
                self.catch_up(events)
            }
            CatchUp::Events(_) | CatchUp::Everything => {
                self.phase = Phase::Events { position, reconcile: true };
                Ok(())
            }
        }
    }

    /// Sends the events of the API server until they reach the view's history, then the whole state of the view.
    async fn follow_older(&mut self) -> Result<(), StatusError> {
        let Phase::Older(older) = &mut self.phase else { return Ok(()) };
        let batch = tokio::select! {
            batch = older.next(&self.proxy, &self.request) => batch?,
            () = &mut self.deadline => OlderBatch::end(),
            () = self.proxy.tasks.stopping() => OlderBatch::end(),
        };
        self.ready.extend(batch.events);
        self.over |= batch.ended;
        let Some(version) = batch.version else { return Ok(()) };
        self.version = version;
        let held = self.held(version);
        match self.view.watch_start(version, held) {
            WatchStart::At { position, catch_up } => self.join(position, held, &catch_up)?,
            WatchStart::Ahead => self.phase = Phase::After(version),
            WatchStart::TooOld => {}
        }
        Ok(())
    }

    /// Sends the whole state to a client of which it is not known what it was shown.
    fn reconcile(&mut self) {
        let state = whole_state(&self.view, StateReason::Unknown);
        // Events that have come meanwhile are sent first.
        if matches!((&self.phase, &state), (Phase::Events { position: at, .. }, Phase::State { position, .. }) if at == position)
        {
            self.phase = state;
        }
    }

    /// Waits for the next event, bookmark or end.
    async fn wait(&mut self) {
        tokio::select! {
            changed = self.changes.changed() => self.over = changed.is_err(),
            _ = self.bookmarks.tick() => self.bookmark_due = matches!(self.phase, Phase::Events { .. }),
            () = &mut self.deadline => self.over = true,
            () = &mut self.stopping => self.over = true,
        }
    }
}

impl Drop for CachedWatch {
    fn drop(&mut self) {
        self.proxy.metrics.watches().dec();
        self.proxy.remember_watch(&self.read, &self.view.snapshot(), self.version);
    }
}
