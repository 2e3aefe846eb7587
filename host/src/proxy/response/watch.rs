//! A watch from the API server, filtered on its way: where no view serves it. Weir remembers nothing of its client.
//!
//! A client that continues from a version may have got what it holds from anybody, through other filters. Above the stamp of the
//! filters in force it holds what they show. Up to the stamp, nothing is known: it gets the present state first, as in
//! `one-watch.md`, from a list of the API server ([`PresentState`]). The same list shows which objects the client does not have,
//! because they are hidden and have not changed since. When the filters change, the watch ends, and the client's next one begins
//! with what they show now.
//!
//! Tables (`kubectl get --watch`) are for the eye: nothing goes before their events, and they stay open when the filters change.

mod hidden_keys;
mod present_state;
mod transitions;
mod watch_end;
mod watch_response;

use std::sync::Arc;

use futures_util::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::present_state::PresentState;
use self::watch_response::WatchResponse;
use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody};
use crate::proxy::respond::StatusError;
use weir_kube::Query;

/// Responds to a watch.
///
/// # Errors
/// The method is HEAD, or the API server returns no valid response.
pub(in crate::proxy) async fn watch(
    proxy: &Arc<Proxy>,
    mut read: ReadRequest,
) -> Result<Response<ResponseBody>, StatusError> {
    if read.method == Method::HEAD {
        return Err(StatusError::Method);
    }
    let continues = continues(&read.query);
    if continues && !read.is_table() {
        read.find_stamp(proxy).await;
    }
    let ObjectsResponse { parts, body, encoding } = match read.send(proxy, read.upstream_path()).await? {
        ReadResponse::Other(response) => return Ok(response),
        ReadResponse::Objects(objects) => objects,
    };
    read.take_filters(proxy);
    let present = match continues {
        true => match PresentState::request(proxy, &read, encoding).await? {
            Ok(present) => Some(present),
            // A client that may watch but not list gets unfiltered resources.
            Err(_) if read.filtering.chain().is_none() => None,
            Err(response) => return Ok(response),
        },
        false => None,
    };
    let watch = WatchResponse::new(proxy.clone(), read, encoding, body, present);
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
    });
    Ok(Response::from_parts(parts, StreamBody::new(events).boxed_unsync()))
}

/// Whether the client of a watch goes on with what it holds. Else the watch begins with the complete state.
pub(in crate::proxy) fn continues(query: &Query) -> bool {
    match query.first("sendInitialEvents") {
        Some(_) => !query.flag("sendInitialEvents"),
        None => !matches!(query.first("resourceVersion"), None | Some("" | "0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_begins_with_the_complete_state_unless_it_continues_from_a_version() {
        for (query, continues) in [
            ("", false),
            ("resourceVersion=", false),
            ("resourceVersion=0", false),
            ("resourceVersion=7", true),
            ("resourceVersion=7&sendInitialEvents=true", false),
            ("resourceVersion=7&sendInitialEvents", false),
            ("resourceVersion=0&sendInitialEvents=false", true),
        ] {
            assert_eq!(self::continues(&Query::parse(query).unwrap()), continues, "{query}");
        }
    }
}
