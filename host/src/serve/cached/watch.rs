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
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use weir_kube::{Identity, Verb};
use weir_upstream::clock;

use super::older::{OlderBatch, OlderEvents};
use super::{CachedRead, Start, Unserved, head};
use crate::config::ResendMode;
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody};
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_view::{CatchUp, ComponentView, ComponentWatch, WatchError, WatchOptions};

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

/// The most bytes that an open watch keeps while it waits, beside what is on the heap: there are thousands. The futures of requests
/// upstream are ten times as large.
const WAITING: usize = 2 << 10;
/// How soon after the end of a grace, or of none, a watch ends.
const SHORTEST_GRACE: Duration = Duration::from_secs(5);
/// When open watches are reviewed once more after an outage: no answer of before it counts any more.
const AGAIN: Duration = Duration::from_secs(310);

/// An open watch.
struct CachedWatch {
    handlers: Arc<Handlers>,
    request: Arc<CallerRequest>,
    read: CachedRead,
    watch: ComponentWatch,
    /// The events before the history, which come from the API server.
    older: Option<Box<OlderEvents>>,
    /// What of the client's events is encoded.
    ready: VecDeque<Bytes>,
    next_bookmark: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    /// The time up to the deadline.
    lasts: Duration,
    /// Resolves when the daemon stops.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Resolves when the client may not have what the view shows any more.
    permission: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

/// Responds to a watch.
///
/// # Errors
/// Only the API server can, whose history reaches back further than the view's.
pub(super) async fn watch(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    mut read: CachedRead,
    view: ComponentView,
    online: bool,
) -> Result<Response<ResponseBody>, Unserved> {
    let mut watch = begin(handlers, request, &mut read, view).ok_or(Unserved::AskUpstream)?;
    let older = match watch.catch_up() {
        None => None,
        Some(_) if !online => {
            let expired = StatusError::Expired(
                "the watch cache does not reach back to this version, and the API server cannot be reached",
            );
            return Ok(expired.response(read.media_type.encoding));
        }
        Some(until) => {
            Some(Box::new(OlderEvents::start(handlers, request, read.media_type, watch.view(), until).await?))
        }
    };
    respond(handlers, request, read, watch, older).ok_or(Unserved::AskUpstream)
}

/// Responds to a watch; `None` if it begins before the view's history.
pub(crate) fn watch_within_history(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    mut read: CachedRead,
    view: ComponentView,
) -> Option<Response<ResponseBody>> {
    let watch = begin(handlers, request, &mut read, view).filter(|watch| watch.catch_up().is_none())?;
    respond(handlers, request, read, watch, None)
}

/// Clients act on what a deletion carries: kube-proxy closes the ports that it names. A list shows what else they have to undo.
const UNCERTAIN: StatusError = StatusError::Expired(
    "an object is not shown any more, and the client may hold the state at this version or one that was shown later",
);
const OTHER_HISTORY: StatusError = StatusError::Expired("the history of the cluster is another one now");

/// Begins a watch, which takes the selector of the read. `None`: only the API server has what is asked for.
fn begin(
    handlers: &Handlers,
    request: &CallerRequest,
    read: &mut CachedRead,
    view: ComponentView,
) -> Option<ComponentWatch> {
    let options = WatchOptions {
        selector: std::mem::take(&mut read.selector),
        parameters: read.options.clone(),
        media_type: read.media_type,
        replaces: handlers.resend.of(&request.component) == ResendMode::Replace,
        is_in_step: read.is_in_step,
        close: request.close.clone(),
    };
    match read.start {
        Start::Any => Some(ComponentWatch::all(view, options)),
        Start::NotOlderThan(version) => Some(ComponentWatch::not_older_than(view, version, options)),
        Start::Now => Some(ComponentWatch::now(view, options)),
        Start::After(version) => Some(ComponentWatch::after(view, version, options)),
        Start::Exact => None,
    }
}

fn respond(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    read: CachedRead,
    watch: ComponentWatch,
    older: Option<Box<OlderEvents>>,
) -> Option<Response<ResponseBody>> {
    let encoding = read.media_type.encoding;
    let watch = CachedWatch::new(handlers.clone(), request.clone(), read, watch, older);
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
    });
    head(encoding, Verb::Watch).body(StreamBody::new(bounded(events)).boxed_unsync()).ok()
}

/// Returns what an open watch keeps. It does not compile with more than [`WAITING`].
fn bounded<T>(watch: T) -> T {
    const { assert!(size_of::<T>() <= WAITING, "a future of requests upstream is not boxed") };
    watch
}

impl CachedWatch {
    fn new(
        handlers: Arc<Handlers>,
        request: Arc<CallerRequest>,
        read: CachedRead,
        watch: ComponentWatch,
        older: Option<Box<OlderEvents>>,
    ) -> Self {
        handlers.metrics.watches().inc();
        let lasts = match read.options.timeout_seconds.and_then(|seconds| seconds.try_into().ok()) {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => MIN_TIMEOUT.mul_f64(1.0 + fastrand::f64()),
        };
        let tasks = handlers.tasks.clone();
        // A private store is read with the client's own credential, and ends with that.
        let is_client = matches!(request.caller.identity(), Identity::Client | Identity::Impersonated);
        let of_permission = Some(&request.caller).filter(|_| is_client && !watch.is_private());
        // One that is over already is so by this node's clock alone.
        let expires = of_permission.and_then(|caller| caller.expires()?.duration_since(clock::now()).ok());
        let lasts = expires.map_or(lasts, |expires| lasts.min(expires));
        let permission: Pin<Box<dyn Future<Output = ()> + Send>> = match of_permission {
            Some(_) => {
                let (ended, has_ended) = oneshot::channel();
                // A task of its own: others may wait for its review while nobody reads this watch.
                tasks.spawn_until_stop(permission_task(handlers.clone(), request.clone(), ended));
                Box::pin(async move { drop(has_ended.await) })
            }
            None => Box::pin(std::future::pending()),
        };
        let deadline = Instant::now() + lasts;
        Self {
            handlers,
            request,
            read,
            watch,
            older,
            ready: VecDeque::new(),
            next_bookmark: Box::pin(tokio::time::sleep_until(next_bookmark(deadline))),
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            lasts,
            stopping: Box::pin(async move { tasks.stopping().await }),
            permission,
            over: false,
        }
    }

    /// Returns the next complete events; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Err(error) = self.encode_next() {
                self.end(error);
            }
            if let Some(events) = self.take_ready() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            match self.watch.advance() {
                Err(error) => self.end(error),
                Ok(advanced) => match self.watch.catch_up() {
                    Some(until) if self.older.is_none() => self.start_older(until).await,
                    _ if advanced => {}
                    Some(_) => self.follow_older().await,
                    None => self.wait().await,
                },
            }
        }
    }

    /// Ends the watch. Where its client continues with another one, nothing is sent.
    fn end(&mut self, error: WatchError) {
        match error {
            WatchError::TooSlow => tracing::info!(
                path = self.read.resource.collection,
                component = self.request.component,
                "watch ended: the client reads too slowly for the history"
            ),
            WatchError::Evicted => {}
            WatchError::Uncertain => self.fail(&UNCERTAIN),
            WatchError::OtherHistory => self.fail(&OTHER_HISTORY),
            WatchError::Filter(failure) => self.fail(&StatusError::Filter(failure)),
            WatchError::Invalid(error) => self.fail(&StatusError::InvalidResponse(error.to_string())),
        }
        self.over = true;
    }

    fn fail(&mut self, error: &StatusError) {
        let request: (&dyn std::fmt::Display, &str) = (&self.read.resource.collection, &self.request.component);
        if matches!(error, StatusError::Expired(_)) {
            self.handlers.metrics.relist("hidden");
            tracing::debug!(path = %request.0, component = request.1, reason = %error, "watch ended with 410 so that its client lists again");
        } else {
            self.handlers.failures.warn("watch ended with an ERROR event", request, None, error);
        }
        self.ready.push_back(error.event(self.read.media_type.encoding));
        self.over = true;
    }

    /// Encodes events up to a chunk: small ones leave together.
    fn encode_next(&mut self) -> Result<(), WatchError> {
        let mut bytes: usize = self.ready.iter().map(Bytes::len).sum();
        while bytes < CHUNK
            && let Some(event) = self.watch.next_event()?
        {
            bytes += event.len();
            self.ready.push_back(event);
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
        Some(self.watch.view().counted(chunk.into()))
    }

    /// Starts the events before the history, which begins above the client's version since the view has reached that.
    async fn start_older(&mut self, until: CatchUp) {
        let media_type = self.read.media_type;
        let view = self.watch.view();
        let started = tokio::select! {
            started = Box::pin(OlderEvents::start(&self.handlers, &self.request, media_type, view, until)) => started.ok(),
            () = &mut self.deadline => None,
            () = &mut self.stopping => None,
        };
        // Without them, the client continues with another watch.
        self.over |= started.is_none();
        self.older = started.map(Box::new);
    }

    /// Follows the API server's events until they reach the view's history.
    async fn follow_older(&mut self) {
        let Some(older) = &mut self.older else { return };
        let (made_by, view) = (older.made_by(), self.watch.view().view().clone());
        let batch = tokio::select! {
            batch = Box::pin(older.next(&self.handlers, &self.request, &view)) => batch,
            () = self.watch.takes_other_chain(made_by) => Ok(OlderBatch::end()),
            () = &mut self.deadline => Ok(OlderBatch::end()),
            () = &mut self.stopping => Ok(OlderBatch::end()),
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return self.fail(&error),
        };
        if batch.degraded > 0 {
            // Also where another view serves the client next.
            self.handlers.views.chain_stamps().degrade(made_by, &self.read.resource.resource, batch.degraded);
            self.watch.view().end_stream(batch.degraded, None);
        }
        self.ready.extend(batch.events);
        self.over |= batch.ended;
        if batch.is_complete && !self.over {
            self.older = None;
            if let Err(error) = self.watch.caught_up() {
                self.end(error);
            }
        }
    }

    /// Waits for the next event, bookmark or end.
    async fn wait(&mut self) {
        tokio::select! {
            is_open = self.watch.changed() => self.over = !is_open,
            () = &mut self.next_bookmark => {
                self.watch.request_bookmark();
                self.next_bookmark.as_mut().reset(next_bookmark(self.deadline.deadline()));
            }
            () = &mut self.deadline => self.end_in_time(),
            () = &mut self.stopping => self.over = true,
            () = &mut self.permission => self.over = true,
        }
    }

    /// Ends a watch whose time is over. One that is too short for a last bookmark before its end has it then.
    fn end_in_time(&mut self) {
        self.over = true;
        if self.lasts <= LAST_BOOKMARK {
            // Without it the client continues where it is.
            self.watch.bookmark();
        }
    }
}

async fn permission_task(handlers: Arc<Handlers>, request: Arc<CallerRequest>, mut ended: oneshot::Sender<()>) {
    tokio::select! {
        () = permission_ended(handlers, request) => drop(ended.send(())),
        () = ended.closed() => {}
    }
}

/// Resolves when a client may not have what a shared view shows any more: its grace ends in an outage, or the API server says so
/// after one. An API server reviews no open watch either, but none of its own lives on through an outage.
async fn permission_ended(handlers: Arc<Handlers>, request: Arc<CallerRequest>) {
    let CallerRequest { caller, parsed, .. } = &*request;
    let (mut reconnects, mut again) = (handlers.upstream.connectivity().reconnects(), None);
    let has_grace = !handlers.access.is_node_component(caller);
    loop {
        let outage = handlers.outage.status();
        let left = outage.map_or(handlers.outage.grace(), |outage| outage.left);
        if has_grace && outage.is_some() && left.is_zero() {
            return;
        }
        tokio::select! {
            () = reconnects.next() => again = Some(Instant::now() + AGAIN.mul_f64(1.0 + fastrand::f64() / 5.0)),
            () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => again = None,
            () = tokio::time::sleep(left.max(SHORTEST_GRACE)), if has_grace => continue,
        }
        // Reviews of a certificate's user are those of its requests. The futures of requests upstream are large.
        if caller.identity() == Identity::Client && Box::pin(handlers.access.is_revoked(caller, parsed)).await {
            return;
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
        self.handlers.metrics.watches().dec();
    }
}
