//! One change of a view, as its watchers get it.

use std::sync::Arc;

use crate::machine::Selector;
use bytes::Bytes;
use weir_document::json::{self, EventType};
use weir_document::protobuf::{self, Envelope};
use weir_document::{Document, Error, Path, TypeMeta, Value, path};
use weir_kube::{Encoding, Transform};
use weir_store::cache::ObjectFormat;

use super::object::ViewObject;
use super::request_selector::RequestSelector;
use weir_wire::partial;

static RESOURCE_VERSION: Path = path!("metadata.resourceVersion");

/// One change of one object of a view, or of the view's version alone.
pub(crate) type ViewEvent = crate::machine::Event<ViewObject>;

/// What a watch selects.
pub(crate) struct WatchSelector<'a> {
    /// The format of the objects.
    pub(crate) format: &'a ObjectFormat,
    /// The selector.
    pub(crate) selector: &'a RequestSelector,
    /// Its index among those whose verdicts events remember.
    pub(crate) index: Option<usize>,
}

impl Selector<ViewObject> for WatchSelector<'_> {
    fn matches(&self, object: &ViewObject) -> bool {
        self.selector.matches(self.format, &object.source)
    }

    fn of_event(&self, event: &ViewEvent) -> (bool, bool) {
        if self.selector.is_everything() {
            return (event.old.is_some(), event.new.is_some());
        }
        if let Some(known) = self.index.and_then(|index| event.memo.verdict(index)) {
            return known;
        }
        let matches = |object: &Option<Arc<ViewObject>>| object.as_ref().is_some_and(|object| self.matches(object));
        let (old, new) = (matches(&event.old), matches(&event.new));
        if let Some(index) = self.index {
            event.memo.note_verdict(index, (old, new));
        }
        (old, new)
    }
}

/// An event of a watch, before it is encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedAs<'a> {
    /// Its type.
    pub(crate) event_type: EventType,
    /// The object that it carries.
    pub(crate) object: &'a ViewObject,
    /// The resourceVersion that it has there; `None`: its own.
    pub(crate) version: Option<u64>,
    /// The event of the view that it is made of.
    pub(crate) event: Option<&'a ViewEvent>,
}

impl EncodedAs<'_> {
    /// Whether all watches that send it in an encoding send the same bytes. Two may get the deletion of one event with two states, by
    /// their selectors.
    pub(crate) fn is_shared(&self, transform: Transform) -> bool {
        let old = self.event.and_then(|event| event.old.as_deref());
        let is_of_event =
            self.event_type != EventType::Deleted || old.is_some_and(|old| std::ptr::eq(old, self.object));
        self.event.is_some() && transform == Transform::None && is_of_event
    }
}

/// Encodes an event for a client. A deletion carries the last state that clients saw; where they saw none, the object as it is.
///
/// # Errors
/// The object is malformed.
pub(crate) fn encode(
    of: EncodedAs<'_>,
    format: &ObjectFormat,
    encoding: Encoding,
    transform: Transform,
) -> Result<Bytes, Error> {
    let encode = || {
        let mut bytes = of.object.shown().unwrap_or(&of.object.source.bytes).clone();
        if let Some(version) = of.version {
            let mut document = format.document(bytes);
            document.set(&RESOURCE_VERSION, &Value::Text(version.to_string()))?;
            bytes = document.bytes().clone();
        }
        frame(of.event_type, format, bytes, encoding, transform)
    };
    match of.event.filter(|_| of.is_shared(transform)) {
        Some(event) => event.memo.encoded(of.event_type, encoding, encode),
        None => encode(),
    }
}

/// Encodes an event of an object in a store's format.
fn frame(
    event_type: EventType,
    format: &ObjectFormat,
    bytes: Bytes,
    encoding: Encoding,
    transform: Transform,
) -> Result<Bytes, Error> {
    let (object, type_meta) = converted(format, bytes, encoding, transform)?;
    match encoding {
        Encoding::Json => Ok(json::event(event_type, &object)),
        Encoding::Protobuf => protobuf::event(event_type, &Envelope::seal(&type_meta, &object)),
    }
}

/// Converts an object of a store to an item of a list. As in lists of the API server, a JSON item names its type only if it
/// is a custom resource or reduced to its metadata.
pub fn list_item(
    format: &ObjectFormat,
    bytes: Bytes,
    encoding: Encoding,
    transform: Transform,
) -> Result<Bytes, Error> {
    match (encoding, transform) {
        (Encoding::Json, Transform::None | Transform::Table(..)) => format.document(bytes).to_json_item(),
        _ => converted(format, bytes, encoding, transform).map(|(bytes, _)| bytes),
    }
}

/// Converts an object of a store to the encoding and the transform of a client. A protobuf message has no envelope; its
/// type is returned beside it. A Table is answered as the whole object.
pub fn converted(
    format: &ObjectFormat,
    bytes: Bytes,
    encoding: Encoding,
    transform: Transform,
) -> Result<(Bytes, Arc<TypeMeta>), Error> {
    let bytes = match (format.encoding, encoding) {
        (Encoding::Protobuf, Encoding::Protobuf) => bytes,
        _ => format.document(bytes).to_json()?.into(),
    };
    let Transform::Metadata(version) = transform else { return Ok((bytes, format.type_meta.clone())) };
    let type_meta = partial(version);
    let document = match encoding {
        Encoding::Json => Document::json(bytes),
        Encoding::Protobuf => format.document(bytes),
    };
    Ok((document.only_metadata(&type_meta)?, Arc::new(type_meta)))
}

#[cfg(test)]
mod tests;
