//! Handles one request, from its head to the head of its response: parse, identify, route, respond.
//!
//! An error becomes a Kubernetes `Status`. The body of the response owns all resources of the request: the upstream stream,
//! memory, and its metrics. All of it is released when the client has received the body or is gone.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::{Meter, ResponseBody, guarded};
use super::credential::credential_owner;
use super::in_flight::{Kind, RequestInFlight};
use super::metrics::handler_of;
use super::request_span::{describe, in_span};
use super::respond::StatusError;
use super::response::cached::CacheableRequest;
use super::response::discovery::{DiscoveryClient, DiscoveryRead};
use super::response::forward::ForwardRequest;
use super::response::gzip::compressed;
use super::response::object_memory::{ObjectRead, decoded};
use super::response::read::{ReadParts, ReadRequest};
use super::response::write::WriteRequest;
use super::response::{cached, forward, get, list, token_request, watch};
use super::route::Route;
use super::server::listener::Peer;
use super::{Proxy, headers};
use weir_kube::{Encoding, RequestInfo, Verb, client_component};
use weir_runtime::Chain;
use weir_upstream::{Identity, RequestBody};

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

impl RequestContext {
    fn is_watch(&self) -> bool {
        self.parsed.resource().is_some_and(|resource| resource.verb == Verb::Watch)
    }
}

/// A read whose response is remembered for the time without an API server.
enum RememberedRead {
    /// Discovery, the version or OpenAPI: the same for all authenticated clients.
    Discovery(DiscoveryRead),
    /// One object that may be remembered: for the same client.
    Object(ObjectRead),
}

impl Proxy {
    /// Handles one request. Any error is a response, too.
    pub(super) async fn handle(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        peer: Peer,
    ) -> Response<ResponseBody> {
        in_span(request, |request| self.handle_in_span(request, peer)).await
    }

    async fn handle_in_span(
        self: &Arc<Self>,
        mut request: http::Request<Incoming>,
        peer: Peer,
    ) -> Response<ResponseBody> {
        let started = Instant::now();
        if *request.method() == Method::CONNECT {
            return self.relay(request, peer, started).await;
        }
        if let Some(response) = self.respond_to_peer(&request, &peer, started).await {
            return response;
        }
        let context = match self.examine(&mut request, &peer).await {
            Ok(context) => context,
            Err(error) => {
                let (component, code) = (client_component(request.headers()), error.code().as_u16());
                self.clients.begin(component, false).answered(error.code());
                tracing::warn!(peer = %peer.address, method = %request.method(), uri = %request.uri(), component, code, %error, "request refused");
                let meter = Meter::new(self.metrics.clone(), "refused", started);
                return meter.attach(error.response(Encoding::for_errors(request.headers())));
            }
        };
        describe(&context.parsed, &context.component);
        let client = self.clients.begin(&context.component, context.is_watch());
        let response = self.respond(request, context, peer, started).await;
        client.answered(response.status());
        match client.is_watch() {
            true => guarded(response, client),
            false => response,
        }
    }

    /// Responds to a request: from a cache, or with what an API server sends.
    async fn respond(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        context: RequestContext,
        peer: Peer,
        started: Instant,
    ) -> Response<ResponseBody> {
        let RequestContext { parsed, component, identity, .. } = &context;
        tracing::debug!(method = %request.method(), path = %parsed.forward, component, ?identity, "request");
        let cacheable = self.cacheable(&request, parsed, component, *identity, &peer, started);
        let response = self.respond_cached_or_upstream(request, context, peer, started, cacheable.as_ref()).await;
        if let Some(cacheable) = cacheable {
            cacheable.note_list(response.status());
        }
        response
    }

    /// The same. A view may answer what is `cacheable`.
    async fn respond_cached_or_upstream(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        context: RequestContext,
        peer: Peer,
        started: Instant,
        cacheable: Option<&Arc<CacheableRequest>>,
    ) -> Response<ResponseBody> {
        let RequestContext { parsed, upgrade, component, identity, route } = context;
        if let Some(cacheable) = cacheable
            && let Some(response) = cached::respond(self, cacheable, self.upstream.is_reachable()).await
        {
            return response;
        }
        let remembered = self.remembered_read(&request, &parsed, &component, identity);
        let chain = match &route {
            Route::Read { chain, .. } => Some(chain.clone()),
            Route::Forward | Route::Write { .. } => None,
        };
        let encoding = Encoding::for_errors(request.headers());
        let (request, report) = match self.take_report(request, &parsed, identity).await {
            Ok(taken) => taken,
            Err(error) => return Meter::new(self.metrics.clone(), "forward", started).attach(error.response(encoding)),
        };
        let in_flight = match self.begin_request(&parsed, &peer).await {
            Ok(in_flight) => in_flight,
            Err(error) => return Meter::new(self.metrics.clone(), "refused", started).attach(error.response(encoding)),
        };
        let is_own_answer = self.is_answered_by_server(&parsed);
        let context = RequestContext { parsed, upgrade, component, identity, route };
        let response = self.respond_upstream(request, context, peer, started, remembered.as_ref()).await;
        let response = guarded(response, in_flight);
        if let Some(report) = report {
            return self.note_report(report, response).await;
        }
        if response.status().is_server_error() && self.upstream.is_failing() {
            let cached = match cacheable {
                Some(cacheable) => cached::respond(self, cacheable, false).await,
                None => None,
            };
            return match (cached, &remembered) {
                (Some(cached), _) => cached,
                (None, Some(remembered)) => self.replay(remembered, chain.as_ref()).await.unwrap_or(response),
                (None, None) => response,
            };
        }
        match remembered {
            Some(RememberedRead::Discovery(read)) => self.record_discovery(&read, response, is_own_answer).await,
            Some(RememberedRead::Object(read)) if chain.is_none() && read.is_kept_as_forwarded(&response) => {
                self.answers.record(read.key(), response, decoded)
            }
            _ => response,
        }
    }

    /// Counts a request that goes upstream, once there is room for it. Cancel-safe.
    async fn begin_request(&self, parsed: &RequestInfo, peer: &Peer) -> Result<RequestInFlight, StatusError> {
        let kind = match parsed.resource() {
            Some(resource) if resource.verb == Verb::Watch => Kind::Watch,
            Some(resource) if resource.is_stream() => Kind::Stream,
            _ => Kind::Short,
        };
        self.in_flight.begin(peer.connection.peer(), kind).await
    }

    /// Returns a read whose response is remembered for the time without an API server.
    fn remembered_read(
        &self,
        request: &http::Request<Incoming>,
        parsed: &RequestInfo,
        component: &str,
        identity: Identity,
    ) -> Option<RememberedRead> {
        let views = self.views.as_ref()?;
        let (method, headers) = (request.method(), request.headers());
        if let Some(discovery) = DiscoveryRead::of(method, headers, identity, parsed) {
            return Some(RememberedRead::Discovery(discovery));
        }
        let resource =
            parsed.resource().filter(|resource| views.may_remember(identity, headers, component, resource))?;
        let read = self.object_read(method, headers, identity, parsed)?;
        let reader = views.reader(identity, headers, component, resource, || credential_owner(headers));
        let held = reader.is_some_and(|reader| views.hold(component, &reader, resource));
        (!held).then_some(RememberedRead::Object(read))
    }

    /// Responds with what is remembered of a read; `None` if that is nothing.
    async fn replay(&self, read: &RememberedRead, chain: Option<&Chain>) -> Option<Response<ResponseBody>> {
        let response = match read {
            RememberedRead::Discovery(read) if self.may_discover(read.client()).await => {
                read.replay(&self.answers).await?
            }
            RememberedRead::Discovery(_) => return None,
            RememberedRead::Object(read) => {
                let answer = self.answers.get(&read.key()).await?;
                read.replay(&answer, chain).await.unwrap_or_else(|error| error.response(read.encoding()))
            }
        };
        self.metrics.offline_response();
        Some(response)
    }

    /// Remembers discovery, and that the API server has accepted the credential of its client, if it was the API server itself.
    async fn record_discovery(
        &self,
        read: &DiscoveryRead,
        response: Response<ResponseBody>,
        is_own_answer: bool,
    ) -> Response<ResponseBody> {
        let Some(key) = read.key_of(&response).filter(|_| response.status() == StatusCode::OK) else { return response };
        if is_own_answer && let DiscoveryClient::Credential { user, expires } = read.client() {
            self.note_credential(user, *expires).await;
        }
        self.answers.record(key, response, Some)
    }

    /// Whether a client may have remembered discovery: it is authenticated, or gets what clients without a credential got.
    async fn may_discover(&self, client: &DiscoveryClient) -> bool {
        match client {
            DiscoveryClient::Verified | DiscoveryClient::Anonymous => true,
            DiscoveryClient::Credential { user, .. } => self.is_credential_known(user).await,
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
            close: peer.connection.close().clone(),
            lists: (request.version() == Version::HTTP_2).then(|| peer.lists.clone()),
        };
        (*request.method() == Method::GET && views.serve(component, resource)).then(|| Arc::new(cacheable()))
    }

    /// Responds with what an API server sends, filtered where a chain matches.
    async fn respond_upstream(
        self: &Arc<Self>,
        request: http::Request<RequestBody>,
        context: RequestContext,
        peer: Peer,
        started: Instant,
        remembered: Option<&RememberedRead>,
    ) -> Response<ResponseBody> {
        let RequestContext { parsed, upgrade, component, identity, route } = context;
        match route {
            Route::Forward => {
                let asks_token = self.views.is_some() && token_request::is_token_request(&request, &parsed);
                let forward = ForwardRequest { request, upgrade, parsed, identity, component: &component, peer: &peer };
                match asks_token {
                    true => token_request::respond(self, forward, started).await,
                    false => forward::forward(self, forward, started).await,
                }
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
                let object = match remembered {
                    Some(RememberedRead::Object(object)) => Some(object),
                    Some(RememberedRead::Discovery(_)) | None => None,
                };
                self.respond_to_read(read, started, object).await
            }
        }
    }

    /// Parses a request, and selects its credential and its route. Removes the hop-by-hop headers before it decides anything
    /// by a header.
    async fn examine(&self, request: &mut http::Request<Incoming>, peer: &Peer) -> Result<RequestContext, StatusError> {
        if *request.method() == Method::TRACE {
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
    async fn respond_to_read(
        self: &Arc<Self>,
        read: ReadRequest,
        started: Instant,
        remembered: Option<&ObjectRead>,
    ) -> Response<ResponseBody> {
        let (verb, path, component) = (read.resource.verb, read.path.clone(), read.component.clone());
        let encoding = read.media_type.encoding;
        let compress = read.compress && verb != Verb::Watch && read.method != Method::HEAD;
        let handler = handler_of(verb);
        // Created first: it also counts a request whose client leaves before the response.
        let meter = Meter::new(self.metrics.clone(), handler, started);
        let response = match verb {
            Verb::List => list::list(self, read).await,
            Verb::Watch => watch::watch(self, read).await,
            _ => get::get(self, read, remembered).await,
        };
        let response = match response {
            Ok(response) if compress => compressed(response),
            Ok(response) => response,
            Err(error) => {
                let error = error.with_outage(&self.upstream);
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
