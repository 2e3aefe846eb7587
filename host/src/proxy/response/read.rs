//! The upstream request of a get, list or watch that filters match, and of the look at an object before a write.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode, Version, header};

use super::forward;
use crate::codec::ObjectType;
use crate::proxy::Proxy;
use crate::proxy::body::ResponseBody;
use crate::proxy::headers;
use crate::proxy::respond::Refusal;
use crate::proxy::resume::ClientKey;
use weir_document::protobuf::kind_of;
use weir_kube::{Encoding, MediaType, Query, ResourceRequest, Transform, Verb};
use weir_runtime::{Chain, ChainVersion};
use weir_upstream::{Head, Identity, Plain, Purpose, UpstreamBody, no_request_body};

/// A read that filters match. Its chain and the chain's version are those with which it began: they make the whole answer.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct ReadRequest {
    pub(in crate::proxy) chain: Chain,
    pub(in crate::proxy) chain_version: ChainVersion,
    pub(in crate::proxy) component: String,
    /// The client and what it reads, for the resume state.
    pub(in crate::proxy) client: ClientKey,
    pub(in crate::proxy) method: Method,
    /// Whether the client speaks HTTP/1.0, which cannot tell a truncated body from a complete one.
    pub(in crate::proxy) old_client: bool,
    pub(in crate::proxy) path: PathAndQuery,
    pub(in crate::proxy) query: Query,
    pub(in crate::proxy) resource: ResourceRequest,
    /// The type of the resource's objects.
    pub(in crate::proxy) object_type: ObjectType,
    pub(in crate::proxy) identity: Identity,
    /// The form of the answer that the client gets.
    pub(in crate::proxy) media_type: MediaType,
    /// Whether a large answer is compressed for this client.
    pub(in crate::proxy) compress: bool,
    headers: HeaderMap,
}

/// The API server's answer to a read.
pub(in crate::proxy) enum ReadAnswer {
    /// A success: objects to filter.
    Objects(ObjectsAnswer),
    /// A failure: a `Status` object, which passes unchanged.
    Other(Response<ResponseBody>),
}

/// Objects as the API server sends them.
pub(in crate::proxy) struct ObjectsAnswer {
    /// The headers, adapted to the filtered body.
    pub(in crate::proxy) parts: http::response::Parts,
    /// The decompressed body.
    pub(in crate::proxy) body: Box<Plain>,
    /// The body's encoding: the requested one, or JSON.
    pub(in crate::proxy) encoding: Encoding,
}

/// The parts of a read: they come from a client's read, or from a write whose object Weir looks at first.
pub(in crate::proxy) struct ReadParts {
    pub(in crate::proxy) chain: Chain,
    pub(in crate::proxy) component: String,
    pub(in crate::proxy) identity: Identity,
    pub(in crate::proxy) method: Method,
    pub(in crate::proxy) version: Version,
    /// The client's, without hop-by-hop headers.
    pub(in crate::proxy) headers: HeaderMap,
    pub(in crate::proxy) path: PathAndQuery,
    pub(in crate::proxy) query: Query,
    pub(in crate::proxy) resource: ResourceRequest,
    /// Whether a large answer may be compressed for this client.
    pub(in crate::proxy) compress: bool,
}

impl ReadRequest {
    /// Prepares the headers for the API server.
    pub(in crate::proxy) fn new(parts: ReadParts) -> Self {
        let ReadParts { chain, component, identity, method, version, mut headers, path, query, resource, compress } =
            parts;
        let client = ClientKey::of(&headers, identity, &resource, &query);
        let media_type = negotiate(&headers, &resource, &query);
        let compress = compress && headers::takes_gzip(&headers);
        headers::prepare_request(&mut headers, identity);
        Self {
            chain_version: chain.version(),
            chain,
            component,
            client,
            method,
            old_client: version < Version::HTTP_11,
            path,
            query,
            object_type: ObjectType::of(&resource),
            resource,
            identity,
            media_type,
            compress,
            headers,
        }
    }

    /// Returns the same read in another form.
    #[must_use]
    pub(in crate::proxy) fn with_media_type(&self, media_type: MediaType) -> Self {
        Self { media_type, ..self.clone() }
    }

    /// Returns the path of the read itself. For a Table, it requests the whole objects beside the cells.
    #[must_use]
    pub(in crate::proxy) fn own_path(&self) -> PathAndQuery {
        match self.media_type.transform {
            Transform::Table(..) => {
                self.query.with("includeObject", "Object").on(self.path.path()).unwrap_or(self.path.clone())
            }
            Transform::None | Transform::Metadata(_) => self.path.clone(),
        }
    }

    /// Requests `path` from the API server, with this client's identity and in the form that the client gets.
    ///
    /// # Errors
    /// No API server answers, or its answer is neither a failure nor objects in a requested encoding.
    pub(in crate::proxy) async fn send(&self, proxy: &Proxy, path: PathAndQuery) -> Result<ReadAnswer, Refusal> {
        let purpose = if self.resource.verb == Verb::Watch { Purpose::Stream } else { Purpose::Short };
        // A HEAD becomes a GET: only the body tells whether filters hide the object. hyper leaves the body out.
        let mut headers = self.headers.clone();
        headers::ask_for(&mut headers, self.media_type.upstream_accept(), self.resource.verb != Verb::Watch);
        let head = Head { method: Method::GET, path, headers };
        let answer = proxy.upstream.send(self.identity, purpose, head, no_request_body()).await?;
        let (mut parts, body) = answer.into_parts();
        headers::prepare_answer(&mut parts);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::InvalidAnswer("it switched protocols without a request".into()));
        }
        if !parts.status.is_success() {
            return Ok(ReadAnswer::Other(Response::from_parts(parts, forward::through(body))));
        }
        objects(parts, body, self.resource.verb).map(ReadAnswer::Objects)
    }
}

fn objects(mut parts: http::response::Parts, body: UpstreamBody, verb: Verb) -> Result<ObjectsAnswer, Refusal> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(encoding) = Encoding::from_content_type(content_type).filter(|_| parts.status == StatusCode::OK) else {
        return Err(Refusal::InvalidAnswer(format!(
            "{} with content type {content_type:?}, which was not requested",
            parts.status
        )));
    };
    let body = Plain::new(&parts.headers, body).map_err(Refusal::InvalidAnswer)?;
    headers::filtered_answer(&mut parts.headers, encoding.content_type(verb));
    Ok(ObjectsAnswer { parts, body: Box::new(body), encoding })
}

/// Returns the form that a request's headers and query ask for. Protobuf is possible only for built-in kinds.
pub(in crate::proxy) fn negotiate(headers: &HeaderMap, resource: &ResourceRequest, query: &Query) -> MediaType {
    let protobuf = kind_of(&resource.api_version(), &resource.resource.resource).is_some();
    MediaType::negotiate(headers, protobuf, query)
}
