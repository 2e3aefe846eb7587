//! What is encoded and evaluated once for all watches that send an event.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use weir_document::Error;
use weir_document::json::EventType;
use weir_kube::Encoding;

use super::watch_memory::WatchMemory;

/// The most selectors whose verdicts events remember. Watches with further selectors evaluate them for themselves.
pub(super) const MAX_SELECTORS: usize = 8;
/// The selectors were evaluated.
const EVALUATED: u8 = 1;
/// The old object matches.
const OLD: u8 = 2;
/// The new object matches.
const NEW: u8 = 4;

/// What all watches that send an event share.
#[derive(Debug)]
pub(crate) struct EventMemo {
    /// The encoded events without a transform: ADDED, MODIFIED and DELETED, in JSON and in protobuf.
    encoded: [OnceLock<Bytes>; 6],
    /// Counts the bytes of `encoded`.
    frames: FrameBytes,
    /// Which states the selectors of watches match, by selector; 0 if that was not evaluated yet.
    selected: [AtomicU8; MAX_SELECTORS],
}

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
    pub(super) fn encoded(
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

    /// Whether the old and the new object match a selector; `None` if that was not evaluated yet.
    pub(super) fn verdict(&self, index: usize) -> Option<(bool, bool)> {
        let known = self.selected.get(index)?.load(Ordering::Relaxed);
        (known & EVALUATED != 0).then_some((known & OLD != 0, known & NEW != 0))
    }

    pub(super) fn note_verdict(&self, index: usize, (old, new): (bool, bool)) {
        if let Some(slot) = self.selected.get(index) {
            let bits = EVALUATED | if old { OLD } else { 0 } | if new { NEW } else { 0 };
            slot.store(bits, Ordering::Relaxed);
        }
    }
}

impl Drop for EventMemo {
    fn drop(&mut self) {
        let encoded: usize = self.encoded.iter().filter_map(OnceLock::get).map(Bytes::len).sum();
        self.frames.sub(encoded);
    }
}
