//! Forwards requests that no filter matches: all verbs, bodies streamed both ways unchanged, upgraded connections as bytes.
//!
//! When filters begin to match the resource of an open watch, Weir aborts the watch, so that its client lists again through
//! the filters. Memory: the buffers of hyper for each stream.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::event_boundary::InterruptibleWatch;
use super::list_version::ListVersion;
use super::read::negotiate;
use super::watch;
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, Meter, ResponseBody, empty, full};
use crate::proxy::credential::Caller;
use crate::proxy::headers;
use crate::proxy::respond::StatusError;
use crate::proxy::resume::ClientKey;
use crate::proxy::server::listener::Peer;
use weir_kube::{Encoding, RequestInfo, ResourceRequest, Verb};
use weir_runtime::{ChainVersion, Serving};
use weir_upstream::{Identity, Purpose, RequestBody, RequestHead, UpstreamBody};

/// The buffer of an upgraded stream, for each direction.
const COPY: usize = 32 << 10;

/// A request that no filter matches.
pub(in crate::proxy) struct ForwardRequest<'a> {
    /// Without its hop-by-hop headers.
    pub(in crate::proxy) request: http::Request<RequestBody>,
    /// The protocol that the client asks to upgrade to.
    pub(in crate::proxy) upgrade: Option<HeaderValue>,
    pub(in crate::proxy) parsed: RequestInfo,
    pub(in crate::proxy) caller: Caller,
    pub(in crate::proxy) component: &'a str,
    pub(in crate::proxy) peer: &'a Peer,
}

/// Forwards one request.
pub(in crate::proxy) async fn forward(
    proxy: &Arc<Proxy>,
    forward: ForwardRequest<'_>,
    started: Instant,
) -> Response<ResponseBody> {
    let ForwardRequest { mut request, upgrade, parsed, caller, component, peer } = forward;
    let identity = caller.identity();
    let resource = parsed.resource();
    let encoding = Encoding::for_errors(request.headers());
    let protocol =
        upgrade.filter(|_| request.version() == Version::HTTP_11 && resource.is_some_and(ResourceRequest::may_upgrade));
    let meter = Meter::new(proxy.metrics.clone(), if protocol.is_some() { "upgrade" } else { "forward" }, started);
    // Clients of a former process continue with what its filters have made, until they list.
    let was_matched = resource.is_some_and(|resource| was_matched(proxy, component, resource));
    let key = client_key(proxy, &request, &parsed, &caller, component, was_matched);
    let resume_key = key.filter(|key| proxy.resume.contains(key));
    let continues = resource.is_some_and(|found| found.verb == Verb::Watch) && !watch::starts_complete(&parsed.query);
    let version = parsed.query.first("resourceVersion").unwrap_or_default();
    if continues && was_matched && resume_key.is_none() {
        proxy.metrics.relist("restarted");
        return meter.attach(relist("no filter matches this resource since the daemon was restarted", encoding));
    }
    if continues && key.is_some_and(|key| proxy.resume.reached(&key, version)) {
        proxy.metrics.relist("unmatched");
        return meter.attach(relist("no filter matches this resource any more", encoding));
    }

    let is_remembered = request.method() == Method::GET
        && resource.is_some_and(|found| match found.verb {
            Verb::List => was_matched || is_cached(proxy, component, found),
            _ => was_matched && !continues,
        });
    let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let purpose = purpose(resource, protocol.is_some());
    let head = upstream_head(proxy, parts, &parsed, identity, protocol);
    let mut response = match proxy.upstream.send(identity, purpose, head, body).await {
        Ok(response) => response,
        Err(error) => {
            let error = StatusError::Upstream(error).with_outage(&proxy.outage);
            let code = error.code().as_u16();
            proxy.failures.warn("cannot forward request", (&parsed.forward, component), Some(code), &error);
            return meter.attach(error.response(encoding));
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut response);
        return match client {
            Some(client) => switch(proxy, response, client, server, meter, peer.clone()),
            None => meter.attach(StatusError::unrequested_upgrade().response(encoding)),
        };
    }
    if let Some(key) = resume_key.filter(|_| response.status().is_success() && !continues) {
        proxy.resume.remove(&key);
    }
    if let Some(key) = key.filter(|_| is_remembered && response.status().is_success()) {
        proxy.resume.save_unfiltered(key);
    }
    let is_list = is_remembered && response.status() == StatusCode::OK;
    let (mut parts, body) = response.into_parts();
    headers::prepare_response(&mut parts);
    let body = match resource {
        Some(resource) if resource.verb == Verb::Watch => {
            until_filtered(proxy, component, resource, &parts.headers, body)
        }
        Some(resource) if is_list => handing_out(proxy, component, resource, &parts.headers, body),
        _ => unchanged(body),
    };
    meter.attach(Response::from_parts(parts, body))
}

/// Returns the timeouts and connections that fit a request.
fn purpose(resource: Option<&ResourceRequest>, upgrades: bool) -> Purpose {
    match resource {
        _ if upgrades => Purpose::Upgrade,
        Some(found) if found.verb == Verb::Watch => Purpose::Watch,
        Some(found) if found.is_stream() => Purpose::Stream,
        Some(found) if found.is_heartbeat() => Purpose::Heartbeat,
        _ => Purpose::Short,
    }
}

fn upstream_head(
    proxy: &Proxy,
    mut parts: http::request::Parts,
    parsed: &RequestInfo,
    identity: Identity,
    protocol: Option<HeaderValue>,
) -> RequestHead {
    headers::prepare_request(&mut parts.headers, identity);
    if let Some(protocol) = protocol {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol);
    }
    let answered_by = proxy.answered_by(parsed);
    RequestHead { method: parts.method, path: parsed.forward.clone(), headers: parts.headers, answered_by }
}

/// Returns an upstream body unchanged.
pub(in crate::proxy) fn unchanged(body: UpstreamBody) -> ResponseBody {
    body.map_err(AbortError::from).boxed_unsync()
}

/// Returns a list unchanged, and notes its version on the way.
fn handing_out(
    proxy: &Arc<Proxy>,
    component: &str,
    resource: &ResourceRequest,
    headers: &HeaderMap,
    body: UpstreamBody,
) -> ResponseBody {
    let (Some(views), Some(mut list)) = (proxy.views.clone(), ListVersion::of(resource, headers)) else {
        return unchanged(body);
    };
    let (component, resource) = (component.to_owned(), resource.resource.clone());
    let mut reading = true;
    let passed = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref().filter(|_| reading) {
            let found = list.pass(data.clone());
            reading = found == Ok(None);
            if let Ok(Some(version)) = found {
                views.hand_out(&component, &resource, version, ChainVersion::UNFILTERED);
            }
        }
        frame
    });
    passed.map_err(AbortError::from).boxed_unsync()
}

/// Returns a watch response of one event: 410 Expired, which makes an informer list again.
pub(in crate::proxy) fn relist(reason: &'static str, encoding: Encoding) -> Response<ResponseBody> {
    let mut response = Response::new(full(StatusError::Expired(reason).event(encoding)));
    response.headers_mut().insert(header::CONTENT_TYPE, encoding.content_type(Verb::Watch));
    response
}

/// Returns the client, as its lists and watches are remembered; none if nothing is or will be remembered of it.
///
/// A watch that continues from such a state must list again, because no filter matches any more. A later version, for
/// example that of a write, is none of those that the client got with that state. A new list, or a watch
/// that starts with the complete state, replaces it. A later page of a list does not: the earlier pages were filtered.
fn client_key(
    proxy: &Proxy,
    request: &http::Request<RequestBody>,
    parsed: &RequestInfo,
    caller: &Caller,
    component: &str,
    was_matched: bool,
) -> Option<ClientKey> {
    let resource = parsed.resource().filter(|resource| match resource.verb {
        Verb::Watch => true,
        Verb::List => parsed.query.first("continue").unwrap_or_default().is_empty(),
        _ => false,
    })?;
    let is_remembered = was_matched || !proxy.resume.is_empty() || is_cached(proxy, component, resource);
    let (headers, query) = (request.headers(), &parsed.query);
    is_remembered.then(|| ClientKey::of(headers, caller, resource, query, negotiate(headers, resource, query)))
}

/// Whether a filter of a former process may have made what the client holds.
fn was_matched(proxy: &Proxy, component: &str, resource: &ResourceRequest) -> bool {
    match &*proxy.serving.borrow() {
        Serving::Live(set) => set.was_matched(component, &resource.resource),
        Serving::Unknown | Serving::Pending(_) => false,
    }
}

/// Whether views serve the watch of a client that has listed here.
fn is_cached(proxy: &Proxy, component: &str, resource: &ResourceRequest) -> bool {
    let views = proxy.views.as_ref();
    resource.subresource.is_none() && views.is_some_and(|views| views.serve(component, resource))
}

fn switch(
    proxy: &Proxy,
    response: Response<UpstreamBody>,
    client: OnUpgrade,
    server: OnUpgrade,
    meter: Meter,
    peer: Peer,
) -> Response<ResponseBody> {
    let (mut parts, _) = response.into_parts();
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    headers::prepare_response(&mut parts);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        parts.headers.insert(header::UPGRADE, protocol);
    }
    proxy.tasks.spawn_until_stop(async move {
        let address = peer.address;
        let copied = async {
            let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
            // Either side may close its half and still read the other one.
            tokio::io::copy_bidirectional_with_sizes(&mut TokioIo::new(client), &mut TokioIo::new(server), COPY, COPY)
                .await
        };
        let bytes = match peer.unless_closed(copied).await {
            Ok((_, to_client)) => to_client,
            Err(error) => {
                tracing::debug!(%address, %error, "upgraded stream interrupted");
                0
            }
        };
        meter.finish(StatusCode::SWITCHING_PROTOCOLS, bytes);
        drop(peer);
    });
    Response::from_parts(parts, empty())
}

/// Returns the body of a watch. It is aborted when filters begin to match its resource, and ends when the daemon stops.
fn until_filtered(
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
                if proxy.is_filtered_now(&component, &resource) {
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
                tracing::info!(resource = %resource.resource, component, "watch aborted so that its client lists again: filters now match the resource");
                AbortError::NowFiltered
            }
            () = proxy.tasks.stopping() => AbortError::Stopping,
        }
    };
    InterruptibleWatch::new(headers, body, end).boxed_unsync()
}
