//! A watch from a version that is older than the view's history: the API server knows what happened until the history
//! begins. Its events pass the chain that the view has taken, and nothing is known of what the client holds: what is not shown
//! is deleted, and where the state that the client would have to delete is not known, it lists again. A client above the stamp
//! holds nothing that the chain hides.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use tokio::time::Instant;
use weir_document::json::EventType;
use weir_kube::{Encoding, MediaType};
use weir_runtime::{ChainVersion, Outcome};
use weir_store::StoreKey;
use weir_upstream::{DecodedBody, Purpose, RequestHead, ResponseBodyError, error_report, no_request_body};

use super::Unserved;
use crate::serve::Handlers;
use crate::serve::body::AbortError;
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::StatusError;
use crate::serve::route::Filtering;
use weir_view::{CatchUp, ComponentView, View};
use weir_wire::headers;
use weir_wire::watch::{WatchDecoder, WatchEncoder, WatchEvent};
use weir_wire::{CodecError, ObjectType};

/// The largest event.
const MAX_EVENT: usize = 32 << 20;

/// How long the API server may take until it answers the watch. kube-apiserver queues a request for at most 15 s (priority and
/// fairness), and waits 3 s for its watch cache.
const HEAD: Duration = Duration::from_secs(30);

/// How long the API server's watch lasts. kube-apiserver sends a BOOKMARK 2 s before its end, otherwise once a minute, and
/// where nothing changes only a BOOKMARK shows that the client has got all events before the history.
const TIMEOUT: u64 = 4;
/// A watch that lasted longer has had its BOOKMARK.
const WITH_BOOKMARK: Duration = Duration::from_secs(TIMEOUT - 1);
/// The same of resources without BOOKMARKs: kube-apiserver keeps no watch cache of Events.
const LONGEST: u64 = 1800;

/// The events before the history.
pub(super) struct OlderEvents {
    upstream: Box<DecodedBody>,
    decoder: WatchDecoder,
    encoder: WatchEncoder,
    /// The filters, and the version of those that the view had taken.
    filtering: Filtering,
    made_by: ChainVersion,
    until: CatchUp,
    has_bookmarks: bool,
    started: Instant,
}

/// Some events as the client gets them.
#[derive(Default)]
pub(super) struct OlderBatch {
    /// The encoded events, in order.
    pub(super) events: Vec<Bytes>,
    /// Whether they reach the history.
    pub(super) is_complete: bool,
    /// Whether no events follow.
    pub(super) ended: bool,
    /// The version up to which failure policies decided on some of them, or 0. The watch ends, since the view does not correct it.
    pub(super) degraded: u64,
}

impl OlderBatch {
    /// The end of the watch.
    pub(super) fn end() -> Self {
        Self { ended: true, ..Self::default() }
    }
}

impl OlderEvents {
    /// Starts the watch at the API server, with the client's own credential. It goes on until the version at which the history
    /// begins.
    ///
    /// # Errors
    /// The API server does not answer with events, and the request must be forwarded, or it does not answer.
    pub(super) async fn start(
        handlers: &Handlers,
        request: &CallerRequest,
        media_type: MediaType,
        view: &mut ComponentView,
        until: CatchUp,
    ) -> Result<Self, Unserved> {
        // In this order: a change in between shows when the first events come.
        let made_by = view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED);
        let resource = request.parsed.resource().ok_or(Unserved::AskUpstream)?;
        let filtering = handlers.chains.filtering(&request.component, &resource.resource);
        let mut headers = request.headers.clone();
        headers::prepare_request(&mut headers, request.caller.identity());
        headers::request_form(&mut headers, media_type.upstream_accept(false), false);
        let query = &request.parsed.query;
        let timeout =
            query.first("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).filter(|timeout| *timeout > 0);
        // Where none comes, an event may, hours later.
        let longest = if view.lacks_bookmarks() { LONGEST } else { TIMEOUT };
        let timeout = timeout.unwrap_or(longest).min(longest).to_string();
        let path = query.with("timeoutSeconds", &timeout).with("allowWatchBookmarks", "true");
        let path = path.on(request.parsed.forward.path()).ok_or(Unserved::AskUpstream)?;
        let answered_by = handlers.access.resource_answered_by(resource);
        let head = RequestHead { method: http::Method::GET, path, headers, answered_by };
        let response = handlers.upstream.send(request.caller.identity(), Purpose::Watch, head, no_request_body());
        let response = tokio::time::timeout(HEAD, response).await;
        let slow = |_| StatusError::Interrupted(AbortError::Upstream(ResponseBodyError::Stalled(HEAD)));
        let (parts, body) = response.map_err(slow)?.map_err(|_| Unserved::AskUpstream)?.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let encoding = content_type.filter(|_| parts.status == StatusCode::OK).and_then(Encoding::from_content_type);
        let encoding = encoding.filter(|encoding| *encoding == media_type.encoding).ok_or(Unserved::AskUpstream)?;
        Ok(Self {
            upstream: Box::new(DecodedBody::new(&parts.headers, body).map_err(|_| Unserved::AskUpstream)?),
            decoder: WatchDecoder::new(encoding, media_type.transform, ObjectType::of(resource), MAX_EVENT),
            encoder: WatchEncoder::new(encoding, media_type.transform),
            filtering,
            made_by,
            until,
            has_bookmarks: false,
            started: Instant::now(),
        })
    }

    /// The version of the filters that the events pass.
    pub(super) fn made_by(&self) -> ChainVersion {
        self.made_by
    }

    /// Waits for bytes, and returns the events that are complete. Cancel-safe while it waits.
    ///
    /// # Errors
    /// The API server's events are malformed, there is no outcome of one, or the client has to list again.
    pub(super) async fn next(
        &mut self,
        handlers: &Handlers,
        request: &CallerRequest,
        view: &View,
    ) -> Result<OlderBatch, StatusError> {
        // An interrupted watch ends between two events; the client continues with another one.
        let received = self.upstream.next().await;
        // A client's shorter watch, or one that the API server breaks off, says nothing.
        if matches!(received, Ok(None)) && self.started.elapsed() > WITH_BOOKMARK {
            view.note_bookmarks(self.has_bookmarks);
        }
        let bytes = received.ok().flatten();
        let ended = bytes.is_none();
        match bytes {
            Some(bytes) => self.decoder.push(bytes),
            None => self.decoder.finish(),
        }
        let mut events = Vec::new();
        while let Some(event) = self.decoder.next_event().map_err(invalid)? {
            events.push(event);
        }
        // Later events come from the history.
        let is_older = |event: &WatchEvent| version(event).unwrap_or_default() <= self.until.to;
        let is_complete = events.iter().any(|event| version(event).unwrap_or_default() >= self.until.to);
        if events.iter().any(|event| event.event_type == EventType::Bookmark) {
            self.has_bookmarks = true;
            view.note_bookmarks(true);
        }
        let has_error = events.iter().any(|event| event.event_type == EventType::Error);
        events.retain(is_older);
        let outcomes = outcomes(&self.filtering, &events).await;
        let is_degraded = self.filtering.is_degraded();
        let resource = request.parsed.resource();
        let now = resource.map(|resource| handlers.chains.filtering(&request.component, &resource.resource).of_views());
        if now != Some(self.made_by) {
            // The outcomes may be those of another chain than the view's. The client continues with another watch.
            return Ok(OlderBatch::end());
        }
        let ended = ended || is_degraded || has_error;
        let mut batch = OlderBatch { is_complete, ended, ..OlderBatch::default() };
        for (event, outcome) in events.iter().zip(outcomes) {
            if is_degraded {
                batch.degraded = batch.degraded.max(version(event).unwrap_or_default());
            }
            batch.events.extend(self.encode(event, outcome, view)?);
        }
        Ok(batch)
    }

    fn encode(&mut self, event: &WatchEvent, outcome: Outcome, view: &View) -> Result<Option<Bytes>, StatusError> {
        self.encoder.note(event);
        let (event_type, bytes) = match (event.event_type, outcome) {
            // The view sends the client's position.
            (EventType::Bookmark, _) => return Ok(None),
            // Above the stamp a client holds nothing that the chain hides.
            (EventType::Added, Outcome::Hidden) if !self.until.is_repeated => return Ok(None),
            // It has had no other state.
            (EventType::Added, Outcome::Hidden) if present(event, view) == version(event) => (EventType::Deleted, None),
            // Its deletion would have to carry the state that the client was shown last, which is not known: kube-proxy removes the
            // ports that a deletion names.
            (EventType::Added | EventType::Modified, Outcome::Hidden) => {
                return Err(StatusError::Expired("a filter hides an object that the client may hold in another state"));
            }
            // Nor is it where the object was created again, or came back to the client's selector.
            (EventType::Deleted, _) if self.until.is_repeated && present(event, view).is_some() => {
                return Err(StatusError::Expired("the client may hold an object that was deleted and created again"));
            }
            (EventType::Deleted, Outcome::Failed(_)) | (_, Outcome::Hidden) => (EventType::Deleted, None),
            (_, Outcome::Failed(failure)) => return Err(StatusError::Filter(failure)),
            (event_type, Outcome::Edited(bytes)) => (event_type, Some(bytes)),
            (event_type, Outcome::Unchanged) => (event_type, None),
        };
        self.encoder.encode(event, event_type, bytes.as_ref()).map(Some).map_err(invalid)
    }
}

/// One outcome for each event.
async fn outcomes(filtering: &Filtering, events: &[WatchEvent]) -> Vec<Outcome> {
    let filtered = events.iter().filter(|event| event.is_filtered());
    let documents: Vec<_> = filtered.filter_map(WatchEvent::document).cloned().collect();
    let mut outcomes = filtering.run(documents).await.into_iter();
    let outcome = |event: &WatchEvent| match event.is_filtered() {
        true => outcomes.next().unwrap_or(Outcome::Hidden),
        false => Outcome::Unchanged,
    };
    events.iter().map(outcome).collect()
}

/// The version of the object of that name that the view has, shown or not.
fn present(event: &WatchEvent, view: &View) -> Option<u64> {
    let key = StoreKey::of(event.document()?).ok().flatten()?;
    view.snapshot().objects.get(&key).map(|object| object.source.version)
}

fn version(event: &WatchEvent) -> Option<u64> {
    event.document()?.resource_version().ok().flatten()?.parse().ok()
}

fn invalid(error: CodecError) -> StatusError {
    StatusError::InvalidResponse(error_report(&error))
}
