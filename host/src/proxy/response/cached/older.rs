//! A watch from a version that is older than the view's history: the API server knows what happened until the history
//! begins.
//!
//! If one chain version has shown the client everything that it holds, its events are sent as they come, and the watch ends
//! when the chain version changes. Where an object changes that the chain hides, the client gets a 410.
//!
//! Otherwise Weir does not know what the client holds: it may continue from the version of a write, of a get, or of a list
//! that another process served. Such a client gets the whole state of the view. The events before the history are collected
//! until then, because a client that has got some of them would look as if it held the state before them, too.

use bytes::Bytes;
use http::header;
use weir_document::json::EventType;
use weir_kube::{Encoding, MediaType, VerbClass};
use weir_runtime::{Chain, ChainVersion, Outcome, Serving};
use weir_upstream::{DecodedBody, Purpose, RequestHead, error_report, no_request_body};

use super::CacheableRequest;
use crate::codec::watch::{WatchDecoder, WatchEncoder, WatchEvent};
use crate::codec::{CodecError, ObjectType};
use crate::proxy::Proxy;
use crate::proxy::headers;
use crate::proxy::respond::StatusError;
use crate::view::{EarlierEvent, View};

/// The largest event.
const MAX_EVENT: usize = 32 << 20;

/// How long the API server's watch lasts. kube-apiserver sends a BOOKMARK 2 s before its end, otherwise once a minute, and
/// where nothing changes only a BOOKMARK tells that the client has got all events before the history.
const TIMEOUT: u64 = 4;

/// The most bytes of collected events.
const MAX_COLLECTED: usize = 8 << 20;

/// The events before the history.
pub(super) struct OlderEvents {
    upstream: Box<DecodedBody>,
    decoder: WatchDecoder,
    encoder: WatchEncoder,
    /// Whether the client gets bookmarks, too.
    takes_bookmarks: bool,
    /// The chain version that has shown the client everything; `None` if events are collected.
    shown_by: Option<ChainVersion>,
    collected: Vec<EarlierEvent>,
    collected_bytes: usize,
    /// The version of the last event that is not a BOOKMARK.
    last_event: u64,
}

/// Some events as the client gets them.
pub(super) struct OlderBatch {
    /// The encoded events, in order.
    pub(super) events: Vec<Bytes>,
    /// The version of the last of them, or of a later one that the client does not get.
    pub(super) version: Option<u64>,
    /// Whether no events follow.
    pub(super) ended: bool,
}

impl OlderBatch {
    /// The end of the watch.
    pub(super) fn end() -> Self {
        Self { events: Vec::new(), version: None, ended: true }
    }
}

impl OlderEvents {
    /// Starts the watch at the API server, with the client's own credential. `shown_by` is the chain version that has shown the
    /// client everything that it holds. `None`: the API server does not answer with events, and the request must be forwarded.
    pub(super) async fn start(
        proxy: &Proxy,
        request: &CacheableRequest,
        media_type: MediaType,
        shown_by: Option<ChainVersion>,
    ) -> Option<Self> {
        let resource = request.parsed.resource()?;
        let mut headers = request.headers.clone();
        headers::prepare_request(&mut headers, request.caller.identity());
        headers::request_form(&mut headers, media_type.upstream_accept(false), false);
        let query = &request.parsed.query;
        let timeout =
            query.first("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).filter(|timeout| *timeout > 0);
        let timeout = timeout.unwrap_or(TIMEOUT).min(TIMEOUT).to_string();
        let path = query.with("timeoutSeconds", &timeout).with("allowWatchBookmarks", "true");
        let path = path.on(request.parsed.forward.path())?;
        let answered_by = proxy.resource_answered_by(resource);
        let head = RequestHead { method: http::Method::GET, path, headers, answered_by };
        let response =
            proxy.upstream.send(request.caller.identity(), Purpose::Watch, head, no_request_body()).await.ok()?;
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())?;
        let encoding = Encoding::from_content_type(content_type).filter(|_| parts.status == http::StatusCode::OK)?;
        (encoding == media_type.encoding).then_some(())?;
        Some(Self {
            upstream: Box::new(DecodedBody::new(&parts.headers, body).ok()?),
            decoder: WatchDecoder::new(encoding, media_type.transform, ObjectType::of(resource), MAX_EVENT),
            encoder: WatchEncoder::new(encoding, media_type.transform),
            takes_bookmarks: query.flag("allowWatchBookmarks"),
            shown_by,
            collected: Vec::new(),
            collected_bytes: 0,
            last_event: 0,
        })
    }

    /// The version of the last event that is not a BOOKMARK; 0 if there was none.
    pub(super) fn last_event(&self) -> u64 {
        self.last_event
    }

    /// Takes the collected events; `None` if they were sent.
    pub(super) fn take_collected(&mut self) -> Option<Vec<EarlierEvent>> {
        self.shown_by.is_none().then(|| std::mem::take(&mut self.collected))
    }

    /// Waits for bytes, and returns the events that are complete. Cancel-safe while it waits.
    pub(super) async fn next(
        &mut self,
        proxy: &Proxy,
        request: &CacheableRequest,
        view: &View,
    ) -> Result<OlderBatch, StatusError> {
        // An interrupted watch ends between two events; the client continues with another one.
        let bytes = self.upstream.next().await.ok().flatten();
        let ended = bytes.is_none();
        match bytes {
            Some(bytes) => self.decoder.push(bytes),
            None => self.decoder.finish(),
        }
        let mut events = Vec::new();
        while let Some(event) = self.decoder.next().map_err(invalid)? {
            events.push(event);
        }
        let chain = chain(proxy, request);
        let outcomes = outcomes(chain.as_ref(), &events).await;
        let mut batch = OlderBatch { events: Vec::new(), version: None, ended };
        for (event, outcome) in events.iter().zip(outcomes) {
            batch.version = version(event).or(batch.version);
            if event.event_type != EventType::Bookmark {
                self.last_event = batch.version.unwrap_or_default();
            }
            batch.ended |= event.event_type == EventType::Error;
            let encoded = self.encode(event, outcome)?;
            match (self.shown_by, event.event_type) {
                (Some(_), _) | (None, EventType::Error) => batch.events.extend(encoded),
                (None, EventType::Bookmark) => {}
                (None, _) => self.collect(encoded, batch.version)?,
            }
        }
        if let (Some(shown_by), Some(version)) = (self.shown_by, batch.version) {
            // In this order, a change of outcomes either has a stamp that is not below the version, or ends the watch.
            view.hand_out(version);
            if chain_version(proxy, request) != shown_by {
                return Ok(OlderBatch::end());
            }
        }
        Ok(batch)
    }

    fn collect(&mut self, encoded: Option<Bytes>, version: Option<u64>) -> Result<(), StatusError> {
        let (Some(encoded), Some(version)) = (encoded, version) else { return Ok(()) };
        self.collected_bytes += encoded.len();
        if self.collected_bytes > MAX_COLLECTED {
            return Err(StatusError::Expired("too much has changed since the version"));
        }
        self.collected.push(EarlierEvent { version, encoded });
        Ok(())
    }

    fn encode(&mut self, event: &WatchEvent, outcome: Outcome) -> Result<Option<Bytes>, StatusError> {
        self.encoder.note(event);
        if event.event_type == EventType::Bookmark && !self.takes_bookmarks {
            return Ok(None);
        }
        let encoded = match (event.event_type, outcome) {
            (EventType::Added, Outcome::Hidden) => return Ok(None),
            // Its deletion would have to carry the state that the client was shown last, which is not known: kube-proxy removes the
            // ports that a deletion names.
            (EventType::Modified, Outcome::Hidden) => {
                return Err(StatusError::Expired(
                    "a filter hides an object that the client may hold in an earlier state",
                ));
            }
            (EventType::Deleted, Outcome::Hidden | Outcome::Failed(_)) => {
                self.encoder.encode(event, EventType::Deleted, None)
            }
            (_, Outcome::Failed(failure)) => return Err(StatusError::Filter(failure)),
            (event_type, Outcome::Edited(bytes)) => self.encoder.encode(event, event_type, Some(&bytes)),
            // BOOKMARK and ERROR are never filtered.
            (event_type, Outcome::Unchanged | Outcome::Hidden) => self.encoder.encode(event, event_type, None),
        };
        encoded.map(Some).map_err(invalid)
    }
}

/// One outcome for each event.
async fn outcomes(chain: Option<&Chain>, events: &[WatchEvent]) -> Vec<Outcome> {
    let filtered = events.iter().filter(|event| event.is_filtered());
    let documents: Vec<_> = filtered.filter_map(WatchEvent::document).cloned().collect();
    let mut outcomes = match chain {
        Some(chain) if !documents.is_empty() => chain.run(documents).await.into_iter(),
        _ => vec![Outcome::Unchanged; documents.len()].into_iter(),
    };
    let outcome = |event: &WatchEvent| match event.is_filtered() {
        true => outcomes.next().unwrap_or(Outcome::Hidden),
        false => Outcome::Unchanged,
    };
    events.iter().map(outcome).collect()
}

/// The chain that filters the client's reads now.
fn chain(proxy: &Proxy, request: &CacheableRequest) -> Option<Chain> {
    match &*proxy.serving.borrow() {
        Serving::Live(set) => set.chain(&request.component, &request.parsed.resource()?.resource, VerbClass::Read),
        Serving::Unknown | Serving::Pending(_) => None,
    }
}

/// The version of that chain.
fn chain_version(proxy: &Proxy, request: &CacheableRequest) -> ChainVersion {
    chain(proxy, request).map_or(ChainVersion::UNFILTERED, |chain| chain.version())
}

fn version(event: &WatchEvent) -> Option<u64> {
    event.document()?.resource_version().ok().flatten()?.parse().ok()
}

fn invalid(error: CodecError) -> StatusError {
    StatusError::InvalidResponse(error_report(&error))
}
