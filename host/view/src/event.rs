//! One change of a view, as its watchers get it.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::machine::Selector;
use bytes::Bytes;
use weir_document::json::{self, EventType};
use weir_document::protobuf::{self, Envelope};
use weir_document::{Document, Error, TypeMeta};
use weir_kube::{Encoding, Transform};
use weir_store::cache::ObjectFormat;

use super::object::ViewObject;
use super::request_selector::RequestSelector;
use super::watch_memory::WatchMemory;
use weir_wire::object::partial;

/// One change of one object of a view, or of the view's version alone.
pub(crate) type ViewEvent = crate::machine::Event<ViewObject>;

/// What all watches that send an event share.
#[derive(Debug)]
pub struct EventMemo {
    /// The encoded events without a transform: ADDED, MODIFIED and DELETED, in JSON and in protobuf.
    encoded: [OnceLock<Bytes>; 6],
    /// Counts the bytes of `encoded`.
    frames: FrameBytes,
    /// Which states the selectors of watches match, by selector; 0 if that was not evaluated yet.
    selected: [AtomicU8; MAX_SELECTORS],
}

/// What a watch selects.
pub struct WatchSelector<'a> {
    /// The format of the objects.
    pub format: &'a ObjectFormat,
    /// The selector.
    pub selector: &'a RequestSelector,
    /// Its index among those whose verdicts events remember.
    pub index: Option<usize>,
}

/// The most selectors whose verdicts events remember. Watches with further selectors evaluate them for themselves.
pub(super) const MAX_SELECTORS: usize = 8;
/// The selectors were evaluated.
const EVALUATED: u8 = 1;
/// The old object matches.
const OLD: u8 = 2;
/// The new object matches.
const NEW: u8 = 4;

/// The bytes of all encoded events of a view that are in memory, those that slow clients still hold included, and of the
/// chunks that connections have yet to send.
#[derive(Debug, Clone)]
pub(super) struct FrameBytes(Arc<(AtomicUsize, WatchMemory)>);

impl FrameBytes {
    pub(super) fn new(memory: WatchMemory) -> Self {
        Self(Arc::new((AtomicUsize::new(0), memory)))
    }

    pub(super) fn get(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.0.fetch_add(bytes, Ordering::Relaxed);
        self.0.1.add(bytes);
    }

    fn sub(&self, bytes: usize) {
        self.0.0.fetch_sub(bytes, Ordering::Relaxed);
        self.0.1.sub(bytes);
    }

    /// Counts bytes until the connection has sent them.
    pub(super) fn count(&self, bytes: Bytes) -> Bytes {
        self.add(bytes.len());
        Bytes::from_owner(CountedBytes { bytes, frames: self.clone() })
    }
}

/// Bytes that count as long as they exist.
struct CountedBytes {
    bytes: Bytes,
    frames: FrameBytes,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.frames.sub(self.bytes.len());
    }
}

impl EventMemo {
    pub(super) fn new(frames: &FrameBytes) -> Self {
        let (encoded, selected) = Default::default();
        Self { encoded, frames: frames.clone(), selected }
    }

    /// The encoding for this watch, or that of another one. Only events without a transform are kept.
    fn encoded(
        &self,
        event_type: EventType,
        encoding: Encoding,
        encode: impl FnOnce() -> Result<Bytes, Error>,
    ) -> Result<Bytes, Error> {
        let index = match event_type {
            EventType::Added => 0,
            EventType::Modified => 1,
            _ => 2,
        };
        let Some(slot) = self.encoded.get(index + if encoding == Encoding::Json { 0 } else { 3 }) else {
            return encode();
        };
        if let Some(bytes) = slot.get() {
            return Ok(bytes.clone());
        }
        let bytes = encode()?;
        let kept = slot.get_or_init(|| {
            self.frames.add(bytes.len());
            bytes
        });
        Ok(kept.clone())
    }
}

impl Selector<ViewObject> for WatchSelector<'_> {
    fn matches(&self, object: &ViewObject) -> bool {
        self.selector.matches(self.format, &object.source)
    }

    fn of_event(&self, event: &ViewEvent) -> (bool, bool) {
        if self.selector.is_everything() {
            return (event.old.is_some(), event.new.is_some());
        }
        let slot = self.index.and_then(|index| event.memo.selected.get(index));
        if let Some(known) = slot.map(|slot| slot.load(Ordering::Relaxed)).filter(|known| known & EVALUATED != 0) {
            return (known & OLD != 0, known & NEW != 0);
        }
        let matches = |object: &Option<Arc<ViewObject>>| object.as_ref().is_some_and(|object| self.matches(object));
        let (old, new) = (matches(&event.old), matches(&event.new));
        if let Some(slot) = slot {
            let bits = EVALUATED | if old { OLD } else { 0 } | if new { NEW } else { 0 };
            slot.store(bits, Ordering::Relaxed);
        }
        (old, new)
    }
}

/// An event of a watch, before it is encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodedAs<'a> {
    /// Its type.
    pub event_type: EventType,
    /// The object that it carries.
    pub object: &'a ViewObject,
    /// The resourceVersion that it has there; `None`: its own.
    pub version: Option<u64>,
    /// The event of the view that it is made of.
    pub event: Option<&'a ViewEvent>,
}

/// Encodes an event for a client. A deletion carries the last state that clients saw; where they saw none, the object as it is.
///
/// # Errors
/// The object is malformed.
pub fn encode(
    of: EncodedAs<'_>,
    format: &ObjectFormat,
    encoding: Encoding,
    transform: Transform,
) -> Result<Bytes, Error> {
    let encode = || {
        let mut bytes = of.object.shown().unwrap_or(&of.object.source.bytes).clone();
        if let Some(version) = of.version {
            let mut document = format.document(bytes);
            document.set_resource_version(version)?;
            bytes = document.bytes().clone();
        }
        frame(of.event_type, format, bytes, encoding, transform)
    };
    match of.event.filter(|_| transform == Transform::None) {
        Some(event) => event.memo.encoded(of.event_type, encoding, encode),
        None => encode(),
    }
}

impl Drop for EventMemo {
    fn drop(&mut self) {
        let encoded: usize = self.encoded.iter().filter_map(OnceLock::get).map(Bytes::len).sum();
        self.frames.sub(encoded);
    }
}

/// Encodes an event of an object in a store's format.
pub fn frame(
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
