//! The head of a request whose caller is known, as all handlers take it.

use std::net::IpAddr;
use std::time::Instant;

use http::{HeaderMap, Method, Version};
use tokio_util::sync::CancellationToken;
use weir_access::Caller;
use weir_front::Peer;
use weir_kube::{RequestInfo, Verb};

/// The head of a request, and who sends it. What reads by it after the response has begun shares it.
pub(crate) struct CallerRequest {
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// Without hop-by-hop headers.
    pub(crate) headers: HeaderMap,
    pub(crate) parsed: RequestInfo,
    /// The name of the client program, from the User-Agent.
    pub(crate) component: String,
    pub(crate) caller: Caller,
    pub(crate) client: IpAddr,
    pub(crate) started: Instant,
    /// Closes the client's connection.
    pub(crate) close: CancellationToken,
}

impl CallerRequest {
    /// The head of a request that arrived now or before.
    pub(crate) fn new<B>(
        request: &http::Request<B>,
        parsed: RequestInfo,
        component: String,
        caller: Caller,
        (peer, started): (&Peer, Instant),
    ) -> Self {
        Self {
            method: request.method().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            parsed,
            component,
            caller,
            client: peer.address.ip(),
            started,
            close: peer.connection.close().clone(),
        }
    }

    /// Whether it is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.parsed.resource().is_some_and(|resource| resource.verb == Verb::Watch)
    }
}
