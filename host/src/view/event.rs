//! One change of a view, as its watchers get it.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use weir_document::json::{self, EventType};
use weir_document::protobuf::{self, Envelope};
use weir_document::{Document, Error, TypeMeta};
use weir_kube::{Encoding, Transform};
use weir_store::StoreKey;
use weir_store::cache::ObjectFormat;

use super::object::{ViewObject, ViewOutcome};
use super::request_selector::RequestSelector;
use super::watch_memory::WatchMemory;
use crate::codec::object::partial;

/// Why a view changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An event of the API server.
    Upstream,
    /// The chain's outcome changed without an event. Clients that continue at or before this version may lack it.
    Refiltered {
        /// The highest version that any client had got of the resource.
        stamp: u64,
    },
}

/// One change of one object of a view, or of the view's version alone.
#[derive(Debug)]
pub(crate) struct ViewEvent {
    /// The version that the view had reached before.
    pub(crate) previous: u64,
    /// The version that the view has reached with this event.
    pub(crate) version: u64,
    /// Why.
    pub(crate) cause: Cause,
    /// The object before; `None` if it did not exist.
    pub(crate) old: Option<Arc<ViewObject>>,
    /// The object after; `None` if it does not exist.
    pub(crate) new: Option<Arc<ViewObject>>,
    /// The encoded events without a transform: ADDED, MODIFIED and DELETED, in JSON and in protobuf.
    encoded: [OnceLock<Bytes>; 6],
    /// Counts the bytes of `encoded`.
    frames: FrameBytes,
    /// Which states the selectors of watches match, by selector; 0 if that was not evaluated yet.
    selected: [AtomicU8; MAX_SELECTORS],
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

impl ViewEvent {
    pub(super) fn new(
        previous: u64,
        version: u64,
        cause: Cause,
        old: Option<Arc<ViewObject>>,
        new: Option<Arc<ViewObject>>,
        frames: &FrameBytes,
    ) -> Self {
        let (encoded, selected) = Default::default();
        let frames = frames.clone();
        Self { previous, version, cause, old, new, encoded, frames, selected }
    }

    /// Which of the old and the new object a selector matches. `index` is that of the watch's selector.
    pub(crate) fn selected(
        &self,
        format: &ObjectFormat,
        selector: &RequestSelector,
        index: Option<usize>,
    ) -> (bool, bool) {
        if selector.is_everything() {
            return (true, true);
        }
        let slot = index.and_then(|index| self.selected.get(index));
        if let Some(known) = slot.map(|slot| slot.load(Ordering::Relaxed)).filter(|known| known & EVALUATED != 0) {
            return (known & OLD != 0, known & NEW != 0);
        }
        let matches = |object: &Option<Arc<ViewObject>>| {
            object.as_ref().is_some_and(|object| selector.matches(format, &object.source))
        };
        let (old, new) = (matches(&self.old), matches(&self.new));
        if let Some(slot) = slot {
            let bits = EVALUATED | if old { OLD } else { 0 } | if new { NEW } else { 0 };
            slot.store(bits, Ordering::Relaxed);
        }
        (old, new)
    }

    /// The key of the changed object; `None` if only the version moved.
    pub(crate) fn key(&self) -> Option<&StoreKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| &object.source.key)
    }

    /// Whether the object has another outcome at the resourceVersion that clients hold.
    pub(crate) fn keeps_version(&self) -> bool {
        let version = |object: &Option<Arc<ViewObject>>| object.as_ref().map(|object| object.source.version);
        self.cause != Cause::Upstream && version(&self.old) == version(&self.new)
    }

    /// The bytes that the event alone keeps alive: those of the object before. The object after is the store's present one,
    /// or the one before of a later event. Encoded forms are counted when they are made.
    pub(super) fn len(&self) -> usize {
        let edited = |object: &ViewObject| match &object.outcome {
            ViewOutcome::Edited(bytes) => bytes.len(),
            _ => 0,
        };
        self.old.as_ref().map_or(0, |old| old.source.bytes.len() + edited(old)) + size_of::<Self>() + 64
    }

    /// Encodes the event for a client.
    ///
    /// A DELETED event carries the last state that clients saw, at the version of the event that caused it. If they saw none,
    /// it carries the new state: what a client holds that gets it is not known.
    ///
    /// # Errors
    /// The object is malformed.
    pub(crate) fn encode(
        &self,
        event_type: EventType,
        format: &ObjectFormat,
        encoding: Encoding,
        transform: Transform,
    ) -> Result<Bytes, Error> {
        let encode = || {
            let bytes = match event_type {
                EventType::Deleted => self.deleted(format)?,
                _ => self.new.as_ref().and_then(|object| object.shown()).cloned().unwrap_or_default(),
            };
            frame(event_type, format, bytes, encoding, transform)
        };
        let index = match event_type {
            EventType::Added => 0,
            EventType::Modified => 1,
            _ => 2,
        };
        let slot = self.encoded.get(index + if encoding == Encoding::Json { 0 } else { 3 });
        match slot.filter(|_| transform == Transform::None) {
            Some(slot) => match slot.get() {
                Some(bytes) => Ok(bytes.clone()),
                None => encode().map(|bytes| {
                    slot.get_or_init(|| {
                        self.frames.add(bytes.len());
                        bytes
                    })
                    .clone()
                }),
            },
            None => encode().map(|bytes| self.frames.count(bytes)),
        }
    }

    fn deleted(&self, format: &ObjectFormat) -> Result<Bytes, Error> {
        let shown = [&self.old, &self.new].into_iter().flatten().find_map(|object| object.shown()).cloned();
        let shown = shown.unwrap_or_default();
        if self.cause != Cause::Upstream {
            return Ok(shown);
        }
        let mut document = format.document(shown);
        document.set_resource_version(self.version)?;
        Ok(document.bytes().clone())
    }
}

impl Drop for ViewEvent {
    fn drop(&mut self) {
        let encoded: usize = self.encoded.iter().filter_map(OnceLock::get).map(Bytes::len).sum();
        self.frames.sub(encoded);
    }
}

/// Encodes an event of an object in a store's format.
pub(crate) fn frame(
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
pub(crate) fn list_item(
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
pub(crate) fn converted(
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
