//! Forwards requests that no filter matches: all verbs, bodies streamed both ways unchanged, upgraded connections as bytes.
//!
//! When filters begin to match the resource of an open watch, Weir ends the watch; its client goes on with another one, through the
//! filters. Memory: the buffers of hyper for each stream.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::event_boundary::InterruptibleWatch;
use super::list_version::ListVersion;
use crate::serve::Handlers;
use crate::serve::body::{AbortError, Meter, ResponseBody, empty};
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_front::Peer;
use weir_kube::{Encoding, Identity, RequestInfo, ResourceRequest, Verb};
use weir_runtime::ChainVersion;
use weir_upstream::{Purpose, RequestBody, RequestHead, UpstreamBody};
use weir_wire::headers;

/// The buffer of an upgraded stream, for each direction.
const COPY: usize = 32 << 10;

/// A request that no filter matches.
pub(crate) struct ForwardRequest<'a> {
    /// Without its hop-by-hop headers.
    pub(crate) request: http::Request<RequestBody>,
    /// The protocol that the client asks to upgrade to.
    pub(crate) upgrade: Option<HeaderValue>,
    pub(crate) asked: &'a CallerRequest,
    pub(crate) peer: &'a Peer,
}

/// Forwards one request.
pub(crate) async fn forward(handlers: &Arc<Handlers>, forward: ForwardRequest<'_>) -> Response<ResponseBody> {
    let ForwardRequest { mut request, upgrade, asked, peer } = forward;
    let CallerRequest { parsed, caller, component, started, .. } = asked;
    let identity = caller.identity();
    let resource = parsed.resource();
    let encoding = Encoding::for_errors(request.headers());
    let protocol =
        upgrade.filter(|_| request.version() == Version::HTTP_11 && resource.is_some_and(ResourceRequest::may_upgrade));
    let meter = Meter::new(handlers.metrics.clone(), if protocol.is_some() { "upgrade" } else { "forward" }, *started);
    let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let purpose = purpose(resource, protocol.is_some());
    let head = upstream_head(handlers, parts, parsed, identity, protocol);
    let mut response = match handlers.upstream.send(identity, purpose, head, body).await {
        Ok(response) => response,
        Err(error) => {
            let error = StatusError::Upstream(error).with_outage(&handlers.outage);
            let code = error.code().as_u16();
            handlers.failures.warn("cannot forward request", (&parsed.forward, component), Some(code), &error);
            return meter.attach(error.response(encoding));
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut response);
        return match client {
            Some(client) => switch(handlers, response, client, server, meter, peer.clone()),
            None => meter.attach(StatusError::unrequested_upgrade().response(encoding)),
        };
    }
    let (mut parts, body) = response.into_parts();
    headers::prepare_response(&mut parts);
    let is_cached = resource.is_some_and(|resource| is_cached(handlers, component, resource));
    let body = match resource {
        Some(resource) if resource.verb == Verb::Watch => {
            until_filtered(handlers, component, resource, &parts.headers, body)
        }
        Some(resource) if resource.verb == Verb::List && is_cached && parts.status == StatusCode::OK => {
            recording_version(handlers, component, resource, &parts.headers, body)
        }
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
    handlers: &Handlers,
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
    let answered_by = handlers.access.answered_by(parsed);
    RequestHead { method: parts.method, path: parsed.forward.clone(), headers: parts.headers, answered_by }
}

/// Returns an upstream body unchanged.
pub(crate) fn unchanged(body: UpstreamBody) -> ResponseBody {
    body.map_err(AbortError::from).boxed_unsync()
}

/// Returns a list unchanged, and records its version on the way.
fn recording_version(
    handlers: &Arc<Handlers>,
    component: &str,
    resource: &ResourceRequest,
    headers: &HeaderMap,
    body: UpstreamBody,
) -> ResponseBody {
    let (Some(views), Some(mut list)) = (handlers.shared_views().cloned(), ListVersion::of(resource, headers)) else {
        return unchanged(body);
    };
    let (component, resource) = (component.to_owned(), resource.resource.clone());
    let mut reading = true;
    let passed = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref().filter(|_| reading) {
            let found = list.pass(data.clone());
            reading = found == Ok(None);
            if let Ok(Some(version)) = found {
                views.end_stream(&component, &resource, version, Some(ChainVersion::UNFILTERED));
            }
        }
        frame
    });
    passed.map_err(AbortError::from).boxed_unsync()
}

/// Whether views serve the watch of a client that has listed here.
fn is_cached(handlers: &Handlers, component: &str, resource: &ResourceRequest) -> bool {
    resource.subresource.is_none() && handlers.views.serve(component, resource)
}

fn switch(
    handlers: &Handlers,
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
    handlers.tasks.spawn_until_stop(async move {
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

/// Returns the body of a watch. It ends when filters begin to match its resource, and when the daemon stops.
fn until_filtered(
    handlers: &Arc<Handlers>,
    component: &str,
    resource: &ResourceRequest,
    headers: &HeaderMap,
    body: UpstreamBody,
) -> ResponseBody {
    let (handlers, component, resource) = (handlers.clone(), component.to_owned(), resource.clone());
    let end = async move {
        let mut serving = handlers.chains.serving().clone();
        let matched = async {
            loop {
                if handlers.chains.is_filtered_now(&component, &resource) {
                    return;
                }
                if serving.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = matched => {
                tracing::info!(resource = %resource.resource, component, "watch ended: filters now match its resource");
                AbortError::NowFiltered
            }
            () = handlers.tasks.stopping() => AbortError::Stopping,
        }
    };
    InterruptibleWatch::new(headers, body, end).boxed_unsync()
}
