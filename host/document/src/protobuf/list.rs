//! Splits a protobuf list, `{1 metadata, 2 repeated items}` in its envelope, into its items while it arrives.
//!
//! Only the records of the envelope and of the list are parsed, with the content of typeMeta and metadata. Memory: one
//! batch and one item. A record larger than the limit is refused before its bytes arrive. An error has the same
//! position for all chunk boundaries.

mod join;

use super::{
    MAGIC,
    envelope::text,
    wire::{HEADER, Header, PAST_THE_END, WireType, header},
};
use crate::{
    Error, TypeMeta,
    list::{BATCH, Batch, LIMIT, ListMeta, Piece, Split},
    marks::BatchMarks,
    split::{Pending, SplitError},
};
use bytes::Bytes;
use std::ops::Range;

pub use join::Joiner;

/// The fields of the envelope and of the list.
const TYPE_META: u32 = 1;
const RAW: u32 = 2;
const CONTENT_ENCODING: u32 = 3;
const METADATA: u32 = 1;
const ITEM: u32 = 2;

/// Splits one list. [`push`](ListSplitter::push) each chunk, then call [`next`](ListSplitter::next) until it returns
/// none. At the end of the body, call [`finish`](ListSplitter::finish) and drain it once more. It is unusable after an
/// error.
#[derive(Debug)]
pub struct ListSplitter {
    pending: Pending,
    state: State,
    /// The pending bytes are parsed up to this position.
    at: usize,
    limit: usize,
    /// Whether the head has been returned.
    begun: bool,
    /// Whether the metadata has been parsed.
    described: bool,
    /// Whether the content encoding has been parsed.
    encoded: bool,
    meta: ListMeta,
    /// The complete items among the pending bytes.
    items: Vec<Range<usize>>,
    ended: bool,
}

/// What is being parsed.
#[derive(Debug, Clone, Copy)]
enum State {
    Magic,
    /// The envelope before the list.
    Before {
        /// Whether the typeMeta has been parsed.
        typed: bool,
    },
    List {
        /// The end of the list in the body.
        end: u64,
    },
    /// The envelope after the list.
    After,
    Finished,
}

impl Default for ListSplitter {
    fn default() -> Self {
        ListSplitter::new()
    }
}

impl ListSplitter {
    /// Creates a splitter for items of up to 64 MiB.
    pub fn new() -> Self {
        ListSplitter::with_limit(LIMIT)
    }

    /// Creates a splitter that refuses items larger than this limit. The same limit applies to the bytes before,
    /// between and after the items.
    pub fn with_limit(limit: usize) -> Self {
        ListSplitter {
            pending: Pending::default(),
            state: State::Magic,
            at: 0,
            limit,
            begun: false,
            described: false,
            encoded: false,
            meta: ListMeta::default(),
            items: Vec::new(),
            ended: false,
        }
    }

    /// Adds the next bytes of the body. Use large chunks, because most of their items are then slices of them.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        self.pending.push(chunk.into());
    }

    /// Marks the end of the body.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// Returns the list's own fields that have been parsed so far.
    pub fn meta(&self) -> &ListMeta {
        &self.meta
    }

    /// Returns the type of the items, once the head has been returned: the list's kind without `List`. Returns none if
    /// the kind is not a list.
    pub fn item_type(&self) -> Option<TypeMeta> {
        self.meta.item_type()
    }

    /// Returns the next piece. Returns none if it needs more bytes, and always after the tail.
    #[expect(
        clippy::should_implement_trait,
        reason = "not an iterator: none can mean that more bytes are needed, and next can fail"
    )]
    pub fn next(&mut self) -> Result<Option<Piece>, SplitError> {
        loop {
            while let Some(progress) = self.step()? {
                if progress.is_some() {
                    return Ok(progress);
                }
            }
            if !self.items.is_empty() {
                return Ok(Some(self.batch()));
            }
            if !self.pending.more() {
                break;
            }
        }
        match self.state {
            State::Finished => Ok(None),
            _ if !self.ended => Ok(None),
            State::Before { .. } if self.at == self.pending.bytes().len() => Err(SplitError::NoItems),
            State::After if self.at == self.pending.bytes().len() => {
                self.state = State::Finished;
                self.at = 0;
                Ok(Some(Piece::Tail { bytes: self.pending.take(usize::MAX) }))
            }
            _ => Err(SplitError::Truncated),
        }
    }

    /// Advances by one step: returns a piece or progress, or none if it needs more bytes.
    fn step(&mut self) -> Result<Option<Option<Piece>>, SplitError> {
        match self.state {
            State::Magic => {
                let bytes = self.pending.bytes();
                let there = bytes.get(..MAGIC.len()).unwrap_or(bytes);
                if !MAGIC.starts_with(there) {
                    return Err(self.pending.malformed(0, "expected the magic of protobuf"));
                }
                if there.len() < MAGIC.len() {
                    return Ok(None);
                }
                self.at = MAGIC.len();
                self.state = State::Before { typed: false };
                Ok(Some(None))
            }
            State::Before { typed } => self.before(typed),
            State::List { end } if self.pending.offset(self.at) == end => {
                self.state = State::After;
                if self.begun {
                    return Ok(Some((!self.items.is_empty()).then(|| self.batch())));
                }
                let end = self.at;
                Ok(Some(Some(self.head(end))))
            }
            State::List { end } => self.list(end),
            State::After => self.after(),
            State::Finished if self.pending.bytes().is_empty() => Ok(None),
            State::Finished => Err(self.pending.malformed(0, "bytes after the end of the body")),
        }
    }

    fn before(&mut self, typed: bool) -> Result<Option<Option<Piece>>, SplitError> {
        let Some(header) = self.header(None)? else { return Ok(None) };
        match header.number {
            RAW => {
                self.written_as(&header, WireType::Bytes)?;
                let end = self.pending.offset(header.from).checked_add(header.length);
                let Some(end) = end else {
                    return Err(self.pending.malformed(header.length_at, PAST_THE_END));
                };
                self.at = header.from;
                self.state = State::List { end };
                return Ok(Some(None));
            }
            TYPE_META if typed => return Err(SplitError::Repeated { key: "typeMeta" }),
            TYPE_META => self.written_as(&header, WireType::Bytes)?,
            CONTENT_ENCODING => self.not_encoded(&header)?,
            _ => {}
        }
        let Some(value) = self.value(&header)? else { return Ok(None) };
        if header.number == TYPE_META {
            let bytes = self.pending.bytes().get(value.clone()).unwrap_or_default();
            let name = |number, name| {
                let text = text(bytes, 0..bytes.len(), number, name);
                text.map(|text| text.filter(|text| !text.is_empty())).map_err(|error| self.part(&value, error))
            };
            (self.meta.api_version, self.meta.kind) = (name(1, "apiVersion")?, name(2, "kind")?);
            self.state = State::Before { typed: true };
        }
        self.past(value.end)
    }

    fn list(&mut self, list_end: u64) -> Result<Option<Option<Piece>>, SplitError> {
        let Some(header) = self.header(Some(list_end))? else { return Ok(None) };
        let end = self.pending.offset(header.from).checked_add(header.length);
        if end.is_none_or(|end| end > list_end) {
            return Err(self.pending.malformed(header.length_at, PAST_THE_END));
        }
        if matches!(header.number, METADATA | ITEM) {
            self.written_as(&header, WireType::Bytes)?;
        }
        if header.number == ITEM && !self.begun {
            return Ok(Some(Some(self.head(header.start))));
        }
        let Some(value) = self.value(&header)? else { return Ok(None) };
        match header.number {
            METADATA => self.metadata(&value)?,
            ITEM => {
                self.at = value.end;
                self.items.push(value);
                return Ok(Some((self.at >= BATCH).then(|| self.batch())));
            }
            _ => {}
        }
        self.past(value.end)
    }

    fn after(&mut self) -> Result<Option<Option<Piece>>, SplitError> {
        let Some(header) = self.header(None)? else { return Ok(None) };
        match header.number {
            // The type of the items would be known too late.
            TYPE_META => return Err(self.pending.malformed(header.start, "a typeMeta after the list")),
            RAW => return Err(SplitError::Repeated { key: "raw" }),
            CONTENT_ENCODING => self.not_encoded(&header)?,
            _ => {}
        }
        let Some(value) = self.value(&header)? else { return Ok(None) };
        self.past(value.end)
    }

    fn not_encoded(&mut self, header: &Header) -> Result<(), SplitError> {
        self.written_as(header, WireType::Bytes)?;
        if std::mem::replace(&mut self.encoded, true) {
            return Err(SplitError::Repeated { key: "contentEncoding" });
        }
        if header.length > 0 {
            return Err(self.pending.malformed(header.start, "unexpected content encoding"));
        }
        Ok(())
    }

    /// Returns the header at `self.at`, in a message that ends at `end` in the body, if that is known. Returns none if
    /// it needs more bytes.
    fn header(&self, end: Option<u64>) -> Result<Option<Header>, SplitError> {
        let bytes = self.pending.bytes();
        let there = bytes.len() - self.at.min(bytes.len());
        let left = end.map(|end| end.saturating_sub(self.pending.offset(self.at)));
        if there == 0 {
            return Ok(None);
        }
        let within = left.and_then(|left| usize::try_from(left).ok()).map_or(there, |left| left.min(there));
        match header(bytes, self.at, self.at + within) {
            Ok(header) => Ok(Some(header)),
            // The header may continue in the next chunk.
            Err(_) if within < HEADER && left.is_none_or(|left| left > there as u64) => Ok(None),
            Err(error) => Err(self.pending.placed(error)),
        }
    }

    /// Returns the span of a record's value, or none if it needs more bytes.
    fn value(&self, header: &Header) -> Result<Option<Range<usize>>, SplitError> {
        let too_large = SplitError::TooLarge { limit: self.limit };
        let length = usize::try_from(header.length).ok().filter(|length| *length <= self.limit).ok_or(too_large)?;
        let value = header.from..header.from.saturating_add(length);
        Ok((value.end <= self.pending.bytes().len()).then_some(value))
    }

    /// Skips a record that is not an item.
    fn past(&mut self, end: usize) -> Result<Option<Option<Piece>>, SplitError> {
        if end - self.items.last().map_or(0, |item| item.end) > self.limit {
            return Err(SplitError::TooLarge { limit: self.limit });
        }
        self.at = end;
        Ok(Some(None))
    }

    fn written_as(&self, header: &Header, wire: WireType) -> Result<(), SplitError> {
        if header.wire == wire {
            return Ok(());
        }
        Err(self.pending.malformed(header.start, "a field of the wrong wire type"))
    }

    /// {2 resourceVersion, 3 continue}
    fn metadata(&mut self, value: &Range<usize>) -> Result<(), SplitError> {
        if std::mem::replace(&mut self.described, true) {
            return Err(SplitError::Repeated { key: "metadata" });
        }
        let bytes = self.pending.bytes().get(value.clone()).unwrap_or_default();
        let part = |error| self.part(value, error);
        let version = text(bytes, 0..bytes.len(), 2, "resourceVersion").map_err(part)?;
        let token = text(bytes, 0..bytes.len(), 3, "continue").map_err(part)?;
        self.meta.resource_version = version;
        self.meta.continue_token = token.filter(|token| !token.is_empty());
        Ok(())
    }

    fn part(&self, at: &Range<usize>, error: Error) -> SplitError {
        self.pending.part(at.start, error)
    }

    /// Removes the head and returns it.
    fn head(&mut self, end: usize) -> Piece {
        self.begun = true;
        self.at = 0;
        Piece::Head { bytes: self.pending.take(end) }
    }

    /// Removes the complete items and returns them as a batch.
    fn batch(&mut self) -> Piece {
        let items = std::mem::take(&mut self.items);
        let end = items.last().map_or(0, |item| item.end);
        self.at -= end.min(self.at);
        self.items.reserve(items.len());
        Piece::Batch(Batch { bytes: self.pending.take(end), items, marks: BatchMarks::default() })
    }
}

impl Split for ListSplitter {
    fn push(&mut self, chunk: Bytes) {
        self.push(chunk);
    }

    fn finish(&mut self) {
        self.finish();
    }

    fn next(&mut self) -> Result<Option<Piece>, SplitError> {
        self.next()
    }
}

#[cfg(test)]
mod tests;
