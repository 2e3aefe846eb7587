//! Watch streams: frames of a 4-byte big-endian length and a `meta.v1.WatchEvent` {1 type, 2 object {1 raw}}, whose raw
//! is an object in an envelope. Memory: one frame and one chunk. A frame larger than the limit is refused before its
//! bytes arrive.

use super::{
    decode,
    wire::{Record, WireType, put_bytes, put_varint, single, varint_length},
};
use crate::{
    Error,
    json::EventType,
    split::{Pending, SplitError},
};
use bytes::Bytes;
use std::ops::Range;

/// The default size limit of a frame.
const LIMIT: usize = 64 << 20;

/// The size of the length before a frame.
const HEAD: usize = 4;

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The original bytes of the frame, including the length.
    pub bytes: Bytes,
    /// The event's type.
    pub event: EventType,
    /// The span of the object, in an [`Envelope`](super::Envelope).
    pub object: Range<usize>,
}

impl Frame {
    /// Returns the object's bytes with their envelope.
    pub fn object_bytes(&self) -> Bytes {
        let end = self.object.end.min(self.bytes.len());
        self.bytes.slice(self.object.start.min(end)..end)
    }
}

/// Splits a watch stream. [`push`](FrameSplitter::push) each chunk, then call [`next`](FrameSplitter::next) until it
/// returns none. At the end, call [`finish`](FrameSplitter::finish) and drain it once more. It is unusable after an
/// error.
#[derive(Debug)]
pub struct FrameSplitter {
    pending: Pending,
    limit: usize,
    ended: bool,
}

impl Default for FrameSplitter {
    fn default() -> Self {
        FrameSplitter::new()
    }
}

impl FrameSplitter {
    /// Creates a splitter for frames of up to 64 MiB.
    pub fn new() -> Self {
        FrameSplitter::with_limit(LIMIT)
    }

    /// Creates a splitter that refuses frames larger than this limit.
    pub fn with_limit(limit: usize) -> Self {
        FrameSplitter { pending: Pending::default(), limit, ended: false }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        self.pending.push(chunk.into());
    }

    /// Marks the end of the stream. A partial frame becomes an error.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// Returns the next frame, or none if it needs more bytes.
    #[expect(
        clippy::should_implement_trait,
        reason = "not an iterator: none can mean that more bytes are needed, and next can fail"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, SplitError> {
        loop {
            if let Some(frame) = self.whole()? {
                return Ok(Some(frame));
            }
            if !self.pending.more() {
                break;
            }
        }
        if self.ended && !self.pending.bytes().is_empty() { Err(SplitError::Truncated) } else { Ok(None) }
    }

    /// Returns the next frame if all of it is visible.
    fn whole(&mut self) -> Result<Option<Frame>, SplitError> {
        let bytes = self.pending.bytes();
        let Some(head) = bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > self.limit {
            return Err(SplitError::TooLarge { limit: self.limit });
        }
        let whole = HEAD + length;
        let Some(frame) = bytes.get(..whole) else {
            return Ok(None);
        };
        let (event, object) = event_parts(frame).map_err(|error| self.pending.placed(error))?;
        let Some(event) = event else {
            return Err(self.pending.malformed(HEAD, "an unknown type of event"));
        };
        let Some(object) = object else {
            return Err(SplitError::Missing { key: "object" });
        };
        Ok(Some(Frame { bytes: self.pending.take(whole), event, object: object.value }))
    }
}

fn event_parts(frame: &[u8]) -> Result<(Option<EventType>, Option<Record>), Error> {
    let at = HEAD..frame.len();
    let event = match single(frame, at.clone(), 1, WireType::Bytes, "type")? {
        Some(record) => EventType::parse(decode::utf8(frame, record.value)?),
        None => None,
    };
    let object = match single(frame, at, 2, WireType::Bytes, "object")? {
        Some(record) => single(frame, record.value, 1, WireType::Bytes, "raw")?,
        None => None,
    };
    Ok((event, object))
}

/// Encodes a watch event as a frame. The object has an envelope. Refuses a frame whose length exceeds 32 bits.
pub fn event(event: EventType, object: &[u8]) -> Result<Bytes, Error> {
    let inner = 1 + varint_length(object.len() as u64) + object.len();
    let mut frame = Vec::with_capacity(inner + 40);
    frame.extend_from_slice(&[0; HEAD]);
    put_bytes(1, event.as_str().as_bytes(), &mut frame);
    put_varint(2 << 3 | 2, &mut frame);
    put_varint(inner as u64, &mut frame);
    put_bytes(1, object, &mut frame);
    let length = u32::try_from(frame.len() - HEAD).map_err(|_| Error::TooLarge { limit: u32::MAX as usize })?;
    if let Some(head) = frame.first_chunk_mut::<HEAD>() {
        *head = length.to_be_bytes();
    }
    Ok(frame.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_however_the_stream_is_cut() {
        let objects: [&[u8]; 3] = [b"", b"one", &[3; 400]];
        let stream: Vec<u8> =
            objects.iter().flat_map(|object| event(EventType::Modified, object).unwrap().to_vec()).collect();
        for size in [1, 2, 3, 7, 100, 1000] {
            let mut splitter = FrameSplitter::new();
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                splitter.push(Bytes::copy_from_slice(chunk));
                while let Some(frame) = splitter.next().unwrap() {
                    assert_eq!(frame.event, EventType::Modified);
                    found.push(frame);
                }
            }
            splitter.finish();
            assert_eq!(splitter.next().unwrap(), None);
            assert!(found.iter().map(Frame::object_bytes).eq(objects));
            assert_eq!(found.iter().flat_map(|frame| frame.bytes.to_vec()).collect::<Vec<_>>(), stream);
        }
    }

    #[test]
    fn a_partial_frame_is_pending_and_an_error_at_the_end() {
        let whole = event(EventType::Added, b"x").unwrap();
        for end in 1..whole.len() {
            let mut splitter = FrameSplitter::new();
            splitter.push(whole.slice(..end));
            assert_eq!(splitter.next(), Ok(None));
            splitter.finish();
            assert_eq!(splitter.next(), Err(SplitError::Truncated));
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_arrive() {
        let mut splitter = FrameSplitter::with_limit(1000);
        splitter.push(vec![0xff; 4]);
        assert_eq!(splitter.next(), Err(SplitError::TooLarge { limit: 1000 }));
    }

    #[test]
    fn frames_without_type_or_object_are_errors() {
        for frame in [&[0, 0, 0, 0][..], &[0, 0, 0, 2, 0x0a, 0], &[0, 0, 0, 1, 0x0a], &[0, 0, 0, 3, 0x0a, 1, b'X']] {
            let mut splitter = FrameSplitter::new();
            splitter.push(Bytes::copy_from_slice(frame));
            assert!(splitter.next().is_err(), "{frame:?}");
        }
    }
}
