//! A read that filters match, as get, list and watch share it.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode, header};
use hyper::body::Incoming;

use super::Proxy;
use super::body::{ResponseBody, no_request_body};
use super::encoding::Plain;
use super::forward;
use super::headers::{self, Identity};
use super::ledger::Key;
use super::request::{Query, ResourceRequest, Verb};
use super::respond::Refusal;
use super::upstream::{Head, Purpose, UpstreamBody};
use crate::filter::{Chain, Stamp};

/// A matched read. The chain and its stamp are those with which it began: the whole answer is made by them.
#[derive(Debug)]
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
    pub(super) identity: Identity,
    headers: HeaderMap,
}

/// What the API server said to a matched read.
pub(super) enum Answer {
    /// JSON, to be filtered.
    Json(http::response::Parts, Box<Plain>),
    /// Not a success: a `Status` object, which passes as it is.
    Other(Response<ResponseBody>),
}

impl Read {
    pub(super) fn new(
        chain: Chain,
        component: String,
        identity: Identity,
        request: http::Request<Incoming>,
        path: PathAndQuery,
        query: Query,
        resource: ResourceRequest,
    ) -> Self {
        let (parts, _) = request.into_parts();
        let mut headers = parts.headers;
        let key = Key::of(&headers, identity, &resource, &query);
        headers::prepare_request(&mut headers, identity);
        headers::ask_for_json(&mut headers, resource.verb != Verb::Watch);
        Self {
            stamp: chain.stamp(),
            chain,
            component,
            key,
            method: parts.method,
            old_client: parts.version < http::Version::HTTP_11,
            path,
            query,
            resource,
            identity,
            headers,
        }
    }

    /// Asks the API server for `path` with this client's identity.
    pub(super) async fn ask(&self, proxy: &Proxy, path: PathAndQuery) -> Result<Answer, Refusal> {
        let purpose = if self.resource.verb == Verb::Watch { Purpose::Stream } else { Purpose::Short };
        // HEAD is asked as GET: whether the object is hidden shows only in its body, which hyper then leaves out.
        let head = Head { method: Method::GET, path, headers: self.headers.clone() };
        let answer = proxy.upstream.send(self.identity, purpose, head, no_request_body()).await?;
        let (mut parts, body) = answer.into_parts();
        headers::prepare_answer(&mut parts);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::Garbage("it switched protocols unasked".into()));
        }
        if !parts.status.is_success() {
            return Ok(Answer::Other(Response::from_parts(parts, forward::through(body))));
        }
        json(parts, body)
    }
}

fn json(mut parts: http::response::Parts, body: UpstreamBody) -> Result<Answer, Refusal> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut media = content_type.split(';').map(str::trim);
    // `application/json;as=Table` would be another shape than the one asked for.
    let plain = media.next().is_some_and(|media| media.eq_ignore_ascii_case("application/json"))
        && media.all(|parameter| !parameter.to_ascii_lowercase().starts_with("as="));
    if parts.status != StatusCode::OK || !plain {
        return Err(Refusal::Garbage(format!(
            "{} with content type {content_type:?} where JSON was asked for",
            parts.status
        )));
    }
    let plain = Plain::new(&parts.headers, body).map_err(Refusal::Garbage)?;
    headers::filtered_answer(&mut parts.headers);
    Ok(Answer::Json(parts, Box::new(plain)))
}
