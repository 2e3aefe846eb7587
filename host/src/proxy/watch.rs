//! A watch that filters match: whether it may go on from where its client says it is, and then [`live`].

mod live;
mod transitions;
mod wire;

use std::sync::Arc;

use futures_util::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::live::Live;
use super::Proxy;
use super::body::{BodyError, ResponseBody};
use super::forward::relist;
use super::read::{Answer, Objects, Read};
use super::respond::Refusal;
use weir_kube::Query;

/// Answers a matched watch.
pub(super) async fn watch(proxy: &Arc<Proxy>, read: Read) -> Result<Response<ResponseBody>, Refusal> {
    if read.method == Method::HEAD {
        return Err(Refusal::Method);
    }
    let hidden = if begins_whole(&read.query) {
        Arc::default()
    } else {
        let version = read.query.first("resourceVersion").unwrap_or_default();
        match proxy.ledger.resume(&read.key, read.stamp, version) {
            Some(hidden) => hidden,
            None => {
                tracing::debug!(path = %read.path, component = read.component, "a watch goes on from a state of other filters: 410, its client lists again");
                proxy.metrics.relist("unknown");
                return Ok(relist("the state it goes on from was made by other filters", read.media_type.encoding));
            }
        }
    };
    match read.ask(proxy, read.own_path()).await? {
        Answer::Other(answer) => Ok(answer),
        Answer::Objects(Objects { parts, plain, encoding }) => {
            let live = Live::new(proxy.clone(), read, encoding, plain, hidden);
            let events = stream::unfold(live, |mut live| async move {
                live.next().await.map(|events| (Ok::<_, BodyError>(Frame::data(events)), live))
            });
            Ok(Response::from_parts(parts, StreamBody::new(events).boxed_unsync()))
        }
    }
}

/// Whether a watch starts with everything there is, so that nothing depends on what its client had before.
pub(super) fn begins_whole(query: &Query) -> bool {
    match query.first("sendInitialEvents") {
        Some(_) => query.flag("sendInitialEvents"),
        None => matches!(query.first("resourceVersion"), None | Some("" | "0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_begins_whole_unless_it_goes_on_from_a_version() {
        for (query, whole) in [
            ("", true),
            ("resourceVersion=", true),
            ("resourceVersion=0", true),
            ("resourceVersion=7", false),
            ("resourceVersion=7&sendInitialEvents=true", true),
            ("resourceVersion=7&sendInitialEvents", true),
            ("resourceVersion=0&sendInitialEvents=false", false),
        ] {
            assert_eq!(begins_whole(&Query::parse(query).unwrap()), whole, "{query}");
        }
    }
}
