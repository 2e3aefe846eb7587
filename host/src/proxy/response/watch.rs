//! A watch that filters match. Weir first decides whether it may continue from the client's resource version. A
//! [`WatchResponse`] then filters its events.
//!
//! A watch may start at each version that the present chain version has shown to the client: that of its lists and watches,
//! of a write, of a get, of a list of another shape. It gets 410 where what the client was shown cannot be known: at a
//! version from before this process started, or before the filters or the values that they look up changed.

mod transitions;
mod watch_end;
mod watch_response;

use std::sync::Arc;

use futures_util::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::watch_response::WatchResponse;
use super::forward::relist;
use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody};
use crate::proxy::respond::StatusError;
use crate::proxy::resume::HiddenKeys;
use weir_kube::Query;

/// Responds to a watch that filters match. If other filters made the state that the client continues from, the response is
/// an ERROR event, 410 Expired, which makes it list again.
///
/// # Errors
/// The method is HEAD, or the API server returns no valid response.
pub(in crate::proxy) async fn watch(
    proxy: &Arc<Proxy>,
    read: ReadRequest,
) -> Result<Response<ResponseBody>, StatusError> {
    if read.method == Method::HEAD {
        return Err(StatusError::Method);
    }
    let hidden = if starts_complete(&read.query) {
        Arc::default()
    } else {
        let version = read.query.first("resourceVersion").unwrap_or_default();
        match hidden_keys(proxy, &read, version) {
            Some(hidden) => hidden,
            None => {
                tracing::debug!(path = %read.path, component = read.component, "watch answered 410 so that its client lists again: other filters made the state that it continues from");
                proxy.metrics.relist("unknown");
                return Ok(relist(
                    "other filters made the state that the watch continues from",
                    read.media_type.encoding,
                ));
            }
        }
    };
    match read.send(proxy, read.upstream_path()).await? {
        ReadResponse::Other(response) => Ok(response),
        ReadResponse::Objects(ObjectsResponse { parts, body, encoding }) => {
            let watch = WatchResponse::new(proxy.clone(), read, encoding, body, hidden);
            let events = stream::unfold(watch, |mut watch| async move {
                watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
            });
            Ok(Response::from_parts(parts, StreamBody::new(events).boxed_unsync()))
        }
    }
}

/// Returns the objects that are known to be hidden from a client that continues from `version`. None: other filters may have
/// made the state that it holds, or the same ones with other values.
fn hidden_keys(proxy: &Proxy, read: &ReadRequest, version: &str) -> Option<Arc<HiddenKeys>> {
    let (resume, chain_version, resource) = (&proxy.resume, read.chain_version, &read.resource.resource);
    if let Some(hidden) = resume.hidden_keys(&read.client, chain_version, version) {
        return Some(hidden);
    }
    if resume.ended_at(&read.client, version) {
        return None;
    }
    if let Some(hidden) = resume.hidden_keys_at(&read.any_read, chain_version, version) {
        return Some(hidden);
    }
    // The empty set is safe: it costs an event or a list too many, never one too few.
    proxy.chain_starts.covers(chain_version, resource, version).then(Arc::default)
}

/// Whether a watch starts with the complete state, so that its client's earlier state does not matter.
pub(in crate::proxy) fn starts_complete(query: &Query) -> bool {
    match query.first("sendInitialEvents") {
        Some(_) => query.flag("sendInitialEvents"),
        None => matches!(query.first("resourceVersion"), None | Some("" | "0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_starts_complete_unless_it_continues_from_a_version() {
        for (query, whole) in [
            ("", true),
            ("resourceVersion=", true),
            ("resourceVersion=0", true),
            ("resourceVersion=7", false),
            ("resourceVersion=7&sendInitialEvents=true", true),
            ("resourceVersion=7&sendInitialEvents", true),
            ("resourceVersion=0&sendInitialEvents=false", false),
        ] {
            assert_eq!(starts_complete(&Query::parse(query).unwrap()), whole, "{query}");
        }
    }
}
