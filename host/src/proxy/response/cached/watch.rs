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
use tokio::time::{Instant, Sleep};
use weir_document::json::EventType;
use weir_kube::Verb;
use weir_runtime::ChainVersion;
use weir_store::cache::ObjectFormat;

use super::older::OlderEvents;
use super::watch_start::{older_phase, phase};
use super::{CacheableRequest, CachedRead, Start, head};
use crate::config::ResendMode;
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody};
use crate::proxy::respond::StatusError;
use crate::view::{EarlierEvent, OpenWatch, StateItem, View, WholeState};

/// The most events that are taken from the history at once.
const BATCH: usize = 64;
/// The size up to which small events leave together.
const CHUNK: usize = 16 << 10;
/// An event of this size leaves by itself. Copying it costs more than the connection's work for one more buffer.
const LARGE: usize = 2 << 10;
/// The interval of bookmarks; as kube-apiserver.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long before its end a watch sends its last bookmark; as kube-apiserver. The client's next watch starts there.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The shortest time after which a watch without `timeoutSeconds` ends; as kube-apiserver, the longest is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// An open watch.
pub(super) struct CachedWatch {
    pub(super) proxy: Arc<Proxy>,
    pub(super) request: Arc<CacheableRequest>,
    pub(super) read: CachedRead,
    pub(super) view: Arc<View>,
    /// The view counts it and observes its position.
    pub(super) open: OpenWatch,
    /// The view's. A view that changes it starts a new history, which ends its watches.
    pub(super) format: ObjectFormat,
    changes: tokio::sync::watch::Receiver<Option<u64>>,
    pub(super) phase: Phase,
    /// The version that the client has got.
    pub(super) version: u64,
    /// How the client gets what changes at an unchanged resourceVersion.
    pub(super) resend: ResendMode,
    /// The chain version that made the view's objects when the watch began.
    began_with: Option<ChainVersion>,
    /// Encoded events that leave next.
    pub(super) ready: VecDeque<Bytes>,
    /// Whether the client gets a BOOKMARK at the end of the history: events without a version of their own were sent.
    pub(super) bookmark_due: bool,
    next_bookmark: Pin<Box<Sleep>>,
    pub(super) deadline: Pin<Box<Sleep>>,
    /// The time up to the deadline.
    lasts: Duration,
    /// Resolves when the daemon stops.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) over: bool,
}

/// How far a watch is.
pub(super) enum Phase {
    /// Starts with all objects once the view has reached this version.
    NotOlderThan(u64),
    /// The client's version is older than the view's history: its events come from the API server.
    Older(Box<OlderEvents>),
    /// Continues after this version once the view has reached it. A client with `earlier` events of before the history has got
    /// none of them, and gets the whole state.
    After { version: u64, earlier: Option<Vec<EarlierEvent>> },
    /// The client gets the whole state.
    State { state: WholeState, reason: StateReason },
    /// At this position.
    Events { position: u64 },
}

/// Why a client gets the whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateReason {
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
    if let Start::After(version) = read.start
        && view.jumped_over(version)
    {
        let expired = StatusError::Expired("the watch cache has skipped this version");
        return Some(expired.response(read.media_type.encoding));
    }
    let phase = match phase(&read, &view) {
        Some(phase) => phase,
        None => older_phase(proxy, request, &read, &view).await?,
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

impl CachedWatch {
    fn new(proxy: Arc<Proxy>, request: Arc<CacheableRequest>, read: CachedRead, view: Arc<View>, phase: Phase) -> Self {
        proxy.metrics.watches().inc();
        let open = view.open_watch(&read.selector, request.close.clone());
        let (tasks, closed) = (proxy.tasks.clone(), view.closed().clone());
        let timeout = match read.options.timeout_seconds.and_then(|seconds| seconds.try_into().ok()) {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => MIN_TIMEOUT.mul_f64(1.0 + fastrand::f64()),
        };
        let snapshot = view.snapshot();
        let deadline = Instant::now() + timeout;
        Self {
            changes: view.subscribe(),
            resend: proxy.resend.of(&read.component),
            format: snapshot.format.clone(),
            version: snapshot.version,
            began_with: snapshot.chain,
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            lasts: timeout,
            next_bookmark: Box::pin(tokio::time::sleep_until(next_bookmark(deadline))),
            stopping: Box::pin(async move {
                tokio::select! {
                    () = tasks.stopping() => {}
                    () = closed.cancelled_owned() => {}
                }
            }),
            open,
            proxy,
            request,
            read,
            view,
            phase,
            ready: VecDeque::new(),
            bookmark_due: false,
            over: false,
        }
    }

    /// Returns the next complete events; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Small objects of the state leave together.
            if !self.gathers()
                && let Some(events) = self.take_ready()
            {
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
                    let request: (&dyn std::fmt::Display, &str) =
                        (&self.read.resource.collection, &self.read.component);
                    self.proxy.failures.warn("watch ended with an ERROR event", request, None, &error);
                    self.ready.push_back(error.event(self.read.media_type.encoding));
                    self.over = true;
                }
            }
        }
    }

    /// Whether more of the state is encoded before what is ready leaves.
    fn gathers(&self) -> bool {
        let bytes = || self.ready.iter().map(Bytes::len).sum::<usize>();
        matches!(self.phase, Phase::State { .. }) && !self.over && self.ready.len() < BATCH && bytes() < CHUNK
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
        Some(self.view.counted(chunk.into()))
    }

    /// The events from here on are still to be sent.
    fn position(&self) -> u64 {
        match &self.phase {
            Phase::State { state, .. } => state.position,
            Phase::Events { position } => *position,
            Phase::NotOlderThan(_) | Phase::Older(_) | Phase::After { .. } => u64::MAX,
        }
    }

    /// Encodes what the client gets next. Returns false if there is nothing yet.
    fn advance(&mut self) -> Result<bool, StatusError> {
        match &mut self.phase {
            Phase::Older(_) => Ok(false),
            Phase::NotOlderThan(version) => {
                let reached = self.view.has_reached(*version);
                if reached {
                    self.phase = Phase::State { state: self.view.whole_state(), reason: StateReason::Start };
                }
                Ok(reached)
            }
            Phase::After { version, earlier } => {
                let (version, earlier) = (*version, earlier.take());
                self.join(version, earlier)
            }
            Phase::State { state, reason } => {
                let (item, reason) = (state.next(), *reason);
                let end = state.is_empty().then_some((state.version, state.position));
                if let Some(item) = item {
                    self.state_item(&item, reason)?;
                }
                if let Some((version, position)) = end {
                    self.version = version;
                    self.phase = Phase::Events { position };
                    self.bookmark_due |= reason == StateReason::Unknown;
                    if reason == StateReason::Start && self.read.is_watch_list() {
                        self.bookmark(true)?;
                    }
                }
                Ok(true)
            }
            Phase::Events { position } => {
                let from = *position;
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
                if events.is_empty() && self.bookmark_due {
                    return self.bookmark(false).map(|()| true);
                }
                self.phase = Phase::Events { position: from + events.len() as u64 };
                events.iter().try_for_each(|event| self.event(event))?;
                Ok(!events.is_empty())
            }
        }
    }

    fn state_item(&mut self, item: &StateItem, reason: StateReason) -> Result<(), StatusError> {
        match item {
            StateItem::Object(object) => match reason {
                StateReason::Start => self.object(EventType::Added, object),
                StateReason::Unknown if object.shown().is_none() => self.object(EventType::Deleted, object),
                StateReason::Unknown => {
                    let event_types = self.resent();
                    event_types.iter().try_for_each(|event_type| self.object(*event_type, object))
                }
            },
            StateItem::Earlier(event) => {
                self.ready.push_back(event.encoded.clone());
                Ok(())
            }
        }
    }

    /// Waits for the next event, bookmark or end.
    async fn wait(&mut self) {
        tokio::select! {
            changed = self.changes.changed() => self.over = changed.is_err(),
            () = &mut self.next_bookmark => {
                self.bookmark_due = matches!(self.phase, Phase::Events { .. });
                self.next_bookmark.as_mut().reset(next_bookmark(self.deadline.deadline()));
            }
            () = &mut self.deadline => self.end_in_time(),
            () = &mut self.stopping => self.over = true,
        }
    }

    /// Ends a watch whose time is over. One that is too short for a last bookmark before its end has it then.
    fn end_in_time(&mut self) {
        self.over = true;
        if self.lasts <= LAST_BOOKMARK && matches!(self.phase, Phase::Events { .. }) {
            // Without it the client continues where it is.
            let _ = self.bookmark(false);
        }
    }
}

/// When a watch with this deadline sends its next bookmark.
fn next_bookmark(deadline: Instant) -> Instant {
    let now = Instant::now();
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    last.map_or(now + BOOKMARKS, |last| last.min(now + BOOKMARKS))
}

impl Drop for CachedWatch {
    fn drop(&mut self) {
        self.proxy.metrics.watches().dec();
        // If no filter matches any more, the client may not have got what follows from that.
        let chain = self.view.snapshot().chain.or(self.began_with);
        self.proxy.remember_watch(&self.read, chain, self.version);
    }
}
