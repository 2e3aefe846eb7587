//! What splitting a list and splitting a watch stream share: the pending bytes, tokens that may end in a later chunk,
//! and what can be wrong. Memory: the bytes since the last piece was cut.

use super::scan::Skip;
use crate::Error;
use bytes::{Bytes, BytesMut};

/// The smallest buffer: tiny chunks share one.
const BUFFER: usize = 4 << 10;

/// Why a response body cannot be split. The rest of the body is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The body is not JSON of the expected form. Upstream is broken, or this is no list and no watch.
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
#[derive(Debug, Default)]
pub(crate) struct Pending {
    buffer: BytesMut,
    /// Bytes of the body before the buffer.
    before: u64,
}

impl Pending {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let length = self.buffer.len();
        if self.buffer.capacity() - length < chunk.len() {
            // What is pending moves, at most the part of an item, and into twice its room: no byte moves often.
            let room = (length + chunk.len()).max(2 * length).max(BUFFER);
            let mut next = BytesMut::with_capacity(room);
            next.extend_from_slice(&self.buffer);
            self.buffer = next;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// Cuts the first `length` bytes off as a piece.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        let length = length.min(self.buffer.len());
        self.before += length as u64;
        self.buffer.split_to(length).freeze()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn malformed(&self, at: usize, reason: &'static str) -> SplitError {
        SplitError::Malformed { offset: self.offset(at), reason }
    }

    /// An error of a part that begins at `at`.
    pub(crate) fn part(&self, at: usize, source: Error) -> SplitError {
        SplitError::Part { offset: self.offset(at), source }
    }

    /// An error whose position counts in the buffer.
    pub(crate) fn placed(&self, error: Error) -> SplitError {
        match error {
            Error::Malformed { offset, reason } => self.malformed(offset, reason),
            other => self.part(0, other),
        }
    }

    fn offset(&self, at: usize) -> u64 {
        self.before + at as u64
    }
}

/// A token that is being stepped over, resumably.
#[derive(Debug, Clone)]
pub(crate) enum Token {
    /// After the opening quote.
    Text {
        /// The next byte is escaped.
        escaped: bool,
    },
    Container(Skip),
    /// A number or literal.
    Scalar,
}

impl Token {
    /// The token that begins with this byte, and how many bytes of it need no scan.
    pub(crate) fn new(first: u8) -> (Token, usize) {
        match first {
            b'"' => (Token::Text { escaped: false }, 1),
            b'{' | b'[' => (Token::Container(Skip::new()), 0),
            _ => (Token::Scalar, 0),
        }
    }

    /// Scans on; the position after the token, or none if it goes on after the bytes.
    pub(crate) fn run(&mut self, bytes: &[u8], from: usize) -> Result<Option<usize>, Error> {
        match self {
            Token::Container(skip) => skip.run(bytes, from),
            Token::Text { escaped } => Ok(text_end(bytes, from, escaped)),
            Token::Scalar => {
                let rest = bytes.get(from..).unwrap_or_default();
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                Ok(rest.iter().position(ends).map(|length| from + length))
            }
        }
    }
}

fn text_end(bytes: &[u8], mut at: usize, escaped: &mut bool) -> Option<usize> {
    while at < bytes.len() {
        if std::mem::take(escaped) {
            at += 1;
            continue;
        }
        let found = at + memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        at = found + 1;
        if bytes.get(found) == Some(&b'"') {
            return Some(at);
        }
        *escaped = true;
    }
    None
}
