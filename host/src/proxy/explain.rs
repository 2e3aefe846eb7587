//! Explains what a client component sees of an object, and why: `/explain` on the admin port.
//!
//! The caller needs its own permission to read the object, by itself or in a list as client components do, as at the plain
//! port: its token, or as a process of the node with the right uid the node credential. It may then read the object at the API
//! server, where no filter hides it, so the explanation reveals nothing else of it. The objects that filters looked up are part
//! of it: these are resources that every node may read.

use std::net::SocketAddr;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use serde_json::Value;
use weir_document::Document;
use weir_kube::{Encoding, Query, RequestInfo, ResourceRequest, Transform, Verb};
use weir_upstream::{DecodedBody, Purpose, RequestHead, UpstreamError, error_report, no_request_body};

use super::Proxy;
use crate::explanation::Subject;
use crate::serve::get::LIMIT;
use crate::serve::memory_budget::ObjectLease;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_access::AccessError;
use weir_access::Caller;
use weir_front::{Connection, Peer};
use weir_view::ViewOutcome;
use weir_wire::headers::take_hop_by_hop;
use weir_wire::list::{ListDecoder, ListPiece};
use weir_wire::object::EncodedObject;
use weir_wire::{CodecError, ObjectType};

/// The longest name of a client component in bytes, as for requests.
const MAX_COMPONENT: usize = 128;

/// A request for an explanation.
#[derive(Debug)]
pub struct ExplainRequest {
    /// The API path of the object, and in the query the `component`.
    pub uri: Uri,
    /// The headers of the caller: its credential.
    pub headers: HeaderMap,
    /// The address of the caller.
    pub client: SocketAddr,
    /// The address that it connected to.
    pub local: Option<SocketAddr>,
    /// Its connection.
    pub(crate) connection: Connection,
}

/// Why there is no explanation.
#[derive(Debug)]
pub struct ExplainError {
    /// The status code.
    pub code: StatusCode,
    /// A message for the caller.
    pub message: String,
}

/// An object, and where it was read.
struct Source {
    document: Document,
    read_from: &'static str,
    /// What clients of the component have been sent of it; `None` if that is not known.
    sent: Option<&'static str>,
    /// The memory of the document, if Weir has read it for this.
    _lease: Option<ObjectLease>,
}

impl From<StatusError> for ExplainError {
    fn from(error: StatusError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<AccessError> for ExplainError {
    fn from(error: AccessError) -> Self {
        StatusError::from(error).into()
    }
}

impl ExplainError {
    /// Says what the caller needs.
    fn with_hint(self, object: &ResourceRequest) -> Self {
        let resource = &object.resource;
        let needs = format!(
            "{}; an explanation needs the right to get or list {resource}: bind the caller to a role that has it, such as \
             weir-explain, or run weir explain with --node and an administrator's kubeconfig",
            self.message
        );
        Self { message: needs, ..self }
    }

    fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, message: message.into() }
    }
}

impl Proxy {
    /// Explains what a client component sees of an object. Cancel-safe.
    ///
    /// # Errors
    /// The request is malformed, the caller may not read the object, it does not exist, or it cannot be read now.
    pub async fn explain(&self, request: ExplainRequest) -> Result<Value, ExplainError> {
        let ExplainRequest { uri, headers, client, local, connection } = request;
        if !client.ip().to_canonical().is_loopback() {
            let message = "explanations are given only to processes of this machine: tokens would travel in clear text";
            return Err(ExplainError { code: StatusCode::FORBIDDEN, message: message.to_owned() });
        }
        let parsed = RequestInfo::parse(&Method::GET, &uri).map_err(StatusError::from)?;
        let component = parsed.query.first("component").unwrap_or_default().to_owned();
        if component.is_empty() || component.len() > MAX_COMPONENT {
            return Err(ExplainError::bad_request(
                "the query parameter `component` must name the client component whose view is to be explained",
            ));
        }
        let object = match parsed.resource() {
            Some(resource) if resource.verb == Verb::Get && resource.subresource.is_none() => resource.clone(),
            _ => return Err(ExplainError::bad_request("the path after /explain is not the API path of an object")),
        };
        let mut head =
            Request::get(uri.clone()).body(()).map_err(|error| ExplainError::bad_request(error.to_string()))?;
        *head.headers_mut() = headers;
        // As for each request: what an upgrade would carry beside the credential counts for nothing here.
        take_hop_by_hop(head.headers_mut()).map_err(|error| ExplainError::bad_request(error.to_string()))?;
        let peer = Peer::plain(client, local, connection);
        let caller = self.handlers.access.identify(&mut head, &parsed, &peer).await?;
        let chain = self.handlers.chains.chain(&component, &object, self.handlers.start_wait).await?;
        let source = self.source(&caller, &parsed, &object, &component).await?;
        let set = self.handlers.chains.active();
        let subject = Subject {
            object: &object,
            component: &component,
            read_from: source.read_from,
            sent: source.sent,
            offline_since: self
                .handlers
                .upstream
                .offline_since()
                .and_then(|since| jiff::Timestamp::try_from(since).ok()),
            set: set.as_deref(),
            seen: Some(self.clients.components()),
        };
        let explained = subject.explain(&source.document, chain.as_ref()).await;
        Ok(explained.map_err(|reason| StatusError::InvalidResponse(format!("the object cannot be read: {reason}")))?)
    }

    /// Reads the object: from a watch cache that holds it, as clients do, else from the API server with the caller's credential.
    async fn source(
        &self,
        caller: &Caller,
        parsed: &RequestInfo,
        object: &ResourceRequest,
        component: &str,
    ) -> Result<Source, ExplainError> {
        // A client that may not read gets the API server's own answer, or the time since when there is none.
        let listed = list_of(object);
        let mut permit = None;
        for asked in [Some(parsed), listed.as_ref()].into_iter().flatten() {
            permit = match self.handlers.access.reviewed(caller, component, asked).await {
                Err(_) if self.handlers.upstream.is_failing() => None,
                reviewed => reviewed?,
            };
            if permit.is_some() {
                break;
            }
        }
        if let (Some(views), Some(permit)) = (self.handlers.shared_views(), permit) {
            let own = views.shown_to(component, permit.reader(), object);
            let is_own = own.is_some();
            if let Some((snapshot, found)) = own.or_else(|| views.shown(permit.reader(), object)) {
                let sent = match &found.outcome {
                    ViewOutcome::Unchanged => "unchanged",
                    ViewOutcome::Edited(_) => "edited",
                    ViewOutcome::Hidden => "hidden",
                    ViewOutcome::Failed(_) => "failed",
                };
                return Ok(Source {
                    document: snapshot.format.document(found.source.bytes.clone()),
                    read_from: "watch cache",
                    sent: is_own.then_some(sent),
                    _lease: None,
                });
            }
        }
        let (document, lease) = match self.read_upstream(caller, object).await {
            // A client that may list objects of the resource, as its client components do, may read each.
            Err(refused) if refused.code == StatusCode::FORBIDDEN => {
                let found = match &listed {
                    Some(list) => self.list_upstream(caller, object, list).await?,
                    None => None,
                };
                found.ok_or_else(|| refused.with_hint(object))?
            }
            read => read?,
        };
        Ok(Source { document, read_from: "API server", sent: None, _lease: Some(lease) })
    }

    async fn read_upstream(
        &self,
        caller: &Caller,
        object: &ResourceRequest,
    ) -> Result<(Document, ObjectLease), ExplainError> {
        let name = object.name.as_deref().unwrap_or_default();
        let invalid = |reason: String| ExplainError::from(StatusError::InvalidResponse(reason));
        let path = object.object_path(object.namespace.as_deref(), name);
        let path = path.ok_or_else(|| ExplainError::bad_request("the name is no part of a path"))?;
        let (bytes, lease) = self.get_upstream(caller, object, path).await?;
        let decoded = EncodedObject::decode(Encoding::Json, Transform::None, bytes);
        let decoded = decoded.map_err(|error| invalid(error_report(&error)))?;
        let decoded = decoded.ok_or_else(|| invalid("it is not an object".to_owned()))?;
        let typed = decoded.typed(&ObjectType::of(object)).map_err(|error| invalid(error_report(&error)))?;
        Ok((typed.document().clone(), lease))
    }

    /// Reads the object by a list that selects it; `None` if the caller may not list either.
    async fn list_upstream(
        &self,
        caller: &Caller,
        object: &ResourceRequest,
        list: &RequestInfo,
    ) -> Result<Option<(Document, ObjectLease)>, ExplainError> {
        let (bytes, lease) = match self.get_upstream(caller, object, list.forward.clone()).await {
            Err(error) if error.code == StatusCode::FORBIDDEN => return Ok(None),
            read => read?,
        };
        let invalid = |error: CodecError| ExplainError::from(StatusError::InvalidResponse(error_report(&error)));
        let mut decoder = ListDecoder::new(Encoding::Json, ObjectType::of(object), object.api_version(), LIMIT);
        decoder.push(bytes);
        decoder.finish();
        while let Some(piece) = decoder.next_piece().map_err(invalid)? {
            if let ListPiece::Items(items) = piece
                && let Some(found) = items.documents().map_err(invalid)?.pop()
            {
                return Ok(Some((found, lease)));
            }
        }
        let name = object.name.clone().unwrap_or_default();
        Err(StatusError::NotFound { resource: object.resource.clone(), name }.into())
    }

    async fn get_upstream(
        &self,
        caller: &Caller,
        object: &ResourceRequest,
        path: PathAndQuery,
    ) -> Result<(Bytes, ObjectLease), ExplainError> {
        let mut sent = caller.headers().clone();
        sent.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let answered_by = self.handlers.access.resource_answered_by(object);
        let head = RequestHead { method: Method::GET, path, headers: sent, answered_by };
        let outage = |error: UpstreamError| StatusError::from(error).with_outage(&self.handlers.outage);
        let response = self
            .handlers
            .upstream
            .send(caller.identity(), Purpose::Short, head, no_request_body())
            .await
            .map_err(outage)?;
        let (parts, body) = response.into_parts();
        let body = DecodedBody::new(&parts.headers, body).map_err(StatusError::InvalidResponse)?;
        let (bytes, lease) = self.handlers.whole_object(caller, body).await?;
        if !parts.status.is_success() {
            return Err(ExplainError { code: parts.status, message: message(&bytes, parts.status) });
        }
        Ok((bytes, lease))
    }
}

/// A list that selects one object by its name.
fn list_of(object: &ResourceRequest) -> Option<RequestInfo> {
    let name = object.name.as_deref()?;
    let path = Query::default().with("fieldSelector", &format!("metadata.name={name}")).on(&object.collection)?;
    RequestInfo::parse(&Method::GET, &Uri::from(path)).ok()
}

/// The message of a Status of the API server.
fn message(body: &Bytes, status: StatusCode) -> String {
    let found = serde_json::from_slice::<Value>(body).ok();
    let message = found.as_ref().and_then(|status| status["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| format!("the API server answers {status}"))
}
