//! Code shared by the splitters of lists and watch streams: the pending bytes and the errors. Memory: the bytes after
//! the last piece, and the last chunk.

use crate::Error;
use bytes::{Buf, Bytes, BytesMut};

/// The smallest buffer. Small chunks share one.
const BUFFER: usize = 4 << 10;

/// The minimum number of bytes to copy from a chunk at once.
const COPY_STEP: usize = 16 << 10;

/// The reason why a response body cannot be split. The rest of the body is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The body has an unexpected form. Either the API server is broken, or the body is not a list or watch stream.
    #[error("malformed at byte {offset} of the body: {reason}")]
    Malformed {
        /// The offset in the body.
        offset: u64,
        /// The expected syntax.
        reason: &'static str,
    },
    /// The body ends early.
    #[error("the body ends early")]
    Truncated,
    /// The list has no `items`.
    #[error("the list has no items")]
    NoItems,
    /// A member of the list or of a watch event is repeated.
    #[error("{key} is repeated")]
    Repeated {
        /// The member.
        key: &'static str,
    },
    /// A watch event lacks a member.
    #[error("the watch event has no {key}")]
    Missing {
        /// The member.
        key: &'static str,
    },
    /// An item or event, or the bytes before or after the items, exceed the limit.
    #[error("an item is larger than {limit} bytes")]
    TooLarge {
        /// The limit of this splitter.
        limit: usize,
    },
    /// A part of the body is malformed: an item, an event or the list's metadata.
    #[error("a part that begins at byte {offset} of the body is malformed")]
    Part {
        /// The offset of the part in the body.
        offset: u64,
        /// The reason. Its offsets count in the part.
        #[source]
        source: Error,
    },
    /// The number of outcomes differs from the number of items in the batch. This is a bug in the caller. Neither
    /// keeping nor dropping the other items would be correct.
    #[error("{outcomes} outcomes for {items} items")]
    Outcomes {
        /// The number of items in the batch.
        items: usize,
        /// The number of outcomes.
        outcomes: usize,
    },
}

/// The bytes that have arrived and are not part of a piece yet.
///
/// A chunk that arrives when nothing is pending is not copied. If a rest of it is pending when the next chunk arrives,
/// the rest and the front of the new chunk are copied together, one step at a time, until the piece is complete. From
/// the first piece that ends in the new chunk, the chunk itself is the pending buffer.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The pending rest, followed by the first `copied` bytes of the chunk. Empty if nothing was pending before the
    /// chunk.
    joined: BytesMut,
    chunk: Bytes,
    copied: usize,
    /// The number of bytes of the body before the pending ones.
    before: u64,
}

impl Pending {
    /// Adds the next chunk. If a rest is pending, the chunk becomes visible with the next call of
    /// [`more`](Pending::more).
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let left = self.chunk.len() - self.copied;
        if left > 0 {
            // Allocates space for the first step too.
            let length = self.joined.len() + left;
            self.copy(left, length.max(COPY_STEP).min(chunk.len()));
        }
        self.chunk = chunk;
        self.copied = 0;
    }

    /// Copies more of the chunk to the rest. Returns whether there was more.
    pub(crate) fn more(&mut self) -> bool {
        let left = self.chunk.len() - self.copied;
        if self.joined.is_empty() || left == 0 {
            return false;
        }
        self.copy(left.min(self.joined.len().max(COPY_STEP)), 0);
        true
    }

    /// Copies this number of bytes from the chunk, and reserves additional space.
    fn copy(&mut self, count: usize, room: usize) {
        let length = self.joined.len();
        if self.joined.capacity() - length < count + room {
            // Moves the pending bytes, at most a part of an item, to a buffer of twice their size. Bytes are therefore
            // moved rarely.
            let mut next = BytesMut::with_capacity((length + count + room).max(2 * length).max(BUFFER));
            next.extend_from_slice(&self.joined);
            self.joined = next;
        }
        let end = self.copied + count;
        self.joined.extend_from_slice(self.chunk.get(self.copied..end).unwrap_or_default());
        self.copied = end;
    }

    /// Removes the first `length` bytes and returns them as a piece.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        let length = length.min(self.bytes().len());
        self.before += length as u64;
        if self.joined.is_empty() {
            return self.chunk.split_to(length);
        }
        let piece = self.joined.split_to(length).freeze();
        let left = self.joined.len();
        // If everything that is left is also in the chunk, it continues there. The exception is a chunk that has been
        // copied completely.
        if left == 0 || left <= self.copied && self.copied < self.chunk.len() {
            self.chunk.advance(self.copied - left);
            self.joined.clear();
            self.copied = 0;
        }
        piece
    }

    /// Returns the pending bytes that are visible.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.chunk } else { &self.joined }
    }

    pub(crate) fn malformed(&self, at: usize, reason: &'static str) -> SplitError {
        SplitError::Malformed { offset: self.offset(at), reason }
    }

    /// Returns the error of a part that begins at `at`.
    pub(crate) fn part(&self, at: usize, source: Error) -> SplitError {
        SplitError::Part { offset: self.offset(at), source }
    }

    /// Converts an error whose offset counts in the pending bytes.
    pub(crate) fn placed(&self, error: Error) -> SplitError {
        match error {
            Error::Malformed { offset, reason } => self.malformed(offset, reason),
            other => self.part(0, other),
        }
    }

    /// Returns the offset in the body.
    pub(crate) fn offset(&self, at: usize) -> u64 {
        self.before + at as u64
    }
}
