//! The grammar of paths, for the compiler and for the running program alike: which bytes of a text are a segment. No memory.

use std::borrow::Cow;
use std::mem;

use super::{Segment, StaticPath};

/// The maximum length of an expression in bytes.
pub(super) const MAX_TEXT: usize = 1024;
/// The maximum number of segments. It bounds the recursion of a walk.
const MAX_SEGMENTS: usize = 32;

pub(super) const TOO_LONG: &str = "longer than 1024 bytes";

/// The offset of the first invalid byte, and the expected syntax.
pub(super) type Failure = (usize, &'static str);

/// A segment as the text spells it.
#[derive(Clone, Copy)]
pub(super) enum Spelling<'a> {
    Name {
        /// The name without its quotes.
        name: &'a str,
        /// Its offset in the text.
        at: usize,
        /// Whether its characters do not all stand for themselves.
        has_escapes: bool,
    },
    Index(usize),
    Wildcard,
}

/// The part of a text that is not read yet.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The number of segments before it.
    count: usize,
    has_root: bool,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a str) -> Result<Self, Failure> {
        match text.as_bytes() {
            [] => Err((0, "empty path; use $ for the whole object")),
            [b'$', ..] => Ok(Self { text, at: 1, count: 0, has_root: true }),
            _ => Ok(Self { text, at: 0, count: 0, has_root: false }),
        }
    }

    /// Reads the next segment; none at the end of the text.
    pub(super) const fn next(&mut self) -> Result<Option<Spelling<'a>>, Failure> {
        let Some(next) = self.peek() else { return Ok(None) };
        if self.count == MAX_SEGMENTS {
            return Err((self.at, "more than 32 segments"));
        }
        let is_bare = !self.has_root && self.count == 0;
        self.count += 1;
        let segment = match next {
            b'[' => {
                self.at += 1;
                self.bracket()
            }
            b'.' if !is_bare => {
                self.at += 1;
                self.name()
            }
            _ if is_bare => self.name(),
            _ => return Err((self.at, "expected . or [")),
        };
        match segment {
            Ok(segment) => Ok(Some(segment)),
            Err(failure) => Err(failure),
        }
    }

    const fn name(&mut self) -> Result<Spelling<'a>, Failure> {
        let at = self.at;
        while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | 0x80..) = self.peek() {
            self.at += 1;
        }
        if self.at == at {
            return Err((at, "expected a name of letters, digits, - and _; quote others as ['…']"));
        }
        Ok(Spelling::Name { name: self.since(at), at, has_escapes: false })
    }

    const fn bracket(&mut self) -> Result<Spelling<'a>, Failure> {
        let segment = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Ok(Spelling::Wildcard)
            }
            Some(quote @ (b'\'' | b'"')) => {
                self.at += 1;
                self.quoted(quote)
            }
            Some(b'0'..=b'9') => self.index(),
            _ => Err((self.at, "expected an index, *, or a quoted name")),
        };
        match (segment, self.peek()) {
            (Ok(segment), Some(b']')) => {
                self.at += 1;
                Ok(segment)
            }
            (Ok(_), _) => Err((self.at, "expected ]")),
            (Err(failure), _) => Err(failure),
        }
    }

    const fn index(&mut self) -> Result<Spelling<'a>, Failure> {
        let (at, mut index) = (self.at, 0_u32);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if index == 0 && self.at > at {
                return Err((at, "an index must not have leading zeros"));
            }
            index = match index.checked_mul(10) {
                Some(tens) => match tens.checked_add((digit - b'0') as u32) {
                    Some(index) => index,
                    None => return Err((at, "the index is too large")),
                },
                None => return Err((at, "the index is too large")),
            };
            self.at += 1;
        }
        Ok(Spelling::Index(index as usize))
    }

    /// Reads a name to its closing quote, and the quote.
    const fn quoted(&mut self, quote: u8) -> Result<Spelling<'a>, Failure> {
        let (at, mut has_escapes) = (self.at, false);
        loop {
            let Some(next) = self.peek() else { return Err((at, "unterminated quoted name")) };
            if next == quote {
                let name = self.since(at);
                self.at += 1;
                return Ok(Spelling::Name { name, at, has_escapes });
            }
            if next < b' ' || next == 0x7f || (next == 0xc2 && matches!(self.peek_at(1), Some(0x80..=0x9f))) {
                return Err((self.at, "control character in a name"));
            }
            if next == b'\\' {
                has_escapes = true;
                if self.peek_at(1).is_none() {
                    return Err((self.at, "unterminated escape"));
                }
                self.at += 1;
            }
            self.at += 1;
        }
    }

    const fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    const fn peek_at(&self, offset: usize) -> Option<u8> {
        match self.text.as_bytes().split_at_checked(self.at + offset) {
            Some((_, [next, ..])) => Some(*next),
            _ => None,
        }
    }

    /// The text from `start` to here. INVARIANT: both are beside ASCII characters, or at the end of the text.
    const fn since(&self, start: usize) -> &'a str {
        self.text.split_at(self.at).0.split_at(start).1
    }
}

#[allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "called by the macro `path!` in constants only: the compiler reports a panic"
)]
impl StaticPath {
    /// Returns the number of segments.
    ///
    /// # Panics
    /// The text is not a path.
    pub const fn count(text: &'static str) -> usize {
        assert!(text.len() <= MAX_TEXT, "{}", TOO_LONG);
        let mut cursor = match Cursor::new(text) {
            Ok(cursor) => cursor,
            Err((_, reason)) => panic!("{}", reason),
        };
        loop {
            match cursor.next() {
                Ok(Some(Spelling::Name { has_escapes: true, .. })) => panic!("escapes are for `Path::parse`"),
                Ok(Some(_)) => {}
                Ok(None) => return cursor.count,
                Err((_, reason)) => panic!("{}", reason),
            }
        }
    }

    /// Returns the segments of a text of which [`count`](Self::count) has returned their number.
    pub const fn segments<const N: usize>(text: &'static str) -> [Segment; N] {
        let mut segments = [const { Segment::Wildcard }; N];
        if let Ok(mut cursor) = Cursor::new(text) {
            while let Ok(Some(spelling)) = cursor.next() {
                let segment = match spelling {
                    Spelling::Name { name, .. } => Segment::Name(Cow::Borrowed(name)),
                    Spelling::Index(index) => Segment::Index(index),
                    Spelling::Wildcard => Segment::Wildcard,
                };
                // A constant cannot drop, not even the element that needs no drop.
                mem::forget(mem::replace(&mut segments[cursor.count - 1], segment));
            }
        }
        segments
    }
}
