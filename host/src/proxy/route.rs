//! Where a request goes: forwarded as it is, or through the chain that matches it. A read that a filter may match is
//! never let through before it is known which filters there are.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Response};
use hyper::body::Incoming;

use super::body::{Meter, ResponseBody};
use super::respond::Refusal;
use super::response::cached::{self, CachedRead};
use super::response::forward::Forward;
use super::response::gzip::compressed;
use super::response::read::{ReadParts, ReadRequest};
use super::response::write::Write;
use super::response::{forward, get, list, watch};
use super::server::listener::Peer;
use super::{Proxy, headers};
use weir_kube::Encoding;
use weir_kube::VerbClass;
use weir_kube::{RequestInfo, ResourceRequest, Verb, client_component};
use weir_runtime::{Chain, Serving};
use weir_upstream::Identity;

/// A request that is not refused.
struct Admitted {
    parsed: RequestInfo,
    /// The protocol that the client asks to upgrade to.
    upgrade: Option<HeaderValue>,
    component: String,
    identity: Identity,
}

impl Proxy {
    /// Answers one request. The answer's body holds what the request occupies.
    pub(super) async fn answer(
        self: &Arc<Self>,
        mut request: http::Request<Incoming>,
        peer: Peer,
    ) -> Response<ResponseBody> {
        let begun = Instant::now();
        let meter = |class| Meter::new(self.metrics.clone(), class, begun);
        let Admitted { parsed, upgrade, component, identity } = match self.admit(&mut request, &peer).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                tracing::warn!(peer = %peer.address, uri = %request.uri(), error = %refusal, "request refused");
                return meter("refused").attach(refusal.response(Encoding::for_errors(request.headers())));
            }
        };
        tracing::debug!(method = %request.method(), path = %parsed.forward, component, ?identity, "request");

        if let Some(answer) = self.from_view(&request, &parsed, &component, identity, &peer, begun).await {
            return answer;
        }

        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        // Filters match what a component is shown, be it the answer to a read or to a write.
        let filterable = |resource: &&ResourceRequest| match resource.verb_class() {
            Some(class) => (class == VerbClass::Read) == reads,
            None => false,
        };
        let resource = parsed.resource().filter(filterable).cloned();
        let chain = match &resource {
            Some(resource) => self.chain(&component, resource).await,
            None => Ok(None),
        };
        let (resource, chain) = match chain.map(|chain| resource.zip(chain)) {
            Ok(Some(matched)) => matched,
            Ok(None) => {
                let forward = Forward { request, upgrade, parsed, identity, component: &component, peer: &peer };
                return forward::forward(self, forward, begun).await;
            }
            Err(refusal) => {
                tracing::warn!(path = %parsed.forward, component, "a request waited for the filters and is answered 503");
                return meter("refused").attach(refusal.response(Encoding::for_errors(request.headers())));
            }
        };
        if !reads {
            return Write { chain, component, identity, parsed, resource }.answer(self, request, begun).await;
        }
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
        self.filtered(read, begun).await
    }

    /// Answers a list or a watch from a view; `None` if the API server must answer the request.
    async fn from_view(
        self: &Arc<Self>,
        request: &http::Request<Incoming>,
        parsed: &RequestInfo,
        component: &str,
        identity: Identity,
        peer: &Peer,
        begun: Instant,
    ) -> Option<Response<ResponseBody>> {
        let (views, resource) = (self.views.as_ref()?, parsed.resource()?);
        let online = self.upstream.is_reachable();
        let read = CachedRead::of(request.method(), request.headers(), identity, component, parsed, online)?;
        let view = views.view(component, identity, resource, &parsed.query)?;
        if !view.is_read_as(identity) && !self.may_read(identity, request.headers(), parsed).await.ok()? {
            return None;
        }
        let encoding = Encoding::for_errors(request.headers());
        let (list, takes_gzip) = (resource.verb == Verb::List, headers::takes_gzip(request.headers()));
        let answer = cached::answer(self, read, view, online).await?;
        let answer = answer.unwrap_or_else(|refusal| refusal.response(encoding));
        let compress = list && takes_gzip && self.compression.is_for(peer.address.ip());
        let answer = if compress { compressed(answer) } else { answer };
        let class = match resource.verb {
            Verb::List => "list",
            Verb::Watch => "watch",
            _ => "get",
        };
        Some(Meter::new(self.metrics.clone(), class, begun).attach(answer))
    }

    /// Reads what a request asks for, and decides which identity it travels under. Removes its hop-by-hop headers first.
    async fn admit(&self, request: &mut http::Request<Incoming>, peer: &Peer) -> Result<Admitted, Refusal> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Refusal::Method);
        }
        let parsed = RequestInfo::parse(request.method(), request.uri())?;
        let upgrade = headers::take_hop_by_hop(request.headers_mut())?;
        let component = client_component(request.headers()).to_owned();
        let identity = self.identify(request, &parsed, peer).await?;
        Ok(Admitted { parsed, upgrade, component, identity })
    }

    async fn filtered(self: &Arc<Self>, read: ReadRequest, begun: Instant) -> Response<ResponseBody> {
        let class = match read.resource.verb {
            Verb::List => "list",
            Verb::Watch => "watch",
            _ => "get",
        };
        let meter = Meter::new(self.metrics.clone(), class, begun);
        let (path, component, encoding) = (read.path.clone(), read.component.clone(), read.media_type.encoding);
        let compress = read.compress && read.resource.verb != Verb::Watch && read.method != Method::HEAD;
        let answer = match read.resource.verb {
            Verb::List => list::list(self, read).await,
            Verb::Watch => watch::watch(self, read).await,
            _ => get::get(self, read).await,
        };
        let answer = answer.map(|answer| if compress { compressed(answer) } else { answer }).unwrap_or_else(|refusal| {
            if matches!(refusal, Refusal::NotFound { .. }) {
                tracing::debug!(%path, component, "the object is hidden from this client");
            } else {
                tracing::warn!(%path, component, code = refusal.code().as_u16(), error = %refusal, "a filtered read failed; the client is told by a Status");
            }
            refusal.response(encoding)
        });
        meter.attach(answer)
    }

    /// The chain for what a component is shown; none: nothing matches it. Waits, at most the start-up time, while that is not known.
    /// Cancel-safe.
    async fn chain(&self, component: &str, resource: &ResourceRequest) -> Result<Option<Chain>, Refusal> {
        let decided = |serving: &Serving| match serving {
            Serving::Unknown | Serving::Pending(None) => None,
            Serving::Pending(Some(rules)) => {
                let waits = rules.iter().any(|rule| rule.matches(component, &resource.resource, VerbClass::Read));
                (!waits).then_some(None)
            }
            Serving::Live(set) => Some(set.chain(component, &resource.resource, VerbClass::Read)),
        };
        if let Some(chain) = decided(&self.serving.borrow()) {
            return Ok(chain);
        }
        let mut serving = self.serving.clone();
        let waited = async {
            loop {
                if let Some(chain) = decided(&serving.borrow_and_update()) {
                    return Some(chain);
                }
                serving.changed().await.ok()?;
            }
        };
        tokio::time::timeout(self.start_wait, waited).await.ok().flatten().ok_or(Refusal::Starting)
    }

    /// Whether filters match reads of a resource by a component at this moment; `None`: not known.
    pub(super) fn chain_now(&self, component: &str, resource: &ResourceRequest) -> Option<Option<Chain>> {
        match &*self.serving.borrow() {
            Serving::Live(set) => Some(set.chain(component, &resource.resource, VerbClass::Read)),
            Serving::Unknown | Serving::Pending(_) => None,
        }
    }
}
