//! A read that filters match, as get, list and watch share it.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode, Version, header};

use super::Proxy;
use super::body::ResponseBody;
use super::forward;
use super::headers::{self};
use super::ledger::Key;
use super::object::negotiate;
use super::object_type::ObjectType;
use super::respond::Refusal;
use weir_kube::{Encoding, MediaType, Transform};
use weir_kube::{Query, ResourceRequest, Verb};
use weir_runtime::{Chain, Stamp};
use weir_upstream::Identity;
use weir_upstream::Plain;
use weir_upstream::no_request_body;
use weir_upstream::{Head, Purpose, UpstreamBody};

/// A matched read. The chain and its stamp are those with which it began: the whole answer is made by them.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) chain: Chain,
    pub(super) stamp: Stamp,
    pub(super) component: String,
    pub(super) key: Key,
    pub(super) method: Method,
    /// Whether the client speaks HTTP/1.0, which cannot tell a truncated body from a whole one.
    pub(super) old_client: bool,
    pub(super) path: PathAndQuery,
    pub(super) query: Query,
    pub(super) resource: ResourceRequest,
    /// The type of its objects.
    pub(super) object_type: ObjectType,
    pub(super) identity: Identity,
    /// What the client is given.
    pub(super) media_type: MediaType,
    /// Whether a large answer is worth compressing for this client.
    pub(super) compress: bool,
    headers: HeaderMap,
}

/// What the API server said to a matched read.
pub(super) enum Answer {
    /// To be filtered.
    Objects(Objects),
    /// Not a success: a `Status` object, which passes as it is.
    Other(Response<ResponseBody>),
}

/// Objects as the API server sends them.
pub(super) struct Objects {
    /// The head of the answer, fit for what is made of the body.
    pub(super) parts: http::response::Parts,
    /// The body.
    pub(super) plain: Box<Plain>,
    /// How it is written: as was asked for, or JSON.
    pub(super) encoding: Encoding,
}

/// What a read is made from: a client's request, or a write whose object is looked at first.
pub(super) struct ReadParts {
    pub(super) chain: Chain,
    pub(super) component: String,
    pub(super) identity: Identity,
    pub(super) method: Method,
    pub(super) version: Version,
    /// The client's, without hop-by-hop headers.
    pub(super) headers: HeaderMap,
    pub(super) path: PathAndQuery,
    pub(super) query: Query,
    pub(super) resource: ResourceRequest,
    /// Whether a large answer may be compressed for this client.
    pub(super) compress: bool,
}

impl Read {
    pub(super) fn new(parts: ReadParts) -> Self {
        let ReadParts { chain, component, identity, method, version, mut headers, path, query, resource, compress } =
            parts;
        let key = Key::of(&headers, identity, &resource, &query);
        let media_type = negotiate(&headers, &resource, &query);
        let compress = compress && headers::takes_gzip(&headers);
        headers::prepare_request(&mut headers, identity);
        Self {
            stamp: chain.stamp(),
            chain,
            component,
            key,
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

    /// The same read in another form.
    #[must_use]
    pub(super) fn with_media_type(&self, media_type: MediaType) -> Self {
        Self { media_type, ..self.clone() }
    }

    /// The path of the read itself: for Tables with the whole objects beside the cells.
    #[must_use]
    pub(super) fn own_path(&self) -> PathAndQuery {
        match self.media_type.transform {
            Transform::Table(..) => {
                self.query.with("includeObject", "Object").on(self.path.path()).unwrap_or(self.path.clone())
            }
            Transform::None | Transform::Metadata(_) => self.path.clone(),
        }
    }

    /// Asks the API server for `path` with this client's identity, in the form that the client is given.
    pub(super) async fn ask(&self, proxy: &Proxy, path: PathAndQuery) -> Result<Answer, Refusal> {
        let purpose = if self.resource.verb == Verb::Watch { Purpose::Stream } else { Purpose::Short };
        // HEAD is asked as GET: whether the object is hidden shows only in its body, which hyper then leaves out.
        let mut headers = self.headers.clone();
        headers::ask_for(&mut headers, self.media_type.upstream_accept(), self.resource.verb != Verb::Watch);
        let head = Head { method: Method::GET, path, headers };
        let answer = proxy.upstream.send(self.identity, purpose, head, no_request_body()).await?;
        let (mut parts, body) = answer.into_parts();
        headers::prepare_answer(&mut parts);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::Garbage("it switched protocols unasked".into()));
        }
        if !parts.status.is_success() {
            return Ok(Answer::Other(Response::from_parts(parts, forward::through(body))));
        }
        objects(parts, body, self.resource.verb).map(Answer::Objects)
    }
}

fn objects(mut parts: http::response::Parts, body: UpstreamBody, verb: Verb) -> Result<Objects, Refusal> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(encoding) = Encoding::from_content_type(content_type).filter(|_| parts.status == StatusCode::OK) else {
        return Err(Refusal::Garbage(format!(
            "{} with content type {content_type:?}, which was not asked for",
            parts.status
        )));
    };
    let plain = Plain::new(&parts.headers, body).map_err(Refusal::Garbage)?;
    headers::filtered_answer(&mut parts.headers, encoding.content_type(verb));
    Ok(Objects { parts, plain: Box::new(plain), encoding })
}
