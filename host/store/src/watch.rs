//! Watches one resource from a resourceVersion until the watch ends.
//!
//! Events that arrive in one chunk are applied together. Memory: one event and one chunk.

use std::time::Duration;

use weir_document::json::{EventType, FrameSplitter};

use super::discovery::ServedResource;
use super::indexed_objects::Delta;
use super::list::{accept, selectors};
use super::resource_client::{RequestError, ResourceClient, ResponseChunks};
use super::stored_object::{key_of, read_object, version_of};
use weir_kube::LookupSpec;
use weir_upstream::jitter;

/// The largest event that is accepted: ten times the default object limit of etcd.
const MAX_EVENT: usize = 16 << 20;

/// Receives the progress of a watch.
pub(super) trait WatchHandler {
    /// The API server has accepted the watch.
    fn started(&mut self);
    /// Applies these deltas in this order.
    fn apply(&mut self, deltas: Vec<Delta>);
}

/// Watches until the server or the timeout ends the watch (`Ok`), or it fails.
///
/// `version` follows the resourceVersion of events and bookmarks, so that the next watch continues there. Cancel-safe: the
/// next watch delivers the events again that were not applied.
pub(super) async fn watch(
    client: &ResourceClient,
    lookup: &LookupSpec,
    served: &ServedResource,
    version: &mut String,
    timeout: Duration,
    handler: &mut (dyn WatchHandler + Send),
) -> Result<(), RequestError> {
    let timeout = jitter(timeout).max(Duration::from_secs(1));
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}{}",
        served.path,
        timeout.as_secs(),
        selectors(lookup)
    );
    // The server ends the watch in time. This deadline ends it later, in case the connection is dead.
    let end = tokio::time::sleep(timeout + client.response_timeout);
    tokio::pin!(end);
    // No gzip: the server would compress each event on its own.
    let response = client.get(&path, accept(lookup, false), false).await?;
    let mut chunks = ResponseChunks::new(client, response)?;
    handler.started();
    let mut splitter = FrameSplitter::with_limit(MAX_EVENT);
    loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            () = &mut end => return Ok(()),
        };
        match chunk {
            Ok(Some(chunk)) => splitter.push(chunk),
            // The next watch delivers an incomplete event again.
            Ok(None) | Err(_) => return Ok(()),
        }
        let mut deltas = Vec::new();
        let result = events(client, lookup, &mut splitter, version, &mut deltas);
        if !deltas.is_empty() {
            handler.apply(deltas);
        }
        result?;
    }
}

/// Turns complete events into deltas.
fn events(
    client: &ResourceClient,
    lookup: &LookupSpec,
    splitter: &mut FrameSplitter,
    version: &mut String,
    deltas: &mut Vec<Delta>,
) -> Result<(), RequestError> {
    while let Some(frame) = splitter.next().map_err(|error| client.invalid_response(error))? {
        let object = frame.object_bytes();
        match frame.event {
            EventType::Added | EventType::Modified => {
                let (key, stored) =
                    read_object(&object, None, lookup.metadata_only).map_err(|error| client.invalid_response(error))?;
                deltas.push(Delta::Put(key, stored));
            }
            EventType::Deleted => {
                deltas.push(Delta::Remove(key_of(&object).map_err(|error| client.invalid_response(error))?));
            }
            EventType::Bookmark => {}
            EventType::Error => return Err(client.error_event(&object)),
        }
        match version_of(&object) {
            Some(new) if !new.is_empty() => *version = new,
            _ => return Err(client.invalid_response("the object of a watch event has no resourceVersion")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReflectorError;
    use crate::tests::client;

    /// Reads a stream that starts at version 1. Returns the deltas, the version to resume from, and the result.
    fn read(stream: &str) -> (Vec<Delta>, String, Result<(), RequestError>) {
        let lookup = LookupSpec::all("services".parse().unwrap());
        let client = ResourceClient {
            client: client("http://127.0.0.1:1"),
            resource: lookup.resource.clone(),
            response_timeout: Duration::from_secs(1),
        };
        let (mut deltas, mut version) = (Vec::new(), "1".to_owned());
        let mut splitter = FrameSplitter::with_limit(MAX_EVENT);
        splitter.push(stream.to_owned());
        let result = events(&client, &lookup, &mut splitter, &mut version, &mut deltas);
        (deltas, version, result)
    }

    fn event(kind: &str, version: u32) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"a","resourceVersion":"{version}"}}}}}}"#
        )
    }

    #[tokio::test]
    async fn every_event_and_bookmark_advances_the_version_to_resume_from() {
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
    async fn an_error_event_is_classified_by_its_code_and_earlier_events_are_applied() {
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let (deltas, version, result) = read(&(event("MODIFIED", 5) + error));
        assert!(matches!(result, Err(RequestError::Expired)) && deltas.len() == 1);
        assert_eq!(version, "5");
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
        assert!(matches!(read(error).2, Err(RequestError::Other(ReflectorError::Unavailable { .. }))));
    }

    #[tokio::test]
    async fn an_invalid_event_ends_the_watch() {
        for garbage in [
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{}}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#"{"type":"ODD","object":{"metadata":{"name":"a"}}}"#,
            "]",
        ] {
            let (_, version, result) = read(garbage);
            assert!(matches!(result, Err(RequestError::Other(ReflectorError::InvalidResponse { .. }))), "{garbage}");
            assert_eq!(version, "1");
        }
    }
}
