//! Writes of objects that filters match.
//!
//! A client that writes back what it read would store the edits of a filter in the cluster. The API server cannot detect
//! this, because the resource version is current. So Weir reads the current object before the write, with the client's
//! credential and chain, and rejects the write if a filter edits or hides the object. This applies to PUT, JSON Patch and
//! merge patch. Server-side apply and strategic merge patch name the fields that they change, so they pass, as do writes of
//! subresources and deletions. If the object changes between that read and the write, its resource version fails the write.
//!
//! Filters also edit the objects in the response to a write, but they do not hide them, because the write has been carried
//! out. The client may start a watch at the version in that response. Memory: one object, or the response to the deletion of a collection, at most [`LIMIT`].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use weir_document::Document;
use weir_document::SplitError;
use weir_document::json::{Joiner, ListSplitter};
use weir_document::list::{ItemOutcome, Piece};

use super::forward;
use super::get::LIMIT;
use super::memory_budget::ObjectLease;
use super::read::{ObjectsResponse, ReadRequest, ReadResponse, negotiate, path_with_objects};
use crate::serve::Handlers;
use crate::serve::body::{Meter, ResponseBody, full};
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::{ApiStatus as _, StatusError};
use crate::serve::route::Filtering;
use weir_kube::{Accepted, Encoding, MediaType, ResourceRequest, Transform, Verb};
use weir_runtime::{Chain, Failure, Unwritable};
use weir_upstream::{DecodedBody, Purpose, RequestBody, RequestHead};
use weir_wire::ObjectType;
use weir_wire::headers;
use weir_wire::object::EncodedObject;

/// The response to a successful write whose own response cannot be filtered.
const SUCCESS: &[u8] = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

/// A write that filters match.
pub(crate) struct WriteRequest {
    pub(crate) chain: Chain,
    pub(crate) asked: Arc<CallerRequest>,
    pub(crate) resource: ResourceRequest,
}

/// The reason why the response to a write cannot be filtered.
struct Unfilterable(String);

impl WriteRequest {
    /// Responds to the write.
    pub(crate) async fn respond(
        self,
        handlers: &Arc<Handlers>,
        request: http::Request<RequestBody>,
    ) -> Response<ResponseBody> {
        let encoding = Encoding::for_errors(request.headers());
        let (path, component) = (self.asked.parsed.forward.clone(), self.asked.component.clone());
        // Created first: it also counts a request whose client leaves before the response.
        let meter = Meter::new(handlers.metrics.clone(), "write", self.asked.started);
        let response = self.send(handlers, request).await.unwrap_or_else(|error| {
            let error = error.with_outage(&handlers.outage);
            handlers.failures.warn("write failed", (&path, &component), Some(error.code().as_u16()), &error);
            error.response(encoding)
        });
        meter.attach(response)
    }

    /// Checks the write, sends it, and filters its response.
    async fn send(
        mut self,
        handlers: &Arc<Handlers>,
        request: http::Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, StatusError> {
        let (mut parts, body) = request.into_parts();
        if self.replaces(&parts.headers)
            && let Some(response) = self.check(handlers).await?
        {
            return Ok(response);
        }
        let Accepted { media_type, is_served, .. } = self.accepted(&parts.headers);
        headers::prepare_request(&mut parts.headers, self.asked.caller.identity());
        // A media type that the API server has not, it refuses before it writes.
        if is_served {
            parts.headers.insert(header::ACCEPT, media_type.upstream_accept(true));
        }
        parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let purpose = if self.resource.is_heartbeat() { Purpose::Heartbeat } else { Purpose::Short };
        let (path, answered_by) = (
            path_with_objects(&self.asked.parsed.forward, &self.asked.parsed.query, media_type.transform),
            handlers.access.answered_by(&self.asked.parsed),
        );
        let head = RequestHead { method: parts.method, path, headers: parts.headers, answered_by };
        let response = handlers.upstream.send(self.asked.caller.identity(), purpose, head, body).await?;
        let (mut parts, body) = response.into_parts();
        headers::prepare_response(&mut parts);
        if !parts.status.is_success() {
            return Ok(Response::from_parts(parts, forward::unchanged(body)));
        }
        // The filters in force now decide what the client sees of this version.
        match handlers.chains.filtering(&self.asked.component, &self.resource.resource).chain() {
            Some(chain) => self.chain = chain.clone(),
            None => return Ok(Response::from_parts(parts, forward::unchanged(body))),
        }
        let content_type =
            parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = Encoding::from_content_type(content_type);
        let plain = DecodedBody::new(&parts.headers, body);
        let filtered = match (encoding, plain) {
            (Some(encoding), Ok(plain)) => self.filter(handlers, encoding, media_type, plain).await,
            (None, _) => Err(Unfilterable(format!("its content type is {content_type:?}"))),
            (_, Err(reason)) => Err(Unfilterable(reason)),
        };
        let (encoding, (bytes, lease), failure) = match filtered {
            Ok((bytes, failure, lease)) => {
                let encoding = encoding.unwrap_or(Encoding::Json);
                (encoding, (bytes, Some(lease)), failure.map(|failure| failure.to_string()))
            }
            Err(Unfilterable(reason)) => (Encoding::Json, (Bytes::from_static(SUCCESS), None), Some(reason)),
        };
        headers::filtered_response(&mut parts.headers, encoding.content_type(Verb::Get));
        if let Some(reason) = failure {
            tracing::warn!(path = %self.asked.parsed.forward, component = self.asked.component, reason, "write succeeded, but its response cannot be filtered completely");
            add_warning(&mut parts.headers, &reason);
        }
        Ok(match lease {
            Some(lease) => lease.respond(parts, bytes),
            None => Response::from_parts(parts, full(bytes)),
        })
    }

    /// Whether the write replaces whole fields of the object by values that the client has read.
    fn replaces(&self, headers: &HeaderMap) -> bool {
        if self.resource.subresource.is_some() || self.resource.name.is_none() {
            return false;
        }
        match self.resource.verb {
            Verb::Update => true,
            Verb::Patch => headers.get_all(header::CONTENT_TYPE).iter().any(|value| {
                let media = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
                let media = media.split(';').next().unwrap_or_default().trim();
                matches!(media, "application/json-patch+json" | "application/merge-patch+json")
            }),
            _ => false,
        }
    }

    /// Returns a read of the current object as JSON, with the credential and the chain of the write.
    fn read_request(&self) -> ReadRequest {
        let mut resource = self.resource.clone();
        resource.verb = Verb::Get;
        let filtering = Filtering::of(Some(self.chain.clone()));
        ReadRequest::new(self.asked.clone(), resource, filtering).with_media_type(MediaType::JSON)
    }

    /// Checks that no filter edits or hides the current object. Returns a response if the API server rejects the read.
    ///
    /// # Errors
    /// [`StatusError::WriteBack`], or the check failed.
    async fn check(&self, handlers: &Arc<Handlers>) -> Result<Option<Response<ResponseBody>>, StatusError> {
        let read = self.read_request();
        let path = self.asked.parsed.forward.path().parse();
        let path = path.map_err(|_| StatusError::InvalidResponse("the path of the object is not valid".to_owned()))?;
        let ObjectsResponse { body, encoding, .. } = match read.send(handlers, path).await? {
            ReadResponse::Objects(objects) => objects,
            // A client that cannot read the object has nothing to write back. The API server decides on the write itself.
            ReadResponse::Other(response)
                if matches!(
                    response.status(),
                    StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED
                ) =>
            {
                return Ok(None);
            }
            ReadResponse::Other(response) => return Ok(Some(response)),
        };
        let invalid = |reason: String| StatusError::InvalidResponse(reason);
        let (bytes, _lease) = handlers.whole_object(&self.asked.caller, *body).await?;
        let object =
            EncodedObject::decode(encoding, Transform::None, bytes).map_err(|error| invalid(error.to_string()))?;
        let Some(object) = object else { return Ok(None) };
        let object = object.typed(&read.object_type).map_err(|error| invalid(error.to_string()))?;
        match self.chain.may_write_back(object.document().clone()).await {
            Ok(()) => Ok(None),
            Err(Unwritable::Altered { filter, hidden }) => Err(StatusError::WriteBack {
                resource: self.resource.resource.clone(),
                name: self.resource.name.clone().unwrap_or_default(),
                filter,
                hidden,
            }),
            Err(Unwritable::Unknown(failure)) => Err(StatusError::Filter(failure)),
        }
    }

    /// Negotiates the form of the response. Not a Table, unless the client accepts nothing else: its cells may contain what
    /// filters hide, and a write cannot be repeated in another form.
    fn accepted(&self, headers: &HeaderMap) -> Accepted {
        let accepted = negotiate(headers, &self.resource, &self.asked.parsed.query);
        let media_type = match (accepted.media_type.transform, self.resource.verb) {
            (_, Verb::DeleteCollection) => MediaType::JSON,
            (Transform::Table(..), _) if !accepted.only_tables => MediaType::JSON,
            _ => accepted.media_type,
        };
        Accepted { media_type, ..accepted }
    }

    /// Reads and filters the response to the write.
    async fn filter(
        &self,
        handlers: &Handlers,
        encoding: Encoding,
        media_type: MediaType,
        plain: DecodedBody,
    ) -> Result<(Bytes, Option<Failure>, ObjectLease), Unfilterable> {
        let whole = handlers.whole_object(&self.asked.caller, plain).await;
        let (whole, lease) = whole.map_err(|error| Unfilterable(error.to_string()))?;
        let (bytes, failure) = self.filtered(encoding, media_type, whole).await?;
        Ok((bytes, failure, lease))
    }

    /// Filters it. Returns the first failure of a filter, whose object then has the edits before it.
    async fn filtered(
        &self,
        encoding: Encoding,
        media_type: MediaType,
        bytes: Bytes,
    ) -> Result<(Bytes, Option<Failure>), Unfilterable> {
        let unfilterable = |error: weir_document::Error| Unfilterable(error.to_string());
        if self.resource.verb == Verb::DeleteCollection
            && encoding == Encoding::Json
            && Document::json(bytes.clone()).kind().map_err(unfilterable)?.ends_with("List")
        {
            return self.filter_list(bytes).await;
        }
        let object = EncodedObject::decode(encoding, media_type.transform, bytes.clone()).map_err(unfilterable)?;
        let Some(object) = object.filter(EncodedObject::is_complete) else {
            return Err(Unfilterable("it is a Table without the whole object".to_owned()));
        };
        // The response to a deletion that takes effect at once.
        if object.document().kind().map_err(unfilterable)? == "Status" {
            return Ok((bytes, None));
        }
        let object = object.typed(&ObjectType::of(&self.resource)).map_err(|error| Unfilterable(error.to_string()))?;
        let written = self.chain.show_written(object.document().clone()).await;
        let bytes = object.encode(written.edited.as_ref(), media_type.transform).map_err(unfilterable)?;
        Ok((bytes, written.failure))
    }

    /// Filters the response to the deletion of a collection.
    async fn filter_list(&self, bytes: Bytes) -> Result<(Bytes, Option<Failure>), Unfilterable> {
        let unfilterable = |error: SplitError| Unfilterable(error.to_string());
        let mut splitter = ListSplitter::with_limit(LIMIT);
        splitter.push(bytes);
        splitter.finish();
        let mut pieces = Vec::new();
        while let Some(piece) = splitter.next().map_err(unfilterable)? {
            pieces.push(piece);
        }
        let item_type = ObjectType::of(&self.resource).or_of_list(&self.resource.api_version(), splitter.meta());
        let (mut chunks, mut joiner, mut failure) = (Vec::new(), Joiner::new(), None);
        for piece in pieces {
            let batch = match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => {
                    chunks.push(bytes);
                    continue;
                }
                Piece::Batch(batch) => batch,
            };
            let mut outcomes = Vec::with_capacity(batch.items.len());
            for document in batch.documents() {
                let document = item_type.apply(document).map_err(|error| Unfilterable(error.to_string()))?;
                let written = self.chain.show_written(document).await;
                failure = failure.or(written.failure);
                outcomes.push(written.edited.map_or(ItemOutcome::Keep, ItemOutcome::Edit));
            }
            chunks.extend(joiner.push(&batch, outcomes).map_err(unfilterable)?);
        }
        Ok((chunks.concat().into(), failure))
    }
}

/// Adds a Warning header (RFC 7234, section 5.5), which kubectl prints.
fn add_warning(headers: &mut HeaderMap, reason: &str) {
    let text: String = reason
        .chars()
        .filter(|c| (' '..='~').contains(c))
        .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
        .take(400)
        .collect();
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"weir: {}\"", text.trim_end_matches('\\'))) {
        headers.append(header::WARNING, value);
    }
}
