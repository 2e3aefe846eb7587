//! What no filter matches: all verbs, bodies streamed both ways untouched, upgrades as bytes.
//!
//! Memory: what hyper buffers of a stream. A watch that a new filter set begins to match is cut, so that its client
//! comes back and is filtered.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::event_boundary::InterruptibleWatch;
use super::watch;
use crate::proxy::Proxy;
use crate::proxy::body::{BodyError, Meter, ResponseBody, empty, full};
use crate::proxy::headers::{self};
use crate::proxy::respond::Refusal;
use crate::proxy::resume::ClientKey;
use crate::proxy::server::listener::Peer;
use weir_kube::Encoding;
use weir_kube::{RequestInfo, ResourceRequest, Verb};
use weir_upstream::Identity;
use weir_upstream::{Head, Purpose, UpstreamBody};

/// Bytes copied at once, each way, on an upgraded stream.
const COPY: usize = 32 << 10;

/// A request that no filter matches.
pub(in crate::proxy) struct Forward<'a> {
    /// Without its hop-by-hop headers.
    pub(in crate::proxy) request: http::Request<Incoming>,
    /// The protocol that the client asks to upgrade to.
    pub(in crate::proxy) upgrade: Option<HeaderValue>,
    pub(in crate::proxy) parsed: RequestInfo,
    pub(in crate::proxy) identity: Identity,
    pub(in crate::proxy) component: &'a str,
    pub(in crate::proxy) peer: &'a Peer,
}

/// Forwards one request.
pub(in crate::proxy) async fn forward(
    proxy: &Arc<Proxy>,
    forward: Forward<'_>,
    begun: Instant,
) -> Response<ResponseBody> {
    let Forward { mut request, upgrade, parsed, identity, component, peer } = forward;
    let resource = parsed.resource();
    let encoding = Encoding::for_errors(request.headers());
    let protocol =
        upgrade.filter(|_| request.version() == Version::HTTP_11 && resource.is_some_and(ResourceRequest::may_upgrade));
    let meter = Meter::new(proxy.metrics.clone(), if protocol.is_some() { "upgrade" } else { "forward" }, begun);
    let remembered = remembered(proxy, &request, &parsed, identity);
    let goes_on = resource.is_some_and(|found| found.verb == Verb::Watch) && !watch::starts_complete(&parsed.query);
    if remembered.is_some() && goes_on {
        proxy.metrics.relist("unmatched");
        return meter.attach(relist("no filter matches this resource any more", encoding));
    }

    let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    headers::prepare_request(&mut parts.headers, identity);
    if let Some(protocol) = &protocol {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol.clone());
    }
    let endless = resource.is_some_and(|found| {
        found.verb == Verb::Watch || matches!(found.subresource.as_deref(), Some("log" | "proxy"))
    });
    let purpose = match (&protocol, endless) {
        (Some(_), _) => Purpose::Upgrade,
        (None, true) => Purpose::Stream,
        (None, false) if resource.is_some_and(ResourceRequest::is_heartbeat) => Purpose::Heartbeat,
        (None, false) => Purpose::Short,
    };
    let head = Head { method: parts.method, path: parsed.forward.clone(), headers: parts.headers };
    let mut answer = match proxy.upstream.send(identity, purpose, head, body.map_err(Into::into).boxed_unsync()).await {
        Ok(answer) => answer,
        Err(error) => {
            let refusal = Refusal::Upstream(error);
            tracing::warn!(path = %parsed.forward, component, error = %refusal, "not forwarded; the client is told by a Status");
            return meter.attach(refusal.response(encoding));
        }
    };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut answer);
        return match client {
            Some(client) => switch(proxy, answer, client, server, meter, peer.clone()),
            None => meter
                .attach(Refusal::InvalidAnswer("it switched protocols without a request".into()).response(encoding)),
        };
    }
    if let Some(key) = remembered.filter(|_| answer.status().is_success()) {
        proxy.resume.remove(&key);
    }
    let (mut parts, body) = answer.into_parts();
    headers::prepare_answer(&mut parts);
    let body = match resource {
        Some(resource) if resource.verb == Verb::Watch => {
            until_matched(proxy, component, resource, &parts.headers, body)
        }
        _ => through(body),
    };
    meter.attach(Response::from_parts(parts, body))
}

/// An upstream body as it is.
pub(in crate::proxy) fn through(body: UpstreamBody) -> ResponseBody {
    body.map_err(BodyError::from).boxed_unsync()
}

/// A watch that consists of the event that makes an informer list again.
pub(in crate::proxy) fn relist(why: &'static str, encoding: Encoding) -> Response<ResponseBody> {
    let mut answer = Response::new(full(Refusal::Expired(why).event(encoding)));
    answer.headers_mut().insert(header::CONTENT_TYPE, encoding.content_type(Verb::Watch));
    answer
}

/// Under which key something is remembered of this client's filtered state, which no filter matches any more. A watch
/// that goes on from it must list again first; what replaces it, a list or a watch that begins with the whole state,
/// ends that. A later page does not replace what the earlier ones brought.
fn remembered(
    proxy: &Proxy,
    request: &http::Request<Incoming>,
    parsed: &RequestInfo,
    identity: Identity,
) -> Option<ClientKey> {
    let resource = parsed.resource().filter(|resource| match resource.verb {
        Verb::Watch => true,
        Verb::List => parsed.query.first("continue").unwrap_or_default().is_empty(),
        _ => false,
    })?;
    if proxy.resume.is_empty() {
        return None;
    }
    let key = ClientKey::of(request.headers(), identity, resource, &parsed.query);
    proxy.resume.contains(&key).then_some(key)
}

fn switch(
    proxy: &Proxy,
    answer: Response<UpstreamBody>,
    client: OnUpgrade,
    server: OnUpgrade,
    meter: Meter,
    peer: Peer,
) -> Response<ResponseBody> {
    let (mut parts, _) = answer.into_parts();
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    headers::prepare_answer(&mut parts);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        parts.headers.insert(header::UPGRADE, protocol);
    }
    proxy.tasks.spawn_until_stop(async move {
        let address = peer.address;
        let copied = async {
            let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
            // A side that has said its last is half-closed; the other one may go on.
            tokio::io::copy_bidirectional_with_sizes(&mut TokioIo::new(client), &mut TokioIo::new(server), COPY, COPY)
                .await
        };
        let bytes = match copied.await {
            Ok((_, to_client)) => to_client,
            Err(error) => {
                tracing::debug!(%address, %error, "an upgraded stream broke off");
                0
            }
        };
        meter.finish(StatusCode::SWITCHING_PROTOCOLS, bytes);
        drop(peer);
    });
    Response::from_parts(parts, empty())
}

/// A watch that breaks off when filters begin to match it, and ends when the daemon stops.
fn until_matched(
    proxy: &Arc<Proxy>,
    component: &str,
    resource: &ResourceRequest,
    headers: &HeaderMap,
    body: UpstreamBody,
) -> ResponseBody {
    let (proxy, component, resource) = (proxy.clone(), component.to_owned(), resource.clone());
    let end = async move {
        let mut serving = proxy.serving.clone();
        let matched = async {
            loop {
                if let Some(Some(_)) = proxy.chain_now(&component, &resource) {
                    return;
                }
                if serving.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = matched => {
                proxy.metrics.relist("matched");
                tracing::info!(resource = %resource.resource, component, "filters now match an open watch; it is cut so that its client comes back");
                BodyError::NowFiltered
            }
            () = proxy.tasks.stopping() => BodyError::Stopping,
        }
    };
    InterruptibleWatch::new(headers, body, end).boxed_unsync()
}
