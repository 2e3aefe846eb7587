//! One watch of a feed: from a version on, until it ends. What has arrived together is published together.
//! Memory: one event and one chunk.

use std::time::Duration;

use http::StatusCode;
use weir_document::json::{EventType, Frame, FrameSplitter};

use super::discover::Served;
use super::list::{accept, selectors};
use super::object::{hold, key_of, version_of};
use super::request::{Asker, Chunks, Failure};
use super::store::Delta;
use weir_kube::Lookup;
use weir_upstream::spread;

/// An event as large as etcd takes, ten times over.
const MAX_EVENT: usize = 16 << 20;

/// What a watch tells its feed.
pub(super) trait Sink {
    /// The server has accepted the watch.
    fn begun(&mut self);
    /// These happened, in this order.
    fn apply(&mut self, deltas: Vec<Delta>);
}

/// Watches until the server or the time ends it (`Ok`), or it fails. `version` moves with what arrives, so that the next
/// watch continues there. Cancel-safe: what was published stays, what was not comes again.
pub(super) async fn watch(
    asker: &Asker,
    lookup: &Lookup,
    served: &Served,
    version: &mut String,
    time: Duration,
    sink: &mut (dyn Sink + Send),
) -> Result<(), Failure> {
    let time = spread(time).max(Duration::from_secs(1));
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}{}",
        served.path,
        time.as_secs(),
        selectors(lookup)
    );
    // The server ends the watch; if the connection has died, we do, somewhat later.
    let end = tokio::time::sleep(time + asker.patience);
    tokio::pin!(end);
    // Events come one by one and would be compressed one by one.
    let answer = asker.get(&path, accept(lookup, false), false).await?;
    let mut chunks = Chunks::of(asker, answer)?;
    sink.begun();
    let mut splitter = FrameSplitter::with_limit(MAX_EVENT);
    loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            () = &mut end => return Ok(()),
        };
        match chunk {
            Ok(Some(chunk)) => splitter.push(chunk),
            // Half an event is lost with its connection and comes again.
            Ok(None) | Err(_) => return Ok(()),
        }
        let mut deltas = Vec::new();
        let result = events(asker, lookup, &mut splitter, version, &mut deltas);
        if !deltas.is_empty() {
            sink.apply(deltas);
        }
        result?;
    }
}

/// Takes the events that are complete.
fn events(
    asker: &Asker,
    lookup: &Lookup,
    splitter: &mut FrameSplitter,
    version: &mut String,
    deltas: &mut Vec<Delta>,
) -> Result<(), Failure> {
    while let Some(frame) = splitter.next().map_err(|error| asker.malformed(error))? {
        let object = frame.object_bytes();
        match frame.event {
            EventType::Added | EventType::Modified => {
                let (key, held) = hold(&object, None, lookup.metadata_only).map_err(|error| asker.malformed(error))?;
                deltas.push(Delta::Put(key, held));
            }
            EventType::Deleted => {
                deltas.push(Delta::Remove(key_of(&object).map_err(|error| asker.malformed(error))?));
            }
            EventType::Bookmark => {}
            EventType::Error => return Err(error_event(asker, &frame)),
        }
        match version_of(&object) {
            Some(new) if !new.is_empty() => *version = new,
            _ => return Err(asker.malformed("a watch event whose object has no resourceVersion")),
        }
    }
    Ok(())
}

/// What an ERROR event means: its object is a Status.
fn error_event(asker: &Asker, frame: &Frame) -> Failure {
    #[derive(serde::Deserialize)]
    struct Status {
        code: Option<u16>,
    }
    let object = frame.object_bytes();
    let code = serde_json::from_slice::<Status>(&object).ok().and_then(|status| status.code);
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    asker.refusal(code, &object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FeedError;
    use crate::tests::client;

    /// What a watch that starts at version 1 makes of a stream: the steps, where it would resume, how it ended.
    fn read(stream: &str) -> (Vec<Delta>, String, Result<(), Failure>) {
        let lookup = Lookup::all("services".parse().unwrap());
        let asker = Asker {
            client: client("http://127.0.0.1:1"),
            resource: lookup.resource.clone(),
            patience: Duration::from_secs(1),
        };
        let (mut deltas, mut version) = (Vec::new(), "1".to_owned());
        let mut splitter = FrameSplitter::with_limit(MAX_EVENT);
        splitter.push(stream.to_owned());
        let result = events(&asker, &lookup, &mut splitter, &mut version, &mut deltas);
        (deltas, version, result)
    }

    fn event(kind: &str, version: u32) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"a","resourceVersion":"{version}"}}}}}}"#
        )
    }

    #[tokio::test]
    async fn every_event_and_bookmark_moves_the_point_of_resumption() {
        let (deltas, version, result) = read(&(event("ADDED", 5) + "\n" + &event("DELETED", 6) + "\n"));
        assert!(result.is_ok() && matches!(deltas.as_slice(), [Delta::Put(..), Delta::Remove(_)]));
        assert_eq!(version, "6");
        let bookmark =
            r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#;
        let (deltas, version, result) = read(bookmark);
        assert!(result.is_ok() && deltas.is_empty());
        assert_eq!(version, "9");
    }

    #[tokio::test]
    async fn an_error_event_means_what_its_code_means_and_what_came_before_it_counts() {
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let (deltas, version, result) = read(&(event("MODIFIED", 5) + error));
        assert!(matches!(result, Err(Failure::Expired)) && deltas.len() == 1);
        assert_eq!(version, "5");
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
        assert!(matches!(read(error).2, Err(Failure::Other(FeedError::Unreachable { .. }))));
    }

    #[tokio::test]
    async fn events_that_make_no_sense_end_the_watch() {
        for garbage in [
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{}}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#"{"type":"ODD","object":{"metadata":{"name":"a"}}}"#,
            "]",
        ] {
            let (_, version, result) = read(garbage);
            assert!(matches!(result, Err(Failure::Other(FeedError::Malformed { .. }))), "{garbage}");
            assert_eq!(version, "1");
        }
    }
}
