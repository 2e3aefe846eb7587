//! Handles one request, from its head to the head of its response: parse, identify, route, respond.
//!
//! An error becomes a Kubernetes `Status`. The body of the response owns all resources of the request: the upstream stream,
//! memory, and its metrics. All of it is released when the client has received the body or is gone.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Response};
use hyper::body::Incoming;

use super::body::{Meter, ResponseBody};
use super::metrics::handler_of;
use super::respond::StatusError;
use super::response::cached::CacheableRequest;
use super::response::discovery::DiscoveryKey;
use super::response::forward::ForwardRequest;
use super::response::gzip::compressed;
use super::response::read::{ReadParts, ReadRequest};
use super::response::write::WriteRequest;
use super::response::{cached, forward, get, list, watch};
use super::route::Route;
use super::server::listener::Peer;
use super::{Proxy, headers};
use weir_kube::{Encoding, RequestInfo, Verb, client_component};
use weir_upstream::Identity;

/// What the handlers need to know about a request.
struct RequestContext {
    parsed: RequestInfo,
    /// The protocol that the client asks to upgrade to.
    upgrade: Option<HeaderValue>,
    /// The name of the client program, from the User-Agent.
    component: String,
    /// The credential that the request has upstream.
    identity: Identity,
    route: Route,
}

impl Proxy {
    /// Handles one request. Any error is a response, too.
    pub(super) async fn handle(
        self: &Arc<Self>,
        mut request: http::Request<Incoming>,
        peer: Peer,
    ) -> Response<ResponseBody> {
        let started = Instant::now();
        if let Some(response) = self.respond_to_peer(&request, &peer, started).await {
            return response;
        }
        let RequestContext { parsed, upgrade, component, identity, route } = match self
            .examine(&mut request, &peer)
            .await
        {
            Ok(context) => context,
            Err(error) => {
                let (component, code) = (client_component(request.headers()), error.code().as_u16());
                tracing::warn!(peer = %peer.address, method = %request.method(), uri = %request.uri(), component, code, %error, "request refused");
                let meter = Meter::new(self.metrics.clone(), "refused", started);
                return meter.attach(error.response(Encoding::for_errors(request.headers())));
            }
        };
        tracing::debug!(method = %request.method(), path = %parsed.forward, component, ?identity, "request");
        let cacheable = self.cacheable(&request, &parsed, &component, identity, &peer, started);
        if let Some(cacheable) = &cacheable
            && let Some(response) = cached::respond(self, cacheable, self.upstream.is_reachable()).await
        {
            return response;
        }
        let discovery =
            self.views.as_ref().and_then(|_| DiscoveryKey::of(request.method(), request.headers(), &parsed));
        let context = RequestContext { parsed, upgrade, component, identity, route };
        let response = self.respond_upstream(request, context, peer, started).await;
        if response.status().is_server_error() && !self.upstream.is_reachable() {
            let remembered = discovery.as_ref().and_then(|key| self.discovery.get(key));
            let cached = match &cacheable {
                Some(cacheable) => cached::respond(self, cacheable, false).await,
                None => None,
            };
            return remembered.or(cached).unwrap_or(response);
        }
        match discovery {
            Some(key) => self.discovery.record(key, response),
            None => response,
        }
    }

    /// Copies what a view needs to know of a read; `None` if views serve no reads like it.
    fn cacheable(
        &self,
        request: &http::Request<Incoming>,
        parsed: &RequestInfo,
        component: &str,
        identity: Identity,
        peer: &Peer,
        started: Instant,
    ) -> Option<Arc<CacheableRequest>> {
        let (views, resource) = (self.views.as_ref()?, parsed.resource()?);
        let cacheable = || CacheableRequest {
            headers: request.headers().clone(),
            parsed: parsed.clone(),
            component: component.to_owned(),
            identity,
            client: peer.address.ip(),
            started,
        };
        (*request.method() == Method::GET && views.serve(&resource.resource)).then(|| Arc::new(cacheable()))
    }

    /// Responds with what an API server sends, filtered where a chain matches.
    async fn respond_upstream(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        context: RequestContext,
        peer: Peer,
        started: Instant,
    ) -> Response<ResponseBody> {
        let RequestContext { parsed, upgrade, component, identity, route } = context;
        match route {
            Route::Forward => {
                let forward = ForwardRequest { request, upgrade, parsed, identity, component: &component, peer: &peer };
                forward::forward(self, forward, started).await
            }
            Route::Write { resource, chain } => {
                let write = WriteRequest { chain, component, identity, parsed, resource };
                write.respond(self, request, started).await
            }
            Route::Read { resource, chain } => {
                let compress = self.compression.is_for(peer.address.ip());
                let (http::request::Parts { method, version, headers, .. }, _) = request.into_parts();
                let RequestInfo { forward: path, query, .. } = parsed;
                let read = ReadRequest::new(ReadParts {
                    chain,
                    component,
                    identity,
                    method,
                    version,
                    headers,
                    path,
                    query,
                    resource,
                    compress,
                });
                self.respond_to_read(read, started).await
            }
        }
    }

    /// Parses a request, and selects its credential and its route. Removes the hop-by-hop headers before it decides anything
    /// by a header.
    async fn examine(&self, request: &mut http::Request<Incoming>, peer: &Peer) -> Result<RequestContext, StatusError> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(StatusError::Method);
        }
        let parsed = RequestInfo::parse(request.method(), request.uri())?;
        let upgrade = headers::take_hop_by_hop(request.headers_mut())?;
        let component = client_component(request.headers()).to_owned();
        let identity = self.identify(request, &parsed, peer).await?;
        let route = self.route(request.method(), &parsed, &component).await?;
        Ok(RequestContext { parsed, upgrade, component, identity, route })
    }

    /// Responds to a get, list or watch that filters match.
    async fn respond_to_read(self: &Arc<Self>, read: ReadRequest, started: Instant) -> Response<ResponseBody> {
        let (verb, path, component) = (read.resource.verb, read.path.clone(), read.component.clone());
        let encoding = read.media_type.encoding;
        let compress = read.compress && verb != Verb::Watch && read.method != Method::HEAD;
        let handler = handler_of(verb);
        // Created first: it also counts a request whose client leaves before the response.
        let meter = Meter::new(self.metrics.clone(), handler, started);
        let response = match verb {
            Verb::List => list::list(self, read).await,
            Verb::Watch => watch::watch(self, read).await,
            _ => get::get(self, read).await,
        };
        let response = match response {
            Ok(response) if compress => compressed(response),
            Ok(response) => response,
            Err(error) => {
                if matches!(error, StatusError::NotFound { .. }) {
                    tracing::debug!(%path, component, "object is hidden from this client, returned 404");
                } else {
                    let code = error.code().as_u16();
                    tracing::warn!(%path, component, handler, code, %error, "filtered read failed");
                }
                error.response(encoding)
            }
        };
        meter.attach(response)
    }
}
