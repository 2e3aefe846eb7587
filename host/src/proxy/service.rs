//! Handles one request, from its head to the head of its response: parse, identify, route, respond.
//!
//! An error becomes a Kubernetes `Status`. The body of the response owns all resources of the request: the upstream stream,
//! memory, and its metrics. All of it is released when the client has received the body or is gone.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, Version};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::in_flight::{Kind, RequestInFlight};
use super::request_span::{describe, in_span};
use super::websocket::WebSocketWatch;
use super::websocket::handshake::Handshake;
use super::{Proxy, RequestError};
use crate::offline::{KNOWN, ObjectRead, RememberedRead, token_request};
use crate::serve::body::{Meter, ResponseBody, full, guarded};
use crate::serve::caller_request::CallerRequest;
use crate::serve::forward::ForwardRequest;
use crate::serve::gzip::compressed;
use crate::serve::read::ReadRequest;
use crate::serve::respond::{ApiStatus as _, StatusError};
use crate::serve::route::{Filtering, Route};
use crate::serve::write::WriteRequest;
use crate::serve::{cached, forward, get, handler_of, list, watch};
use weir_access::Outcome;
use weir_front::{ActiveRequest, Handler, HeadError, Peer};
use weir_kube::{Encoding, RequestInfo, ResourceRequest, Verb, VerbClass, client_component};
use weir_upstream::RequestBody;
use weir_wire::headers::{self, FromUpstream};

/// What the handlers need to know about a request.
struct RequestContext {
    asked: Arc<CallerRequest>,
    /// The protocol that the client asks to upgrade to.
    upgrade: Option<HeaderValue>,
    route: Route,
}

impl Handler for Proxy {
    type Body = ResponseBody;

    async fn answer(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        peer: Peer,
        active: ActiveRequest,
    ) -> Response<ResponseBody> {
        let version = request.version();
        let response = self.handle(request, peer).await;
        self.unread.watch(response, version, active)
    }

    fn refusal(error: HeadError, encoding: Encoding) -> Response<Bytes> {
        RequestError::Head(error).rendered(encoding)
    }

    fn attach(&self, refusal: Response<Bytes>, version: Version, active: ActiveRequest) -> Response<ResponseBody> {
        self.unread.watch(refusal.map(full), version, active)
    }
}

impl Proxy {
    /// Handles one request. Any error is a response, too.
    async fn handle(self: &Arc<Self>, request: http::Request<Incoming>, peer: Peer) -> Response<ResponseBody> {
        let mut websocket = None;
        let response = in_span(request, |request| self.handle_in_span(request, peer, &mut websocket)).await;
        match websocket {
            Some(websocket) => websocket.open(self, response),
            None => response,
        }
    }

    async fn handle_in_span(
        self: &Arc<Self>,
        mut request: http::Request<Incoming>,
        peer: Peer,
        websocket: &mut Option<WebSocketWatch>,
    ) -> Response<ResponseBody> {
        let started = Instant::now();
        if *request.method() == Method::CONNECT {
            return self.pool.relay(request, peer, started).await;
        }
        if let Some(response) = self.pool.respond_to_peer(&request, &peer, started).await {
            return response;
        }
        let context = match self.examine(&mut request, (&peer, started), websocket).await {
            Ok(context) => context,
            Err(error) => {
                let (component, code) = (client_component(request.headers()), error.code().as_u16());
                self.clients.begin(component, false).answered(error.code());
                // Every stop ends the watches of all clients, who come back at once.
                if !matches!(error, RequestError::Handler(StatusError::Stopping)) {
                    self.handlers.failures.warn(
                        "request refused",
                        (&format_args!("{} {} of {}", request.method(), request.uri(), peer.address), component),
                        Some(code),
                        &error,
                    );
                }
                let meter = Meter::new(self.handlers.metrics.clone(), "refused", started);
                return meter.attach(error.response(Encoding::for_errors(request.headers())));
            }
        };
        let asked = &context.asked;
        describe(&asked.parsed, &asked.component);
        let client = self.clients.begin(&asked.component, asked.is_watch());
        let response = self.respond(request, context, peer).await;
        client.answered(response.status());
        match client.is_watch() {
            true => guarded(response, client),
            false => response,
        }
    }

    /// Responds to a request: from a view that may serve it, else with what an API server sends.
    async fn respond(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        context: RequestContext,
        peer: Peer,
    ) -> Response<ResponseBody> {
        let asked = context.asked.clone();
        let CallerRequest { method, parsed, component, caller, started, .. } = &*asked;
        tracing::debug!(%method, path = %parsed.forward, component, identity = ?caller.identity(), "request");
        let is_collection = |resource: &ResourceRequest| matches!(resource.verb, Verb::List | Verb::Watch);
        let is_read = |resource: &ResourceRequest| *method == Method::GET || is_collection(resource);
        let is_of_views = |resource: &&ResourceRequest| self.handlers.views.serve(component, resource);
        let of_views = parsed.resource().filter(|resource| is_read(resource)).filter(is_of_views);
        let is_cacheable = of_views.is_some() && *method == Method::GET;
        if is_cacheable
            && let Some(response) =
                Box::pin(cached::respond(&self.handlers, &asked, self.handlers.upstream.is_reachable())).await
        {
            return response;
        }
        let remembered = self.offline.remembered_read(&asked).await;
        let chain = match &context.route {
            Route::Read { chain, .. } => Some(chain.clone()),
            Route::Forward | Route::Write { .. } => None,
        };
        let encoding = Encoding::for_errors(request.headers());
        let (request, report) = match self.offline.take_report(request, parsed, caller.identity()).await {
            Ok(taken) => taken,
            Err(error) => {
                return Meter::new(self.handlers.metrics.clone(), "forward", *started).attach(error.response(encoding));
            }
        };
        let in_flight = match self.begin_request(parsed, &peer).await {
            Ok(in_flight) => in_flight,
            Err(error) => {
                self.handlers.log_over_share(
                    &self.handlers.access.owner(caller),
                    asked.client,
                    component,
                    parsed,
                    &error,
                );
                return Meter::new(self.handlers.metrics.clone(), "refused", *started).attach(error.response(encoding));
            }
        };
        // Whether the API server accepts a credential is another question than this one, which it may answer to everybody.
        // The permission for what views serve is kept for the account of its client.
        let asks = remembered.is_some() || of_views.is_some_and(is_collection);
        let known = async {
            if asks {
                let _ = timeout(KNOWN, self.handlers.access.authenticate(caller)).await;
            }
        };
        let response = Box::pin(self.respond_upstream(request, context, peer, remembered.as_ref()));
        let (response, ()) = tokio::join!(response, known);
        let response = guarded(response, in_flight);
        let outcome = Outcome {
            caller: caller.clone(),
            component: component.clone(),
            method: method.clone(),
            request: parsed.clone(),
            status: response.status(),
        };
        let is_from_upstream = response.extensions().get::<FromUpstream>().is_some();
        let is_own = is_from_upstream && self.handlers.access.is_answered_by_server(&outcome.request);
        if is_own {
            self.handlers.access.note_outcome(&outcome).await;
        } else if is_from_upstream {
            self.handlers.access.note_later(&outcome);
        }
        if let Some(report) = report {
            return self.offline.note_report(report, response).await;
        }
        if response.status().is_server_error() && self.handlers.upstream.is_failing() {
            let cached = match is_cacheable {
                true => Box::pin(cached::respond(&self.handlers, &asked, false)).await,
                false => None,
            };
            return match (cached, &remembered) {
                (Some(cached), _) => cached,
                (None, Some(remembered)) => {
                    self.offline.replay(remembered, caller, chain.as_ref()).await.unwrap_or(response)
                }
                (None, None) => response,
            };
        }
        match remembered {
            Some(remembered) => self.offline.record(remembered, caller, response, (is_own, chain.is_none())),
            None => response,
        }
    }

    /// Counts a request that goes upstream, once there is room for it. Cancel-safe.
    async fn begin_request(&self, parsed: &RequestInfo, peer: &Peer) -> Result<RequestInFlight, RequestError> {
        let kind = match parsed.resource() {
            Some(resource) if resource.verb == Verb::Watch => Kind::Watch,
            Some(resource) if resource.is_stream() => Kind::Stream,
            _ => Kind::Short,
        };
        self.in_flight.begin(peer.connection.peer(), kind).await
    }

    /// Responds with what an API server sends, filtered where a chain matches.
    async fn respond_upstream(
        self: &Arc<Self>,
        request: http::Request<RequestBody>,
        context: RequestContext,
        peer: Peer,
        remembered: Option<&RememberedRead>,
    ) -> Response<ResponseBody> {
        let RequestContext { asked, upgrade, route } = context;
        let started = asked.started;
        match route {
            Route::Forward => {
                let mut read = self.read_to_filter(&asked);
                // A client that continues may hold what filters have made that are no longer there.
                if let Some(read) = read.as_mut().filter(|_| asked.is_watch())
                    && self.continues_filtered(read).await
                {
                    let continued = cached::private::continued(&self.handlers, read).await;
                    if let Some(response) = continued {
                        return Meter::new(self.handlers.metrics.clone(), handler_of(Verb::Watch), started)
                            .attach(response);
                    }
                }
                let asks_token =
                    self.handlers.shared_views().is_some() && token_request::is_token_request(&request, &asked.parsed);
                let forward = ForwardRequest { request, upgrade, asked: &asked, peer: &peer };
                let response = match asks_token {
                    true => token_request::respond(&self.offline, forward).await,
                    false => forward::forward(&self.handlers, forward).await,
                };
                match read.filter(|read| self.handlers.chains.is_filtered_now(&asked.component, &read.resource)) {
                    // A filter has begun to match: nothing of after that leaves unfiltered.
                    Some(mut read) if response.status().is_success() => {
                        read.take_filters(&self.handlers);
                        self.respond_to_read(read, None).await
                    }
                    _ => response,
                }
            }
            Route::Write { resource, chain } => {
                WriteRequest { chain, asked, resource }.respond(&self.handlers, request).await
            }
            Route::Read { resource, chain } => {
                // Its body is not read.
                drop(request);
                let read = ReadRequest::new(asked, resource, Filtering::of(Some(chain)));
                let object = match remembered {
                    Some(RememberedRead::Object(object)) => Some(&**object),
                    Some(RememberedRead::Discovery(_)) | None => None,
                };
                self.respond_to_read(read, object).await
            }
        }
    }

    /// A get, list or watch that no filter matches, as one that filters match would be sent; `None` for other requests.
    fn read_to_filter(&self, asked: &Arc<CallerRequest>) -> Option<ReadRequest> {
        let is_read = |resource: &&ResourceRequest| resource.verb_class() == Some(VerbClass::Read);
        let resource = asked.parsed.resource().filter(is_read).filter(|_| asked.method == Method::GET)?;
        let filtering = self.handlers.chains.filtering(&asked.component, &resource.resource);
        Some(ReadRequest::new(asked.clone(), resource.clone(), filtering))
    }

    /// Whether a watch that no filter matches continues from what filters may have made.
    async fn continues_filtered(&self, read: &mut ReadRequest) -> bool {
        if read.is_table() || !watch::continues(&read.asked.parsed.query) {
            return false;
        }
        // It knows which filters a former process had. Without one, views show nothing, and no filter of the next one matches.
        if self.handlers.chains.first_set(self.handlers.start_wait).await.is_none() {
            return false;
        }
        read.take_filters(&self.handlers);
        let resource = &read.resource.resource;
        if !self.handlers.chains.has_filtered(&read.asked.component, resource) {
            return false;
        }
        read.find_stamp(&self.handlers).await;
        let version = read.asked.parsed.query.first("resourceVersion").unwrap_or_default();
        read.is_of_views(&self.handlers)
            || !self.handlers.views.chain_stamps().covers(read.filtering.version(), resource, version)
    }

    /// Parses a request, and selects its credential and its route. Removes the hop-by-hop headers before it decides anything
    /// by a header.
    async fn examine(
        &self,
        request: &mut http::Request<Incoming>,
        (peer, started): (&Peer, Instant),
        websocket: &mut Option<WebSocketWatch>,
    ) -> Result<RequestContext, RequestError> {
        if *request.method() == Method::TRACE {
            return Err(RequestError::Method);
        }
        let parsed = RequestInfo::parse(request.method(), request.uri()).map_err(StatusError::from)?;
        if self.handlers.tasks.is_stopping() && parsed.resource().is_some_and(|resource| resource.verb == Verb::Watch) {
            return Err(StatusError::Stopping.into());
        }
        let handshake = Handshake::of(request, &parsed);
        let upgrade = headers::take_hop_by_hop(request.headers_mut())?;
        *websocket = handshake.map(|handshake| WebSocketWatch::take(request, handshake, peer)).transpose()?;
        let component = client_component(request.headers()).to_owned();
        let caller = self.handlers.access.identify(request, &parsed, peer).await.map_err(StatusError::from)?;
        let start_wait = self.handlers.start_wait;
        let route = self.handlers.chains.route(request.method(), &parsed, &component, start_wait).await?;
        let asked = Arc::new(CallerRequest::new(request, parsed, component, caller, (peer, started)));
        Ok(RequestContext { asked, upgrade, route })
    }

    /// Responds to a get, list or watch that filters match.
    async fn respond_to_read(
        self: &Arc<Self>,
        read: ReadRequest,
        remembered: Option<&ObjectRead>,
    ) -> Response<ResponseBody> {
        let (asked, verb, encoding) = (read.asked.clone(), read.resource.verb, read.media_type.encoding);
        let compress = verb != Verb::Watch
            && asked.method != Method::HEAD
            && headers::accepts_gzip(&asked.headers)
            && self.handlers.compression.is_for(asked.client);
        let handler = handler_of(verb);
        // Created first: it also counts a request whose client leaves before the response.
        let meter = Meter::new(self.handlers.metrics.clone(), handler, asked.started);
        let response = match verb {
            Verb::List => list::list(&self.handlers, read).await,
            Verb::Watch => watch::watch(&self.handlers, read).await,
            _ => {
                let keep = remembered.map(|object| {
                    move |read: &ReadRequest, encoding, parts: &http::response::Parts, body| {
                        self.offline.keep(object, read, encoding, parts, body);
                    }
                });
                let keep = keep.as_ref().map(|keep| keep as get::Keep<'_>);
                get::get(&self.handlers, read, keep).await
            }
        };
        let response = match response {
            Ok(response) if compress => compressed(response),
            Ok(response) => response,
            Err(error) => {
                let error = error.with_outage(&self.handlers.outage);
                if matches!(error, StatusError::NotFound { .. }) {
                    tracing::debug!(path = %asked.parsed.forward, component = asked.component, "object is hidden from this client, returned 404");
                } else {
                    let code = error.code().as_u16();
                    let request: (&dyn std::fmt::Display, &str) = (&asked.parsed.forward, &asked.component);
                    self.handlers.failures.warn("filtered read failed", request, Some(code), &error);
                }
                error.response(encoding)
            }
        };
        meter.attach(response)
    }
}
