//! watch: an initial state if requested, then every event that the selectors match. It ends at the timeout, when the
//! client disconnects, or when history is lost.
//!
//! A watch has no queue: it reads the store's ring from its own position. A slow client costs no memory and gets 410.
//! Memory: pointers to the initial state and a batch of 64 rendered events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use weir_document::json::EventType;

use crate::body::{self, Body, Gzip, ResponseBodyError};
use crate::fault::{Broken, End};
use crate::negotiate;
use crate::plane::{Plane, Signals};
use crate::read;
use crate::record::OpenGuard;
use crate::render::Renderer;
use crate::request::{Place, QueryOptions};
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{Event, Lost, ObjectChange, StoredObject};

const BATCH: usize = 64;
/// How long before its end a watch sends its last bookmark; as kube-apiserver.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// One running watch.
struct Watch {
    plane: Arc<Plane>,
    place: Place,
    selector: Selector,
    renderer: Renderer,
    /// Whether the next table defines its columns.
    header: bool,
    initial: std::vec::IntoIter<Arc<StoredObject>>,
    /// Whether the bookmark after the initial state is still to be sent.
    initial_end: bool,
    /// The version up to which all events have been sent.
    position: u64,
    epoch: u64,
    ready: VecDeque<Bytes>,
    state: WatchState,
    bookmarks: Option<Bookmarks>,
    deadline: Option<Instant>,
    head: watch::Receiver<u64>,
    signals: watch::Receiver<Signals>,
    seen: Signals,
    _open: OpenGuard,
}

/// The step after the rendered events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchState {
    Running,
    Ended,
    Broken,
}

struct Bookmarks {
    every: Duration,
    next: Instant,
    due: bool,
}

impl Bookmarks {
    fn new(every: Duration, deadline: Option<Instant>) -> Self {
        let mut bookmarks = Self { every, next: Instant::now(), due: false };
        bookmarks.schedule(deadline);
        bookmarks
    }

    /// The next one comes after the interval, or shortly before the end of the watch.
    fn schedule(&mut self, deadline: Option<Instant>) {
        let now = Instant::now();
        let last = deadline.and_then(|deadline| deadline.checked_sub(LAST_BOOKMARK)).filter(|last| *last > now);
        self.next = last.map_or(now + self.every, |last| last.min(now + self.every));
    }
}

/// How a watch starts.
struct Start {
    initial: Vec<Arc<StoredObject>>,
    initial_end: bool,
    position: u64,
}

/// Serves a watch request.
pub(crate) fn watch(
    plane: &Arc<Plane>,
    place: &Place,
    query: &QueryOptions,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let renderer = read::renderer(place, query, headers)?;
    let media = renderer.media();
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"))?;
    let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let head = plane.store.head();
    let signals = plane.signals.subscribe();
    let seen = *signals.borrow();
    let start = start(plane, place, query)?;
    let mut ready = VecDeque::new();
    let (state, epoch) = match plane.store.follow(&place.resource.qualified(), start.position) {
        Ok(epoch) => (WatchState::Running, epoch),
        Err(_) => {
            let current = plane.store.revision();
            ready.push_back(
                renderer.error(&Status::expired(format!("too old resource version: {} ({current})", start.position))),
            );
            (WatchState::Ended, 0)
        }
    };
    let deadline = timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let watch = Watch {
        selector,
        renderer,
        header: true,
        initial: start.initial.into_iter(),
        initial_end: start.initial_end,
        position: start.position,
        epoch,
        ready,
        state,
        bookmarks: query.flag("allowWatchBookmarks").then(|| Bookmarks::new(plane.bookmarks, deadline)),
        deadline,
        head,
        seen,
        signals,
        _open: plane.watches.open(),
        plane: Arc::clone(plane),
        place: place.clone(),
    };
    let compressed =
        query.flag("sendInitialEvents") && plane.gzip() == Gzip::Always && negotiate::accepts_gzip(headers);
    let frames = stream::unfold(watch, move |mut watch| async move {
        let frame = watch.next().await?;
        let frame = match frame {
            Ok(line) if compressed => body::gzip_member(&line),
            other => other,
        };
        Some((frame, watch))
    });
    let mut response = body::respond(StatusCode::OK, media.watch(), body::streamed(frames));
    if compressed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Validates the version options and finds the initial state.
fn start(plane: &Plane, place: &Place, query: &QueryOptions) -> Result<Start, Status> {
    let revision = read::revision(query)?;
    let list = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    match (list, query.text("resourceVersionMatch")) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        (None, _) => {
            return Err(Status::invalid_options(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        (Some(_), _) => {
            return Err(Status::invalid_options(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
    }
    let from_state = match (list, revision) {
        (Some(true), wanted) => {
            read::reached(plane, wanted)?;
            true
        }
        (None, None | Some(0)) => true,
        (Some(false), _) | (None, Some(_)) => false,
    };
    if !from_state {
        let position = match revision {
            None | Some(0) => plane.store.revision(),
            Some(revision) => revision,
        };
        return Ok(Start { initial: Vec::new(), initial_end: false, position });
    }
    let namespace = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let snapshot = plane
        .store
        .snapshot(&place.resource.qualified(), namespace, None)
        .map_err(|_| Status::expired("the requested version is no longer available"))?;
    Ok(Start {
        initial: snapshot.objects,
        initial_end: list == Some(true) && query.flag("allowWatchBookmarks"),
        position: snapshot.revision,
    })
}

// === impl Watch ===

impl Watch {
    /// The next line. Cancel-safe.
    async fn next(&mut self) -> Option<Result<Bytes, ResponseBodyError>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            match self.state {
                WatchState::Running => {}
                WatchState::Ended => return None,
                WatchState::Broken => {
                    self.state = WatchState::Ended;
                    return Some(Err(Broken.into()));
                }
            }
            self.head.borrow_and_update();
            self.render_ready();
            if self.ready.is_empty() && self.state == WatchState::Running {
                self.wait().await;
            }
        }
    }

    /// Renders the available events.
    fn render_ready(&mut self) {
        while self.ready.len() < BATCH {
            match self.initial.next() {
                Some(object) => self.added(&object),
                None => break,
            }
        }
        if !self.ready.is_empty() {
            return;
        }
        if std::mem::take(&mut self.initial_end) {
            self.bookmark(true);
            return;
        }
        let qualified = self.place.resource.qualified();
        match self.plane.store.events(&qualified, self.epoch, self.position, BATCH) {
            Ok((events, position)) => {
                for event in events {
                    self.event(&event);
                }
                self.position = self.position.max(position);
            }
            Err(Lost::Removed) => self.state = WatchState::Ended,
            Err(_) => {
                self.fail(&Status::expired("too old resource version: history was lost"));
            }
        }
        let due = self.bookmarks.as_mut().is_some_and(|bookmarks| std::mem::take(&mut bookmarks.due));
        if due && self.state == WatchState::Running {
            self.bookmark(false);
        }
    }

    fn concerns(&self, object: &StoredObject) -> bool {
        (self.place.namespace.is_empty() || self.place.namespace == object.key.namespace)
            && (self.place.name.is_empty() || self.place.name == object.key.name)
    }

    fn added(&mut self, object: &StoredObject) {
        if self.concerns(object) && self.selector.matches(object) {
            self.send(EventType::Added, object);
        }
    }

    /// An event as seen through the selectors: an object that no longer matches is DELETED in its last matching state.
    fn event(&mut self, event: &Event) {
        if !self.concerns(event.change.object()) {
            return;
        }
        match &event.change {
            ObjectChange::Added(object) => self.added(object),
            ObjectChange::Modified { old, new } => match (self.selector.matches(old), self.selector.matches(new)) {
                (true, true) => self.send(EventType::Modified, new),
                (false, true) => self.send(EventType::Added, new),
                (true, false) => self.send(EventType::Deleted, &old.at(event.revision)),
                (false, false) => {}
            },
            ObjectChange::Deleted { old, last } => {
                if self.selector.matches(old) {
                    self.send(EventType::Deleted, last);
                }
            }
        }
    }

    fn send(&mut self, event: EventType, object: &StoredObject) {
        let rendered = self.renderer.event(event, object, self.header);
        self.push(rendered);
    }

    fn bookmark(&mut self, initial_end: bool) {
        let rendered = self.renderer.bookmark(self.position, initial_end, self.header);
        self.push(rendered);
    }

    fn push(&mut self, rendered: Result<Bytes, Status>) {
        self.header = false;
        match rendered {
            Ok(bytes) => self.ready.push_back(bytes),
            Err(status) => self.fail(&status),
        }
    }

    /// Sends the rendered events, then this one, then ends the watch.
    fn fail(&mut self, status: &Status) {
        if self.state == WatchState::Running {
            self.ready.push_back(self.renderer.error(status));
            self.state = WatchState::Ended;
        }
    }

    /// Waits for an event or a signal.
    async fn wait(&mut self) {
        let deadline = self.deadline;
        let bookmark = self.bookmarks.as_ref().map(|bookmarks| bookmarks.next);
        tokio::select! {
            changed = self.head.changed() => {
                if changed.is_err() {
                    self.state = WatchState::Ended;
                }
            }
            changed = self.signals.changed() => {
                if changed.is_err() {
                    self.state = WatchState::Ended;
                } else {
                    self.heed();
                }
            }
            () = until(deadline) => self.state = WatchState::Ended,
            () = until(bookmark) => {
                if let Some(bookmarks) = &mut self.bookmarks {
                    bookmarks.due = true;
                    bookmarks.schedule(deadline);
                }
            }
        }
    }

    fn heed(&mut self) {
        let now = *self.signals.borrow_and_update();
        if now.closed != self.seen.closed {
            self.state = match now.end {
                End::Clean => WatchState::Ended,
                End::Abort => WatchState::Broken,
            };
        }
        if now.bookmark != self.seen.bookmark
            && let Some(bookmarks) = &mut self.bookmarks
        {
            bookmarks.due = true;
        }
        self.seen = now;
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
