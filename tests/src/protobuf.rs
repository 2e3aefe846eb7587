//! Decodes protobuf responses to JSON.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_document::list::{self, Piece};
use weir_document::protobuf::{Envelope, FrameSplitter, ListSplitter};
use weir_document::{Document, SplitError, TypeMeta};

use crate::client::{Events, PATIENCE};

/// The media type.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The `Accept` header that client-go sends for built-in kinds.
pub const CLIENT_GO: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The events of a protobuf watch.
#[derive(Debug)]
pub struct Frames {
    body: Events,
    splitter: FrameSplitter,
}

/// Decodes an object or a list to JSON. Items carry their kind and apiVersion.
#[must_use]
pub fn read(body: &Bytes) -> Value {
    let envelope = Envelope::open(body.clone()).expect("a protobuf body");
    if envelope.type_meta().kind.ends_with("List") {
        return list_of(body);
    }
    decoded(envelope.type_meta().clone(), envelope.object())
}

/// The encoded items of a list.
#[must_use]
pub fn items(body: &Bytes) -> Vec<Bytes> {
    split(body).1
}

fn split(body: &Bytes) -> (ListSplitter, Vec<Bytes>) {
    let mut items = Vec::new();
    let splitter = list::split(ListSplitter::new(), [body.clone()], |piece| {
        if let Piece::Batch(batch) = piece {
            items.extend((0..batch.items.len()).map(|index| batch.item(index).unwrap()));
        }
        Ok::<_, SplitError>(())
    });
    (splitter.expect("a protobuf list"), items)
}

fn list_of(body: &Bytes) -> Value {
    let (splitter, items) = split(body);
    let item_type = splitter.item_type().unwrap();
    let meta = splitter.meta();
    json!({
        "kind": meta.kind, "apiVersion": meta.api_version,
        "metadata": {"resourceVersion": meta.resource_version, "continue": meta.continue_token},
        "items": items.into_iter().map(|item| decoded(item_type.clone(), item)).collect::<Vec<_>>(),
    })
}

fn decoded(type_meta: TypeMeta, object: Bytes) -> Value {
    let document = Document::protobuf(object, Arc::new(type_meta)).expect("a kind of the schema");
    serde_json::from_str(&document.to_json().unwrap()).unwrap()
}

impl Frames {
    /// The events of a response.
    #[must_use]
    pub fn of(body: Events) -> Self {
        Self { body, splitter: FrameSplitter::new() }
    }

    /// The next event as JSON; `None` at a clean end.
    pub async fn next(&mut self) -> Option<Value> {
        self.try_next().await.expect("an event in time, and no end within one")
    }

    /// The next event as JSON; `None` at a clean end.
    ///
    /// # Errors
    /// If the stream ends early, or no event arrives in time.
    pub async fn try_next(&mut self) -> Result<Option<Value>, String> {
        let next = async {
            loop {
                if let Some(frame) = self.splitter.next().unwrap() {
                    return Ok(Some(json!({"type": frame.event.as_str(), "object": read(&frame.object_bytes())})));
                }
                match self.body.try_piece().await? {
                    Some(bytes) => self.splitter.push(bytes),
                    None => return Ok(None),
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.map_err(|_| "no event in time".to_owned())?
    }

    /// The next event that is not a bookmark, as `TYPE name`; an ERROR as `ERROR code`.
    pub async fn next_named(&mut self) -> String {
        loop {
            let event = self.next().await.expect("the watch goes on");
            match event["type"].as_str().unwrap() {
                "BOOKMARK" => {}
                "ERROR" => return format!("ERROR {}", event["object"]["code"]),
                kind => return format!("{kind} {}", event["object"]["metadata"]["name"].as_str().unwrap()),
            }
        }
    }
}
