//! A filtered watch while it is open.
//!
//! Events that have arrived already are filtered and sent together; no event waits for others. The response body polls
//! them. So a slow client slows the upstream watch down, and a client that is gone releases it. Memory: [`BATCH_BYTES`] of
//! events, one frame, and the set of hidden keys.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::time::Sleep;
use weir_document::json::EventType;

use super::hidden_keys::HiddenKeys;
use super::present_state::PresentState;
use super::transitions::{EventAction, Transitions};
use super::watch_end::{WatchEnd, looked_up, watch_end};
use crate::proxy::Proxy;
use crate::proxy::respond::StatusError;
use crate::proxy::response::read::ReadRequest;
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
pub(super) struct WatchResponse {
    proxy: Arc<Proxy>,
    read: ReadRequest,
    /// What goes before the events.
    present: Option<PresentState>,
    upstream: Box<DecodedBody>,
    decoder: WatchDecoder,
    encoder: WatchEncoder,
    transitions: Transitions,
    /// Encoded events that are sent next.
    ready: VecDeque<Bytes>,
    /// The version of the last event that was sent, or of the present state where failure policies decided on some of it.
    delivered: u64,
    end: Pin<Box<dyn Future<Output = WatchEnd> + Send>>,
    /// Resolves when a value has changed that the filters look up. The present state is sent to its end all the same: none of it
    /// is above the client's version.
    looked_up: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// When it ends because failure policies decide in it.
    degraded: Option<Pin<Box<Sleep>>>,
    upstream_ended: bool,
    /// Nothing follows the ready events.
    over: bool,
}

impl WatchResponse {
    /// Begins with `present`, then follows the events.
    pub(super) fn new(
        proxy: Arc<Proxy>,
        read: ReadRequest,
        encoding: Encoding,
        upstream: Box<DecodedBody>,
        present: Option<PresentState>,
    ) -> Self {
        proxy.metrics.watches().inc();
        Self {
            delivered: 0,
            end: Box::pin(watch_end(proxy.clone(), &read)),
            looked_up: Box::pin(looked_up(&read)),
            degraded: None,
            proxy,
            decoder: WatchDecoder::new(encoding, read.media_type.transform, read.object_type.clone(), FRAME),
            encoder: WatchEncoder::new(encoding, read.media_type.transform),
            transitions: if read.is_table() { Transitions::of_table() } else { Transitions::default() },
            read,
            upstream,
            present,
            ready: VecDeque::new(),
            upstream_ended: false,
            over: false,
        }
    }

    /// Returns the next complete events; none at the end. A failure is an event, too.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Checked before anything is sent: outcomes of filters that are no longer active must not be sent.
            if !self.over
                && let Some(end) = self.end.as_mut().now_or_never()
            {
                self.finish(end);
            }
            if !self.over && self.present.is_none() && self.looked_up.as_mut().now_or_never().is_some() {
                self.finish(WatchEnd::FiltersChanged);
            }
            if !self.over && self.present.is_none() && elapsed(&mut self.degraded).now_or_never().is_some() {
                self.finish(WatchEnd::Degraded);
            }
            if let Some(events) = self.ready.pop_front() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            if self.present.is_some() {
                self.send_present().await;
                continue;
            }
            let (events, broken) = self.take_events().await;
            self.filter(events).await;
            if let Some(error) = broken
                && !self.over
            {
                self.fail(&StatusError::InvalidResponse(error_report(&error)));
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
                end = self.end.as_mut() => self.finish(end),
                () = self.looked_up.as_mut() => self.finish(WatchEnd::FiltersChanged),
                () = elapsed(&mut self.degraded) => self.finish(WatchEnd::Degraded),
                next = self.upstream.next() => self.receive(next),
            }
        }
    }

    /// Takes the next part of what goes before the events.
    async fn send_present(&mut self) {
        let Some(present) = &mut self.present else { return };
        let next = tokio::select! {
            biased;
            end = self.end.as_mut() => return self.finish(end),
            next = present.next(&self.read, self.encoder.encoding()) => next,
        };
        match next {
            Ok(Some(batch)) => {
                batch.hidden.into_iter().for_each(|key| self.transitions.hide(key));
                self.transitions.present_at(batch.at.unwrap_or_default());
                if let Some(version) = batch.at.filter(|_| self.read.filtering.is_degraded()) {
                    self.delivered = self.delivered.max(version);
                }
                self.note_degraded();
                self.send(batch.events);
            }
            Ok(None) => self.present = None,
            Err(error) => self.fail(&error),
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
                tracing::debug!(path = %self.read.path, %error, "watch ended: the API server's response was interrupted");
                self.decoder.finish();
                self.upstream_ended = true;
            }
        }
    }

    async fn filter(&mut self, events: Vec<WatchEvent>) {
        let filtered = events.iter().filter(|event| event.is_filtered());
        let documents: Vec<_> = filtered.filter_map(WatchEvent::document).cloned().collect();
        if self.read.is_table() {
            self.read.take_filters(&self.proxy);
        }
        let mut outcomes: VecDeque<Outcome> =
            if documents.is_empty() { VecDeque::new() } else { self.read.filtering.run(documents).await.into() };
        let (mut encoded, mut failed) = (Vec::with_capacity(events.len()), None);
        for event in events {
            let outcome =
                if event.is_filtered() { outcomes.pop_front().unwrap_or(Outcome::Hidden) } else { Outcome::Unchanged };
            self.over |= event.event_type == EventType::Error;
            match self.apply(&event, outcome) {
                Ok(bytes) => encoded.extend(bytes),
                Err(error) => failed = Some(error),
            }
            if self.over || failed.is_some() {
                break;
            }
        }
        self.note_degraded();
        self.send(encoded);
        if let Some(error) = failed {
            self.fail(&error);
        }
    }

    /// Notes what failure policies decide, before it is sent. A Table is a screen.
    fn note_degraded(&mut self) {
        if self.read.filtering.is_degraded() && !self.read.is_table() {
            self.proxy.end_stream(&self.read, self.delivered);
            let (stamps, read) = (&self.proxy.chain_stamps, &self.read);
            let pause = || stamps.pause(read.filtering.version(), &read.resource.resource);
            self.degraded.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause())));
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
    fn apply(&mut self, event: &WatchEvent, outcome: Outcome) -> Result<Option<Bytes>, StatusError> {
        let invalid = |error: CodecError| StatusError::InvalidResponse(error_report(&error));
        self.encoder.note(event);
        let key = match event.document().filter(|_| event.is_filtered() && self.transitions.needs_key(&outcome)) {
            Some(document) => HiddenKeys::key_of(document),
            None => 0,
        };
        let version = event.document().and_then(|document| document.resource_version().ok().flatten()?.parse().ok());
        let version = version.unwrap_or_default();
        let encoded = match (self.transitions.apply(event.event_type, key, version, &outcome), outcome) {
            (EventAction::Skip, _) => return Ok(None),
            (EventAction::Original, _) => self.encoder.encode(event, event.event_type, None),
            (EventAction::Filtered(event_type), Outcome::Edited(bytes)) => {
                self.encoder.encode(event, event_type, Some(&bytes))
            }
            (EventAction::Filtered(event_type), _) => self.encoder.encode(event, event_type, None),
            (EventAction::Relist, _) => {
                self.proxy.metrics.relist("hidden");
                return Err(StatusError::Expired("a filter now hides an object that the client may hold"));
            }
            (EventAction::Fail(failure), _) => return Err(StatusError::Filter(failure)),
        };
        let encoded = encoded.map_err(invalid)?;
        self.delivered = self.delivered.max(version);
        Ok(Some(encoded))
    }

    /// Ends the watch with an ERROR event after the events that are ready.
    fn fail(&mut self, error: &StatusError) {
        self.over = true;
        if matches!(error, StatusError::Expired(_)) {
            tracing::debug!(path = %self.read.path, component = self.read.component, reason = %error, "watch ended with 410 so that its client lists again");
        } else {
            self.proxy.failures.warn(
                "watch ended with an ERROR event",
                (&self.read.path, &self.read.component),
                None,
                error,
            );
        }
        self.ready.push_back(error.event(self.encoder.encoding()));
    }

    /// Ends the watch between two events. Ready ones still leave when the daemon stops, but not when the filters that made them
    /// have changed.
    fn finish(&mut self, end: WatchEnd) {
        self.over = true;
        let why = match end {
            WatchEnd::Stopping => return,
            WatchEnd::FiltersChanged => {
                self.ready.clear();
                "its filters have changed"
            }
            WatchEnd::Degraded => "failure policies decide on some of its objects",
        };
        tracing::debug!(path = %self.read.path, component = self.read.component, "watch ended: {why}, its client's next one begins with what is shown now");
    }
}

impl Drop for WatchResponse {
    fn drop(&mut self) {
        self.proxy.metrics.watches().dec();
        self.proxy.end_stream(&self.read, self.delivered);
    }
}

/// Resolves when the time has come, if there is one.
async fn elapsed(sleep: &mut Option<Pin<Box<Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
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
