//! A watch from a view, while it is open.
//!
//! Each watch follows the view's history at its own position. Events are references to the history's bytes, encoded once
//! for all clients of an encoding. A client that is too slow for the history is ended, alone.

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
use weir_document::{Error, TypeMeta};
use weir_kube::{Transform, Verb};
use weir_store::cache::ObjectFormat;

use super::bookmark::bookmark;
use super::older::{OlderBatch, OlderEvents};
use super::{CacheableRequest, CachedRead, Start, head};
use crate::codec::object::partial;
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody};
use crate::proxy::respond::StatusError;
use crate::view::{CatchUp, Cause, View, ViewEvent, ViewObject, ViewSnapshot, WatchStart, frame};

/// The most events that are taken from the history at once.
const BATCH: usize = 64;
/// The size up to which events leave together.
const CHUNK: usize = 64 << 10;
/// The interval of bookmarks; as kube-apiserver.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The shortest time after which a watch without `timeoutSeconds` ends; as kube-apiserver, the longest is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// An open watch.
struct CachedWatch {
    proxy: Arc<Proxy>,
    request: Arc<CacheableRequest>,
    read: CachedRead,
    view: Arc<View>,
    /// The view's. A view that changes it starts a new history, which ends its watches.
    format: ObjectFormat,
    changes: tokio::sync::watch::Receiver<Option<u64>>,
    phase: Phase,
    /// The version that the client has got.
    version: u64,
    /// Encoded events that leave next.
    ready: VecDeque<Bytes>,
    /// Whether the client gets a BOOKMARK at the end of the history: events without a version of their own were sent.
    bookmark_due: bool,
    bookmarks: Interval,
    deadline: Pin<Box<Sleep>>,
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
    /// The client first gets these objects, and the position follows them.
    Initial { snapshot: Arc<ViewSnapshot>, rest: VecDeque<Arc<ViewObject>>, position: u64 },
    /// At this position. If what the client holds is not known, it gets the whole state at the end of the history.
    Events { position: u64, reconcile: bool },
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
        Start::Any => initial(view),
        Start::NotOlderThan(version) => Phase::NotOlderThan(version),
        Start::Now => Phase::Events { position: view.snapshot_and_position().1, reconcile: false },
        Start::After(version) if matches!(view.watch_start(version, true), WatchStart::TooOld) => return None,
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

fn initial(view: &View) -> Phase {
    let (snapshot, position) = view.snapshot_and_position();
    let rest = snapshot.objects.values().cloned().collect();
    Phase::Initial { snapshot, rest, position }
}

impl CachedWatch {
    fn new(proxy: Arc<Proxy>, request: Arc<CacheableRequest>, read: CachedRead, view: Arc<View>, phase: Phase) -> Self {
        proxy.metrics.watches().inc();
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

    /// Joins ready events to one chunk.
    fn take_ready(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        if self.ready.is_empty() || first.len() >= CHUNK {
            return Some(first);
        }
        let mut chunk = Vec::with_capacity(CHUNK);
        chunk.extend_from_slice(&first);
        while let Some(next) = self.ready.front().filter(|next| chunk.len() + next.len() <= CHUNK) {
            chunk.extend_from_slice(next);
            self.ready.pop_front();
        }
        Some(chunk.into())
    }

    /// Encodes what the client gets next. Returns false if there is nothing yet.
    fn advance(&mut self) -> Result<bool, StatusError> {
        match &mut self.phase {
            Phase::Older(_) => Ok(false),
            Phase::NotOlderThan(version) => {
                let reached = self.view.snapshot().version >= *version;
                if reached {
                    self.phase = initial(&self.view);
                }
                Ok(reached)
            }
            Phase::After(version) => {
                let version = *version;
                match self.view.watch_start(version, self.proxy.resume.contains(&self.read.client)) {
                    WatchStart::Ahead => return Ok(false),
                    // The history has moved on meanwhile. The client continues with another watch.
                    WatchStart::TooOld => self.over = true,
                    WatchStart::At { position, catch_up } => {
                        let reconcile = matches!(catch_up, CatchUp::Everything);
                        self.phase = Phase::Events { position, reconcile };
                        self.version = version;
                        if let CatchUp::Events(events) = catch_up {
                            self.catch_up(&events)?;
                        }
                    }
                }
                Ok(true)
            }
            Phase::Initial { snapshot, rest, position } => {
                let (snapshot, position) = (snapshot.clone(), *position);
                let objects: Vec<_> = rest.drain(..rest.len().min(BATCH)).collect();
                let done = rest.is_empty();
                for object in objects {
                    self.object(EventType::Added, &object)?;
                }
                if done {
                    self.version = snapshot.version;
                    self.phase = Phase::Events { position, reconcile: false };
                    if self.read.is_watch_list() {
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
                    self.over = true;
                    return Ok(true);
                };
                if events.is_empty() && reconcile {
                    return self.reconcile().map(|()| true);
                }
                if events.is_empty() && self.bookmark_due {
                    return self.bookmark(false).map(|()| true);
                }
                self.phase = Phase::Events { position: from + events.len() as u64, reconcile };
                for event in &events {
                    self.event(event)?;
                }
                Ok(!events.is_empty())
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
        match self.view.watch_start(version, false) {
            WatchStart::At { position, .. } => self.phase = Phase::Events { position, reconcile: true },
            WatchStart::Ahead => self.phase = Phase::After(version),
            WatchStart::TooOld => {}
        }
        Ok(())
    }

    /// Sends the whole state to a client of which it is not known what it was shown.
    fn reconcile(&mut self) -> Result<(), StatusError> {
        let (snapshot, position) = self.view.snapshot_and_position();
        if let Phase::Events { position: at, reconcile } = &mut self.phase {
            if *at != position {
                return Ok(());
            }
            *reconcile = false;
        }
        for object in snapshot.objects.values() {
            let event = if object.shown().is_some() { EventType::Modified } else { EventType::Deleted };
            self.object(event, object)?;
        }
        self.version = snapshot.version;
        self.bookmark_due = true;
        Ok(())
    }

    /// Sends an object of a snapshot, if it is selected. The deletion of a hidden one carries the unfiltered object: what
    /// the client was shown of it is not known.
    fn object(&mut self, event_type: EventType, object: &ViewObject) -> Result<(), StatusError> {
        if !self.selects(object) {
            return Ok(());
        }
        let bytes = match (object.shown(), event_type, object.failure()) {
            (Some(bytes), ..) => bytes.clone(),
            (None, EventType::Deleted, _) => object.source.bytes.clone(),
            (None, _, Some(failure)) => return Err(StatusError::Filter(failure.clone())),
            (None, _, None) => return Ok(()),
        };
        let media_type = self.read.media_type;
        let encoded = frame(event_type, &self.format, bytes, media_type.encoding, media_type.transform);
        self.ready.push_back(encoded.map_err(invalid)?);
        Ok(())
    }

    /// Sends the latest state of objects whose outcome changed without a version of its own.
    fn catch_up(&mut self, events: &[Arc<ViewEvent>]) -> Result<(), StatusError> {
        for event in events {
            let event_type = match (&event.new, &event.old) {
                (Some(new), _) if new.shown().is_some() && self.selects(new) => EventType::Modified,
                (_, Some(old)) if old.shown().is_some() && self.selects(old) => EventType::Deleted,
                _ => continue,
            };
            self.encode(event, event_type)?;
            self.bookmark_due = true;
        }
        Ok(())
    }

    /// Sends an event of the history as far as it concerns the client.
    fn event(&mut self, event: &ViewEvent) -> Result<(), StatusError> {
        let visible = |object: &Option<Arc<ViewObject>>| {
            object.as_ref().is_some_and(|object| object.shown().is_some() && self.selects(object))
        };
        if let Some(new) = &event.new
            && let Some(failure) = new.failure()
            && self.selects(new)
        {
            return Err(StatusError::Filter(failure.clone()));
        }
        let event_type = match (visible(&event.old), visible(&event.new)) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        };
        self.version = self.version.max(event.version);
        if let Some(event_type) = event_type {
            self.encode(event, event_type)?;
            self.bookmark_due |= event.cause != Cause::Upstream;
        }
        Ok(())
    }

    fn encode(&mut self, event: &ViewEvent, event_type: EventType) -> Result<(), StatusError> {
        let media_type = self.read.media_type;
        let encoded = event.encode(event_type, &self.format, media_type.encoding, media_type.transform);
        self.ready.push_back(encoded.map_err(invalid)?);
        Ok(())
    }

    fn selects(&self, object: &ViewObject) -> bool {
        self.read.selector.matches(&self.format, &object.source)
    }

    /// Sends a BOOKMARK of the client's version, if the client takes them. `initial`: it marks the end of the initial state.
    fn bookmark(&mut self, initial: bool) -> Result<(), StatusError> {
        self.bookmark_due = false;
        if self.read.takes_bookmarks() {
            let type_meta = match self.read.media_type.transform {
                Transform::Metadata(version) => partial(version),
                _ => TypeMeta::clone(&self.format.type_meta),
            };
            let encoded = bookmark(&type_meta, self.version, initial, self.read.media_type.encoding);
            self.ready.push_back(encoded.map_err(invalid)?);
        }
        Ok(())
    }

    /// Waits for the next event, bookmark or end.
    async fn wait(&mut self) {
        tokio::select! {
            changed = self.changes.changed() => self.over = changed.is_err(),
            _ = self.bookmarks.tick() => self.bookmark_due = matches!(self.phase, Phase::Events { .. }),
            () = &mut self.deadline => self.over = true,
            () = self.proxy.tasks.stopping() => self.over = true,
        }
    }
}

impl Drop for CachedWatch {
    fn drop(&mut self) {
        self.proxy.metrics.watches().dec();
        self.proxy.remember(&self.read, &self.view.snapshot(), self.version);
    }
}

fn invalid(error: Error) -> StatusError {
    StatusError::InvalidResponse(error.to_string())
}
