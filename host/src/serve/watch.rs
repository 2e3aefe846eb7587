//! A watch that filters match and that no shared view serves: of a private view, or of a Table.

mod table_watch;

use std::sync::Arc;

use futures_util::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::table_watch::TableWatch;
use super::cached::private;
use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody};
use crate::serve::respond::StatusError;
use weir_kube::Query;

/// Responds to a watch.
///
/// # Errors
/// The method is HEAD, or the API server returns no valid response.
pub(crate) async fn watch(handlers: &Arc<Handlers>, read: ReadRequest) -> Result<Response<ResponseBody>, StatusError> {
    if read.asked.method == Method::HEAD {
        return Err(StatusError::Method);
    }
    if !read.is_table() {
        return private::watch(handlers, &read).await;
    }
    let ObjectsResponse { parts, body, encoding } = match read.send(handlers, read.upstream_path()).await? {
        ReadResponse::Other(response) => return Ok(response),
        ReadResponse::Objects(objects) => objects,
    };
    let watch = TableWatch::new(handlers.clone(), read, encoding, body);
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|events| (Ok::<_, AbortError>(Frame::data(events)), watch))
    });
    Ok(Response::from_parts(parts, StreamBody::new(events).boxed_unsync()))
}

/// Whether the client of a watch goes on with what it holds. Else the watch begins with the complete state.
pub(crate) fn continues(query: &Query) -> bool {
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
