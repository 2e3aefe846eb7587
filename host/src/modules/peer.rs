//! Modules that another Weir of the pool has: one pull feeds a pool. A peer gives the file of its cache as it is.

use std::time::{Duration, Instant};
use weir_kube::Identity;

use http::{HeaderMap, Method, StatusCode};
use weir_registry::{Layout, MAX_LAYOUT};
use weir_spec::Digest;
use weir_store::PeerClient;
use weir_upstream::{AnsweredBy, DecodedBody, Purpose, RequestHead, error_report, no_request_body};

/// Below [`crate::config::PEER_PATH`], the path of modules; a digest follows.
pub(crate) const PEER_MODULES: &str = "/modules/";
/// The query of a request that waits for a pull.
pub(crate) const WAIT: &str = "wait";

/// A peer that waits does not answer within this time.
const ONCE: Duration = Duration::from_secs(1);

/// Returns the layout of an artifact. If `waits`, the peer is the one that pulls it for this node.
///
/// # Errors
/// The peer does not have it, or does not answer: a message.
pub(super) async fn of_peer(peer: &PeerClient, artifact: Digest, waits: bool) -> Result<Layout, String> {
    let query = if waits { format!("?{WAIT}") } else { String::new() };
    let response = loop {
        let asked = Instant::now();
        let path = format!("{PEER_MODULES}{artifact}{query}").parse().map_err(|error| format!("{error}"))?;
        let head =
            RequestHead { method: Method::GET, path, headers: HeaderMap::new(), answered_by: AnsweredBy::Server };
        let response = peer.upstream().send(Identity::Daemon, Purpose::Short, head, no_request_body()).await;
        let response = response.map_err(|error| error_report(&error))?;
        match response.status() {
            StatusCode::OK => break response,
            // It has waited for the pull, which goes on.
            StatusCode::SERVICE_UNAVAILABLE if waits && asked.elapsed() > ONCE => {}
            status => return Err(format!("it answers {status}")),
        }
    };
    let (head, body) = response.into_parts();
    let limit = usize::try_from(MAX_LAYOUT).unwrap_or(usize::MAX);
    let bytes = DecodedBody::new(&head.headers, body)?.collect(limit).await.map_err(|error| error_report(&error))?;
    Layout::read(&*bytes).map_err(|error| error.to_string())
}
