//! A watch that filters match. Weir first decides whether it may continue from the client's resource version. A
//! [`WatchResponse`] then filters its events.

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
        match proxy.resume.hidden_keys(&read.client, read.chain_version, version) {
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
