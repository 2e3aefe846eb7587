//! The upstream request of a get, list or watch that filters match. Before a write, Weir reads the current object by it, too.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use super::forward;
use crate::serve::Handlers;
use crate::serve::body::ResponseBody;
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::StatusError;
use crate::serve::route::Filtering;
use tokio::time::timeout;
use weir_document::Document;
use weir_document::protobuf::kind_of;
use weir_kube::{Accepted, Encoding, IncludeObject, MediaType, Query, ResourceRequest, Transform, Verb};
use weir_upstream::{DecodedBody, Purpose, RequestHead, UpstreamBody, no_request_body};
use weir_wire::ObjectType;
use weir_wire::headers;

/// The longest time that a read waits for a stamp. Without one its client gets again what it holds.
const FIND_STAMP: Duration = Duration::from_secs(2);

/// What does not select in a query.
const NO_SELECTION: [&str; 9] = [
    "watch",
    "timeoutSeconds",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "includeObject",
];

/// A read that filters match. Those apply to the whole response that are in force when its head arrives.
#[derive(Clone)]
pub(crate) struct ReadRequest {
    /// What the client reads, or the write whose object Weir reads first.
    pub(crate) asked: Arc<CallerRequest>,
    pub(crate) filtering: Filtering,
    pub(crate) resource: ResourceRequest,
    /// The type of the resource's objects.
    pub(crate) object_type: ObjectType,
    /// The negotiated form of the response.
    pub(crate) media_type: MediaType,
    /// Whether the client accepts nothing but Tables. Where there are none, the API server's error is the response.
    only_tables: bool,
    /// What the client accepts, if API servers have none of it: the server's error is the response.
    unacceptable: Option<HeaderValue>,
    /// Whether the version of the response is a stamp of the filters: see [`ReadRequest::note_version`].
    is_stamp: bool,
}

/// The API server's response to a read.
pub(crate) enum ReadResponse {
    /// Objects to filter.
    Objects(ObjectsResponse),
    /// An error of the API server, which passes unchanged.
    Other(Response<ResponseBody>),
}

/// Objects as the API server sends them.
pub(crate) struct ObjectsResponse {
    /// The headers, adapted to the filtered body.
    pub(crate) parts: http::response::Parts,
    /// The decompressed body.
    pub(crate) body: Box<DecodedBody>,
    /// The body's encoding: the requested one, or JSON.
    pub(crate) encoding: Encoding,
}

impl ReadRequest {
    /// Negotiates the form of a read of this resource.
    pub(crate) fn new(asked: Arc<CallerRequest>, resource: ResourceRequest, filtering: Filtering) -> Self {
        let Accepted { media_type, only_tables, is_served } = negotiate(&asked.headers, &resource, &asked.parsed.query);
        Self {
            unacceptable: if is_served { None } else { asked.headers.get(header::ACCEPT).cloned() },
            asked,
            filtering,
            object_type: ObjectType::of(&resource),
            resource,
            media_type,
            only_tables,
            is_stamp: false,
        }
    }

    /// Returns the same read in another form.
    #[must_use]
    pub(crate) fn with_media_type(&self, media_type: MediaType) -> Self {
        Self { media_type, unacceptable: None, ..self.clone() }
    }

    /// Takes the filters that are in force, once the head of the response has arrived: each version that a client gets after a
    /// change was made by the filters after it.
    pub(crate) fn take_filters(&mut self, handlers: &Handlers) {
        let before = std::mem::replace(
            &mut self.filtering,
            handlers.chains.filtering(&self.asked.component, &self.resource.resource),
        );
        self.is_stamp = self.is_consistent() && before.version() == self.filtering.version();
    }

    /// Notes the version of the list that this read has got: it is a stamp, if the filters were in force when the read began.
    pub(crate) fn note_version(&self, handlers: &Handlers, version: u64) {
        if self.is_stamp {
            handlers.views.chain_stamps().note(self.filtering.version(), &self.resource.resource, version);
        }
    }

    /// Asks the API server for its newest version, unless a stamp of the filters is known: what a client is shown of a later
    /// version, they have made. With the client's credential, one object of the collection.
    pub(crate) async fn find_stamp(&self, handlers: &Handlers) {
        let (version, resource) = (self.filtering.version(), &self.resource.resource);
        if handlers.views.chain_stamps().knows(version, resource) || !handlers.upstream.is_reachable() {
            return;
        }
        if let Ok(Some(newest)) = timeout(FIND_STAMP, self.newest_version(handlers)).await {
            handlers.views.chain_stamps().note(version, resource, newest);
        }
    }

    async fn newest_version(&self, handlers: &Handlers) -> Option<u64> {
        let ReadResponse::Objects(ObjectsResponse { body, .. }) = self.first(handlers).await?.ok()? else {
            return None;
        };
        let (bytes, _lease) = handlers.whole_object(&self.asked.caller, *body).await.ok()?;
        Document::json(bytes).resource_version().ok()??.parse().ok()
    }

    /// Lists one object of what the read selects, with the client's credential. `None`: that has no path.
    pub(crate) async fn first(&self, handlers: &Handlers) -> Option<Result<ReadResponse, StatusError>> {
        let mut selection = self.asked.parsed.query.without(&NO_SELECTION);
        if let Some(name) = &self.resource.name {
            let named = format!("metadata.name={name}");
            let selector = selection.first("fieldSelector").filter(|selector| !selector.is_empty());
            let selector = selector.map_or_else(|| named.clone(), |selector| format!("{selector},{named}"));
            selection = selection.with("fieldSelector", &selector);
        }
        let mut list = self.with_media_type(MediaType::JSON);
        (list.resource.verb, list.resource.name) = (Verb::List, None);
        let path = selection.with("limit", "1").on(&list.resource.collection)?;
        Some(list.send(handlers, path).await)
    }

    /// Whether API servers have a form that the client accepts.
    pub(crate) fn is_served(&self) -> bool {
        self.unacceptable.is_none()
    }

    /// Whether the client gets a Table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.media_type.transform, Transform::Table(..))
    }

    /// Whether views serve the watches of its client.
    pub(crate) fn is_of_views(&self, handlers: &Handlers) -> bool {
        handlers.views.serve(&self.asked.component, &self.resource)
    }

    /// Whether the API server answers with its newest version.
    fn is_consistent(&self) -> bool {
        let is_unset = |parameter| self.asked.parsed.query.first(parameter).is_none_or(str::is_empty);
        self.resource.verb == Verb::List && is_unset("resourceVersion") && is_unset("continue")
    }

    /// Returns the upstream path.
    #[must_use]
    pub(crate) fn upstream_path(&self) -> PathAndQuery {
        path_with_objects(&self.asked.parsed.forward, &self.asked.parsed.query, self.media_type.transform)
    }

    /// Requests `path` from the API server, with the client's credential and in the negotiated form.
    ///
    /// # Errors
    /// No API server responds, or the response is neither an error nor objects in a requested encoding.
    pub(crate) async fn send(&self, handlers: &Handlers, path: PathAndQuery) -> Result<ReadResponse, StatusError> {
        let purpose = if self.resource.verb == Verb::Watch { Purpose::Watch } else { Purpose::Short };
        // A HEAD becomes a GET, because filters need the body. hyper does not send the body to the client.
        let (mut headers, identity) = (self.asked.headers.clone(), self.asked.caller.identity());
        headers::prepare_request(&mut headers, identity);
        let accept = self.unacceptable.clone();
        let accept = accept.unwrap_or_else(|| self.media_type.upstream_accept(self.only_tables));
        headers::request_form(&mut headers, accept, self.resource.verb != Verb::Watch);
        let answered_by = handlers.access.resource_answered_by(&self.resource);
        let head = RequestHead { method: Method::GET, path: path.clone(), headers, answered_by };
        let response = handlers.upstream.send(identity, purpose, head, no_request_body()).await?;
        let (mut parts, body) = response.into_parts();
        headers::prepare_response(&mut parts);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(StatusError::unrequested_upgrade());
        }
        if !parts.status.is_success() {
            return Ok(ReadResponse::Other(Response::from_parts(parts, forward::unchanged(body))));
        }
        if self.unacceptable.is_some() {
            // The server has the form after all, and filters may not read it as a whole: it is asked for what they read.
            return Box::pin(self.with_media_type(self.media_type).send(handlers, path)).await;
        }
        objects(parts, body, self.resource.verb).map(ReadResponse::Objects)
    }
}

fn objects(mut parts: http::response::Parts, body: UpstreamBody, verb: Verb) -> Result<ObjectsResponse, StatusError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(encoding) = Encoding::from_content_type(content_type).filter(|_| parts.status == StatusCode::OK) else {
        return Err(StatusError::InvalidResponse(format!(
            "it is {} with the content type {content_type:?}, which was not requested",
            parts.status
        )));
    };
    let body = DecodedBody::new(&parts.headers, body).map_err(StatusError::InvalidResponse)?;
    headers::filtered_response(&mut parts.headers, encoding.content_type(verb));
    Ok(ObjectsResponse { parts, body: Box::new(body), encoding })
}

/// The path of a request to the API server. For a Table, it requests the whole objects beside the cells, unless the API server
/// refuses what the client requests instead.
pub(crate) fn path_with_objects(path: &PathAndQuery, query: &Query, transform: Transform) -> PathAndQuery {
    let needs_objects = matches!(transform, Transform::Table(..)) && IncludeObject::validate(query).is_ok();
    let with_objects = needs_objects.then(|| query.with("includeObject", "Object").on(path.path()));
    with_objects.flatten().unwrap_or_else(|| path.clone())
}

/// Negotiates the form of a response from the headers and the query.
pub(crate) fn negotiate(headers: &HeaderMap, resource: &ResourceRequest, query: &Query) -> Accepted {
    // Only built-in kinds have a protobuf encoding.
    let protobuf = kind_of(&resource.api_version(), &resource.resource.resource).is_some();
    Accepted::negotiate(headers, protobuf, query, resource.verb)
}
