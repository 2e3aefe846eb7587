//! A filtered watch of a Table while it is open. It is for the eye: `kubectl get --watch`.
//!
//! It streams from the API server, and keeps nothing of the objects. What filters hide leaves the screen as DELETED, whether it was
//! there or not, unless it is new. What a change of filters concerns stays on the screen until it changes itself.
//!
//! Events that have arrived already are filtered and sent together; no event waits for others. The response body polls
//! them. So a slow client slows the upstream watch down, and a client that is gone releases it. Memory: [`BATCH_BYTES`] of
//! events, and one frame.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::FutureExt as _;
use weir_document::json::EventType;

use crate::serve::Handlers;
use crate::serve::read::ReadRequest;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_kube::Encoding;
use weir_runtime::Outcome;
use weir_upstream::{DecodedBody, ResponseBodyError, error_report};
use weir_wire::CodecError;
use weir_wire::watch::{WatchDecoder, WatchEncoder, WatchEvent};

/// The largest event.
const FRAME: usize = 32 << 20;
/// The number of events that are filtered together.
const BATCH: usize = 64;
/// The size of a batch, in bytes, at which it takes no more events.
const BATCH_BYTES: usize = 128 << 10;
/// Consecutive shorter events are copied into one chunk; longer ones leave as they are.
const SHORT: usize = 4 << 10;

/// An open watch.
pub(super) struct TableWatch {
    handlers: Arc<Handlers>,
    read: ReadRequest,
    upstream: Box<DecodedBody>,
    decoder: WatchDecoder,
    encoder: WatchEncoder,
    /// Encoded events that are sent next.
    ready: VecDeque<Bytes>,
    /// Resolves when the daemon stops.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    upstream_ended: bool,
    /// Nothing follows the ready events.
    over: bool,
}

impl TableWatch {
    pub(super) fn new(
        handlers: Arc<Handlers>,
        read: ReadRequest,
        encoding: Encoding,
        upstream: Box<DecodedBody>,
    ) -> Self {
        handlers.metrics.watches().inc();
        let tasks = handlers.tasks.clone();
        Self {
            decoder: WatchDecoder::new(encoding, read.media_type.transform, read.object_type.clone(), FRAME),
            encoder: WatchEncoder::new(encoding, read.media_type.transform),
            stopping: Box::pin(async move { tasks.stopping().await }),
            handlers,
            read,
            upstream,
            ready: VecDeque::new(),
            upstream_ended: false,
            over: false,
        }
    }

    /// Returns the next complete events; none at the end. A failure is an event, too.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(events) = self.ready.pop_front() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            let (events, broken) = self.take_events().await;
            self.filter(events).await;
            if let Some(error) = broken
                && !self.over
            {
                self.fail(&invalid(error));
            }
            if !self.ready.is_empty() || self.over {
                continue;
            }
            if self.upstream_ended {
                self.over = true;
                return None;
            }
            tokio::select! {
                biased;
                () = self.stopping.as_mut() => self.over = true,
                next = self.upstream.next() => self.receive(next),
            }
        }
    }

    /// Returns the complete events that have arrived, at most a batch, and the error that follows them.
    async fn take_events(&mut self) -> (Vec<WatchEvent>, Option<CodecError>) {
        let mut events = Vec::new();
        let (mut room, mut waited) = (BATCH_BYTES, false);
        while events.len() < BATCH && room > 0 {
            match self.decoder.next_event() {
                Ok(Some(event)) => {
                    room = room.saturating_sub(event.size());
                    events.push(event);
                }
                Err(error) => return (events, Some(error)),
                Ok(None) if self.upstream_ended => break,
                Ok(None) => match self.upstream.next().now_or_never() {
                    Some(next) => {
                        self.receive(next);
                        waited = false;
                    }
                    // The connection hands over one chunk at a time, and may have the next one already.
                    None if !waited && !events.is_empty() => {
                        yield_to_connection().await;
                        waited = true;
                    }
                    None => break,
                },
            }
        }
        (events, None)
    }

    fn receive(&mut self, next: Result<Option<Bytes>, ResponseBodyError>) {
        match next {
            Ok(Some(bytes)) => self.decoder.push(bytes),
            Ok(None) => {
                self.decoder.finish();
                self.upstream_ended = true;
            }
            Err(error) => {
                // Between two events this is a normal end: the client continues with a new watch. Within an event the
                // decoder reports it.
                tracing::debug!(path = %self.read.asked.parsed.forward, %error, "watch ended: the API server's response was interrupted");
                self.decoder.finish();
                self.upstream_ended = true;
            }
        }
    }

    async fn filter(&mut self, events: Vec<WatchEvent>) {
        let filtered = events.iter().filter(|event| event.is_filtered());
        let documents: Vec<_> = filtered.filter_map(WatchEvent::document).cloned().collect();
        self.read.take_filters(&self.handlers);
        let mut outcomes: VecDeque<Outcome> =
            if documents.is_empty() { VecDeque::new() } else { self.read.filtering.run(documents).await.into() };
        let (mut encoded, mut failed) = (Vec::with_capacity(events.len()), None);
        for event in events {
            let outcome =
                if event.is_filtered() { outcomes.pop_front().unwrap_or(Outcome::Hidden) } else { Outcome::Unchanged };
            self.over |= event.event_type == EventType::Error;
            match self.encode(&event, outcome) {
                Ok(bytes) => encoded.extend(bytes),
                Err(error) => failed = Some(error),
            }
            if self.over || failed.is_some() {
                break;
            }
        }
        self.send(encoded);
        if let Some(error) = failed {
            self.fail(&error);
        }
    }

    /// Has events sent next. Short ones leave together.
    fn send(&mut self, events: Vec<Bytes>) {
        let runs = events.chunk_by(|one, next| one.len().max(next.len()) < SHORT);
        self.ready.extend(runs.map(|run| if let [event] = run { event.clone() } else { run.concat().into() }));
    }

    /// Returns the event for the client, encoded; none if the client gets no event.
    ///
    /// # Errors
    /// The error ends the watch.
    fn encode(&mut self, event: &WatchEvent, outcome: Outcome) -> Result<Option<Bytes>, StatusError> {
        self.encoder.note(event);
        let (event_type, edited) = match (event.event_type, outcome) {
            (EventType::Added, Outcome::Hidden) => return Ok(None),
            // A failing chain does not swallow a deletion.
            (EventType::Modified | EventType::Deleted, Outcome::Hidden) | (EventType::Deleted, Outcome::Failed(_)) => {
                (EventType::Deleted, None)
            }
            (EventType::Added | EventType::Modified, Outcome::Failed(failure)) => {
                return Err(StatusError::Filter(failure));
            }
            (event_type, Outcome::Edited(bytes)) => (event_type, Some(bytes)),
            (event_type, _) => (event_type, None),
        };
        self.encoder.encode(event, event_type, edited.as_ref()).map(Some).map_err(invalid)
    }

    /// Ends the watch with an ERROR event after the events that are ready.
    fn fail(&mut self, error: &StatusError) {
        self.over = true;
        let request: (&dyn std::fmt::Display, &str) = (&self.read.asked.parsed.forward, &self.read.asked.component);
        self.handlers.failures.warn("watch ended with an ERROR event", request, None, error);
        self.ready.push_back(error.event(self.encoder.encoding()));
    }
}

impl Drop for TableWatch {
    fn drop(&mut self) {
        self.handlers.metrics.watches().dec();
    }
}

fn invalid(error: CodecError) -> StatusError {
    StatusError::InvalidResponse(error_report(&error))
}

/// Lets other ready tasks of this thread run first: once so that the connection notices that its last chunk was taken, once
/// more so that it hands over the next one.
async fn yield_to_connection() {
    let mut turns = 2_u8;
    poll_fn(|cx| match turns.checked_sub(1) {
        None => Poll::Ready(()),
        Some(left) => {
            turns = left;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
