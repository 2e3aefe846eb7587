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
use weir_kube::Verb;
use weir_runtime::ChainVersion;
use weir_store::ReflectorError;
use weir_store::cache::ObjectFormat;
use weir_view::machine::{Begin, CatchUpError, Frame as WatchFrame, ViewWatch};

use super::older::{OlderBatch, OlderEvents};
use super::{CacheableRequest, CachedRead, Start, head};
use crate::config::ResendMode;
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody};
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_view::{ComponentView, OpenWatch, View, ViewObject, WatchSelector};

/// The most objects or events of the view that are looked at at once.
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
    pub(super) handlers: Arc<Handlers>,
    pub(super) request: Arc<CacheableRequest>,
    pub(super) read: CachedRead,
    pub(super) view: ComponentView,
    /// The view that `open`, `changes` and `stopping` are of. The component may have moved to another one since.
    watched: Arc<View>,
    /// That view counts it and observes its position.
    pub(super) open: OpenWatch,
    /// The view's. A view that changes it starts a new history, which ends its watches.
    pub(super) format: ObjectFormat,
    changes: tokio::sync::watch::Receiver<Option<u64>>,
    pub(super) phase: Phase,
    /// How the client gets what changes at an unchanged resourceVersion.
    pub(super) resend: ResendMode,
    /// What the client gets next, and what of it is encoded.
    frames: VecDeque<WatchFrame<ViewObject>>,
    pub(super) ready: VecDeque<Bytes>,
    /// Whether the client gets a BOOKMARK as soon as it lacks nothing.
    pub(super) bookmark_due: bool,
    next_bookmark: Pin<Box<Sleep>>,
    pub(super) deadline: Pin<Box<Sleep>>,
    /// The time up to the deadline.
    lasts: Duration,
    /// Resolves when the daemon stops, or when nothing follows.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) over: bool,
}

/// How far a watch is.
pub(super) enum Phase {
    /// Starts with all objects once the view has reached this version.
    NotOlderThan(u64),
    /// Continues after the client's version once the view has reached it.
    Ahead,
    /// Follows the view.
    View(ViewWatch<ViewObject>),
    /// The events before the history come from the API server, once the view has given what comes before them.
    Older { watch: ViewWatch<ViewObject>, events: Box<OlderEvents> },
    /// Ends: the client has to list.
    Uncertain,
}

/// Responds to a watch; `None` if only the API server can, whose history reaches back further than the view's.
pub(super) async fn watch(
    handlers: &Arc<Handlers>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    mut view: ComponentView,
    online: bool,
) -> Option<Response<ResponseBody>> {
    let phase = match phase(&read, &mut view)? {
        Ok(phase) => phase,
        Err(_) if !online => {
            let expired = StatusError::Expired(
                "the watch cache does not reach back to this version, and the API server cannot be reached",
            );
            return Some(expired.response(read.media_type.encoding));
        }
        Err(watch) => {
            let until = watch.catch_up()?;
            let events = OlderEvents::start(handlers, request, read.media_type, &mut view, until).await?;
            Phase::Older { watch, events: Box::new(events) }
        }
    };
    respond(handlers, request, read, view, phase)
}

/// Responds to a watch; `None` if it begins before the view's history.
pub(crate) fn watch_within_history(
    handlers: &Arc<Handlers>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    mut view: ComponentView,
) -> Option<Response<ResponseBody>> {
    let phase = phase(&read, &mut view)?.ok()?;
    respond(handlers, request, read, view, phase)
}

/// Clients act on what a deletion carries: kube-proxy closes the ports that it names. A list shows what else they have to undo.
const UNCERTAIN: StatusError = StatusError::Expired(
    "an object is not shown any more, and the client may hold the state at this version or one that was shown later",
);

/// How a watch begins. `Err`: before the view's history. `None`: only the API server has what is asked for.
fn phase(read: &CachedRead, view: &mut ComponentView) -> Option<Result<Phase, ViewWatch<ViewObject>>> {
    Some(Ok(match read.start {
        Start::Any => Phase::View(view.watch_all()),
        Start::NotOlderThan(version) => Phase::NotOlderThan(version),
        Start::Now => Phase::View(view.watch_now()),
        Start::Exact => return None,
        Start::After(version) => {
            let format = &view.snapshot().format;
            let selector = WatchSelector { format, selector: &read.selector, index: None };
            match view.watch_after(version, read.is_in_step, &selector) {
                Begin::Watch(watch) => Phase::View(watch),
                Begin::Ahead => Phase::Ahead,
                Begin::Below(watch) => return Some(Err(watch)),
                Begin::Uncertain => Phase::Uncertain,
            }
        }
    }))
}

fn respond(
    handlers: &Arc<Handlers>,
    request: &Arc<CacheableRequest>,
    read: CachedRead,
    view: ComponentView,
    phase: Phase,
) -> Option<Response<ResponseBody>> {
    let encoding = read.media_type.encoding;
    let watch = CachedWatch::new(handlers.clone(), request.clone(), read, view, phase);
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
    });
    head(encoding, Verb::Watch).body(StreamBody::new(events).boxed_unsync()).ok()
}

impl CachedWatch {
    fn new(
        handlers: Arc<Handlers>,
        request: Arc<CacheableRequest>,
        read: CachedRead,
        mut view: ComponentView,
        phase: Phase,
    ) -> Self {
        handlers.metrics.watches().inc();
        let watched = view.view().clone();
        let open = watched.open_watch(&read.selector, request.close.clone());
        let timeout = match read.options.timeout_seconds.and_then(|seconds| seconds.try_into().ok()) {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => MIN_TIMEOUT.mul_f64(1.0 + fastrand::f64()),
        };
        let snapshot = view.snapshot();
        let deadline = Instant::now() + timeout;
        Self {
            changes: watched.subscribe(),
            resend: handlers.resend.of(&read.component),
            format: snapshot.format.clone(),
            frames: VecDeque::new(),
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            lasts: timeout,
            next_bookmark: Box::pin(tokio::time::sleep_until(next_bookmark(deadline))),
            stopping: stopping(&handlers, &watched),
            watched,
            open,
            handlers,
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
            if let Err(error) = self.encode_next() {
                self.fail(&error);
            }
            if let Some(events) = self.take_ready() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            self.open.at(self.position());
            match self.advance().await {
                Ok(true) => {}
                Ok(false) if self.has_moved() => self.follow_move(),
                Ok(false) => self.wait().await,
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Whether the component is shown another view now than the one that is followed.
    fn has_moved(&self) -> bool {
        !Arc::ptr_eq(&self.watched, self.view.view())
    }

    /// Follows the view that the component is shown now. It has the same history up to where the watch is.
    fn follow_move(&mut self) {
        self.watched = self.view.view().clone();
        self.changes = self.watched.subscribe();
        self.stopping = stopping(&self.handlers, &self.watched);
        self.open = self.watched.open_watch(&self.read.selector, self.request.close.clone());
    }

    fn fail(&mut self, error: &StatusError) {
        let request: (&dyn std::fmt::Display, &str) = (&self.read.resource.collection, &self.read.component);
        if matches!(error, StatusError::Expired(_)) {
            self.handlers.metrics.relist("hidden");
            tracing::debug!(path = %request.0, component = request.1, reason = %error, "watch ended with 410 so that its client lists again");
        } else {
            self.handlers.failures.warn("watch ended with an ERROR event", request, None, error);
        }
        self.frames.clear();
        self.ready.push_back(error.event(self.read.media_type.encoding));
        self.over = true;
    }

    /// Encodes events up to a chunk: small ones leave together.
    fn encode_next(&mut self) -> Result<(), StatusError> {
        let mut bytes: usize = self.ready.iter().map(Bytes::len).sum();
        while bytes < CHUNK
            && let Some(frame) = self.frames.pop_front()
        {
            let before = self.ready.len();
            self.frame(frame)?;
            bytes += self.ready.range(before..).map(Bytes::len).sum::<usize>();
        }
        Ok(())
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
            Phase::View(watch) | Phase::Older { watch, .. } => watch.position(),
            Phase::NotOlderThan(_) | Phase::Ahead | Phase::Uncertain => u64::MAX,
        }
    }

    /// Takes what the client gets next. Returns false if there is nothing yet.
    async fn advance(&mut self) -> Result<bool, StatusError> {
        match &mut self.phase {
            Phase::NotOlderThan(version) => {
                let reached = self.view.has_reached(*version);
                if reached {
                    self.format = self.view.snapshot().format.clone();
                    self.phase = Phase::View(self.view.watch_all());
                }
                Ok(reached)
            }
            Phase::Ahead => match phase(&self.read, &mut self.view) {
                Some(Ok(Phase::Ahead)) => Ok(false),
                Some(Ok(phase)) => {
                    self.format = self.view.snapshot().format.clone();
                    self.phase = phase;
                    Ok(true)
                }
                // The history begins above the version by now.
                Some(Err(watch)) => {
                    let events = match watch.catch_up() {
                        Some(until) => {
                            OlderEvents::start(
                                &self.handlers,
                                &self.request,
                                self.read.media_type,
                                &mut self.view,
                                until,
                            )
                            .await
                        }
                        None => None,
                    };
                    match events {
                        Some(events) => self.phase = Phase::Older { watch, events: Box::new(events) },
                        // The client continues with another watch.
                        None => self.over = true,
                    }
                    Ok(true)
                }
                None => {
                    self.over = true;
                    Ok(true)
                }
            },
            Phase::Uncertain => Err(UNCERTAIN),
            Phase::Older { watch, .. } if watch.is_catching_up() => self.follow_older().await.map(|()| true),
            Phase::View(watch) | Phase::Older { watch, .. } => {
                let selector =
                    WatchSelector { format: &self.format, selector: &self.read.selector, index: self.open.selector };
                let Ok(advanced) = self.view.step(watch, &selector, BATCH, &mut self.frames) else {
                    tracing::info!(
                        path = self.read.resource.collection,
                        component = self.read.component,
                        "watch ended: the client reads too slowly for the history"
                    );
                    self.view.counters().slow.inc();
                    self.over = true;
                    return Ok(true);
                };
                if !advanced && self.bookmark_due {
                    return self.bookmark().map(|()| true);
                }
                Ok(advanced)
            }
        }
    }

    /// Follows the API server's events until they reach the view's history.
    async fn follow_older(&mut self) -> Result<(), StatusError> {
        let Phase::Older { watch, events } = &mut self.phase else { return Ok(()) };
        let (made_by, view) = (events.made_by(), self.watched.clone());
        let batch = tokio::select! {
            batch = events.next(&self.handlers, &self.request, &view) => batch?,
            () = takes_other_chain(&mut self.view, made_by) => OlderBatch::end(),
            () = &mut self.deadline => OlderBatch::end(),
            () = &mut self.stopping => OlderBatch::end(),
        };
        if batch.degraded > 0 {
            // Also where another view serves the client next.
            self.handlers.views.chain_stamps().degrade(made_by, &self.read.resource.resource, batch.degraded);
            self.view.end_stream(batch.degraded, None);
        }
        self.ready.extend(batch.events);
        self.over |= batch.ended;
        if batch.is_complete && !self.over {
            let selector =
                WatchSelector { format: &self.format, selector: &self.read.selector, index: self.open.selector };
            match self.view.caught_up(watch, &selector) {
                Ok(()) => {}
                // The client continues with another watch.
                Err(CatchUpError::Evicted) => self.over = true,
                Err(CatchUpError::Uncertain) => return Err(UNCERTAIN),
            }
            if let Phase::Older { watch, .. } = std::mem::replace(&mut self.phase, Phase::Ahead) {
                self.phase = Phase::View(watch);
            }
        }
        Ok(())
    }

    /// Waits for the next event, bookmark or end.
    async fn wait(&mut self) {
        tokio::select! {
            changed = self.changes.changed() => self.over = changed.is_err(),
            () = &mut self.next_bookmark => {
                self.bookmark_due = true;
                self.next_bookmark.as_mut().reset(next_bookmark(self.deadline.deadline()));
            }
            () = &mut self.deadline => self.end_in_time(),
            () = &mut self.stopping => self.over = true,
        }
    }

    /// Ends a watch whose time is over. One that is too short for a last bookmark before its end has it then.
    fn end_in_time(&mut self) {
        self.over = true;
        if self.lasts <= LAST_BOOKMARK {
            // Without it the client continues where it is.
            let _ = self.bookmark();
        }
    }
}

/// Resolves when the daemon stops, or when nothing follows from a view.
fn stopping(handlers: &Handlers, view: &View) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let (tasks, closed, refused) = (handlers.tasks.clone(), view.closed().clone(), refused(view));
    Box::pin(async move {
        tokio::select! {
            () = tasks.stopping() => {}
            () = closed.cancelled_owned() => {}
            () = refused => {}
        }
    })
}

/// Resolves when the API server refuses what a private view shows: its client learns why from its next watch. Never for others.
fn refused(view: &View) -> impl Future<Output = ()> + Send + use<> {
    let private = view.is_private().then(|| view.reflector_state());
    async move {
        let is_final = |error: &ReflectorError| error.needs_operator_action();
        match private {
            Some(mut state) => {
                drop(state.wait_for(|state| state.error.as_ref().is_some_and(is_final)).await);
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits until a view has taken another chain than this one, or is closed.
async fn takes_other_chain(view: &mut ComponentView, chain: ChainVersion) {
    view.wait_for(|view| (view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED) != chain).then_some(())).await;
}

/// When a watch with this deadline sends its next bookmark.
fn next_bookmark(deadline: Instant) -> Instant {
    let now = Instant::now();
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    last.map_or(now + BOOKMARKS, |last| last.min(now + BOOKMARKS))
}

impl Drop for CachedWatch {
    fn drop(&mut self) {
        self.handlers.metrics.watches().dec();
    }
}
