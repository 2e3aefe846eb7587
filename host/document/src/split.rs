//! What splitting a list and splitting a watch stream share: the pending bytes, and what can be wrong.
//! Memory: the bytes since the last piece was cut, and the last chunk.

use crate::Error;
use bytes::{Buf, Bytes, BytesMut};

/// The smallest buffer: tiny chunks share one.
const BUFFER: usize = 4 << 10;

/// How much of a chunk is copied, at least, to what was left over of the chunks before.
const STEP: usize = 16 << 10;

/// Why a response body cannot be split. The rest of the body is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The body has not the expected form. Upstream is broken, or this is no list and no watch.
    #[error("malformed at byte {offset} of the body: {reason}")]
    Malformed {
        /// Position in the body.
        offset: u64,
        /// What was expected there.
        reason: &'static str,
    },
    /// The body ended early.
    #[error("the body ends early")]
    Truncated,
    /// The list has no `items`.
    #[error("the list has no items")]
    NoItems,
    /// A member of the list or of a watch event is there twice.
    #[error("{key} is repeated")]
    Repeated {
        /// The member.
        key: &'static str,
    },
    /// A watch event lacks a member.
    #[error("a watch event without {key}")]
    Missing {
        /// The member.
        key: &'static str,
    },
    /// One item or event, or what is before or after the items, is larger than allowed.
    #[error("one item is larger than {limit} bytes")]
    TooLarge {
        /// The limit of this splitter.
        limit: usize,
    },
    /// Something inside an item, an event or the list's metadata is wrong.
    #[error("a part that begins at byte {offset} of the body is malformed")]
    Part {
        /// Position of the part in the body.
        offset: u64,
        /// What is wrong; positions count in the part.
        #[source]
        source: Error,
    },
    /// A joiner was not given one outcome for each item of the batch: a mistake of the caller, and neither dropping nor
    /// keeping the rest would be right.
    #[error("{outcomes} outcomes for {items} items")]
    Outcomes {
        /// Items of the batch.
        items: usize,
        /// Outcomes given.
        outcomes: usize,
    },
}

/// Bytes that have come and are not part of a piece yet.
///
/// A chunk that comes when nothing is pending is not copied. What is left of it when the next one comes is copied
/// together with the next one's front, a step at a time until the piece is whole; from the first piece that ends in the
/// new chunk on, that chunk itself is what is pending.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// What was left over, and after it the first `copied` bytes of the chunk; empty if the chunk is all there is.
    joined: BytesMut,
    chunk: Bytes,
    copied: usize,
    /// Bytes of the body before what is pending.
    before: u64,
}

impl Pending {
    /// The next chunk. If something is left over, it is looked at from the next [`more`](Pending::more) on.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let left = self.chunk.len() - self.copied;
        if left > 0 {
            // With room for the first step.
            let length = self.joined.len() + left;
            self.copy(left, length.max(STEP).min(chunk.len()));
        }
        self.chunk = chunk;
        self.copied = 0;
    }

    /// Joins more of the chunk with what was left over; whether there was more.
    pub(crate) fn more(&mut self) -> bool {
        let left = self.chunk.len() - self.copied;
        if self.joined.is_empty() || left == 0 {
            return false;
        }
        self.copy(left.min(self.joined.len().max(STEP)), 0);
        true
    }

    /// Copies so many bytes of the chunk, and leaves room for others.
    fn copy(&mut self, count: usize, room: usize) {
        let length = self.joined.len();
        if self.joined.capacity() - length < count + room {
            // What is pending moves, at most the part of an item, and into twice its room: no byte moves often.
            let mut next = BytesMut::with_capacity((length + count + room).max(2 * length).max(BUFFER));
            next.extend_from_slice(&self.joined);
            self.joined = next;
        }
        let end = self.copied + count;
        self.joined.extend_from_slice(self.chunk.get(self.copied..end).unwrap_or_default());
        self.copied = end;
    }

    /// Cuts the first `length` bytes off as a piece.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        let length = length.min(self.bytes().len());
        self.before += length as u64;
        if self.joined.is_empty() {
            return self.chunk.split_to(length);
        }
        let piece = self.joined.split_to(length).freeze();
        let left = self.joined.len();
        // All that is left stands in the chunk, too: it goes on there, unless all of that is copied already.
        if left == 0 || left <= self.copied && self.copied < self.chunk.len() {
            self.chunk.advance(self.copied - left);
            self.joined.clear();
            self.copied = 0;
        }
        piece
    }

    /// What is pending and can be looked at.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.chunk } else { &self.joined }
    }

    pub(crate) fn malformed(&self, at: usize, reason: &'static str) -> SplitError {
        SplitError::Malformed { offset: self.offset(at), reason }
    }

    /// An error of a part that begins at `at`.
    pub(crate) fn part(&self, at: usize, source: Error) -> SplitError {
        SplitError::Part { offset: self.offset(at), source }
    }

    /// An error whose position counts in the pending bytes.
    pub(crate) fn placed(&self, error: Error) -> SplitError {
        match error {
            Error::Malformed { offset, reason } => self.malformed(offset, reason),
            other => self.part(0, other),
        }
    }

    /// The position in the body.
    pub(crate) fn offset(&self, at: usize) -> u64 {
        self.before + at as u64
    }
}
