//! Splits a Kubernetes list into its items while it arrives, and joins the outcomes to a list.
//!
//! Only the list's own members are parsed. Memory: the bytes that have arrived and have not been returned, which is at
//! most one item and one chunk. Each byte is scanned once, at any chunk boundaries. A byte is copied only if its item
//! continues in the next chunk.

mod join;
mod partial;

use super::{
    marked::Marked,
    read::One,
    scan::{Marks, Reached},
    string, token,
    walk::walk,
};
use crate::{
    list::{BATCH, Batch, LIMIT, ListMeta, Piece, Split},
    marks::BatchMarks,
    path::Segment,
    split::{Pending, SplitError},
};
use bytes::Bytes;
use partial::PartialToken;
use std::ops::Range;

pub use join::Joiner;

/// Splits one list. [`push`](ListSplitter::push) each chunk, then call [`next`](ListSplitter::next) until it returns
/// none. At the end of the body, call [`finish`](ListSplitter::finish) and drain it once more. It is unusable after an
/// error.
#[derive(Debug)]
pub struct ListSplitter {
    pending: Pending,
    state: State,
    /// The pending bytes are scanned up to this position.
    at: usize,
    /// The start of the current token.
    start: usize,
    limit: usize,
    /// The name of the member that is the array.
    array: &'static str,
    field: ListField,
    seen: [bool; 4],
    meta: ListMeta,
    /// The complete items among the pending bytes.
    items: Vec<Range<usize>>,
    /// The structural marks of these items, and of the item being scanned.
    marks: Marks,
    /// The first block of each item.
    firsts: Vec<usize>,
    /// The first block of the item being scanned, or of the next one.
    first: usize,
    ended: bool,
}

/// What is expected next or being scanned.
#[derive(Debug)]
enum State {
    List,
    Key { first: bool },
    InKey(PartialToken),
    Colon,
    Value,
    InValue(PartialToken),
    AfterValue,
    Item { first: bool },
    InItem(PartialToken),
    AfterItem,
    AfterList,
    Finished,
}

/// A member of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListField {
    ApiVersion = 0,
    Kind = 1,
    Metadata = 2,
    Items = 3,
    Other = 4,
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

    /// Creates a splitter that refuses items larger than this limit. The same limit applies to the bytes before and
    /// after the items.
    pub fn with_limit(limit: usize) -> Self {
        ListSplitter::of("items", limit)
    }

    /// Creates a splitter for a Table, whose items are its `rows`, of up to 64 MiB each.
    pub fn rows() -> Self {
        ListSplitter::rows_with_limit(LIMIT)
    }

    /// Creates a splitter for a Table that refuses rows larger than this limit. The same limit applies to the bytes
    /// before and after them.
    pub fn rows_with_limit(limit: usize) -> Self {
        ListSplitter::of("rows", limit)
    }

    fn of(array: &'static str, limit: usize) -> Self {
        ListSplitter {
            pending: Pending::default(),
            state: State::List,
            at: 0,
            start: 0,
            limit,
            array,
            field: ListField::Other,
            seen: [false; 4],
            meta: ListMeta::default(),
            items: Vec::new(),
            marks: Marks::default(),
            firsts: Vec::new(),
            first: 0,
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
            if self.pending.bytes().len() > self.limit {
                return Err(SplitError::TooLarge { limit: self.limit });
            }
            if !self.pending.more() {
                break;
            }
        }
        match self.state {
            State::AfterList if self.ended => {
                self.state = State::Finished;
                self.at = 0;
                let bytes = self.pending.take(usize::MAX);
                Ok(Some(Piece::Tail { bytes }))
            }
            State::Finished => Ok(None),
            _ if self.ended => Err(SplitError::Truncated),
            _ => Ok(None),
        }
    }

    /// Advances by one step: returns a piece or progress, or none if it needs more bytes.
    fn step(&mut self) -> Result<Option<Option<Piece>>, SplitError> {
        let bytes = self.pending.bytes();
        let reached = match &mut self.state {
            State::InItem(token) => token.run(bytes, self.at, Some(&mut self.marks)),
            State::InKey(token) | State::InValue(token) => token.run(bytes, self.at, None),
            _ => return self.between(),
        };
        match reached.map_err(|error| self.pending.placed(error))? {
            Reached::End(end) => {
                self.at = end;
                self.token_end()
            }
            Reached::More(at) => {
                self.at = at;
                Ok(None)
            }
        }
    }

    /// Advances by one step between two tokens.
    fn between(&mut self) -> Result<Option<Option<Piece>>, SplitError> {
        let bytes = self.pending.bytes();
        self.at = token::space(bytes, self.at);
        let Some(byte) = bytes.get(self.at).copied() else {
            return Ok(None);
        };
        self.start = self.at;
        let wrong = |reason| Err(self.pending.malformed(self.at, reason));
        self.state = match (&self.state, byte) {
            (State::List, b'{') => State::Key { first: true },
            (State::List, _) => return wrong("expected a list object"),
            (State::Key { .. }, b'"') => State::InKey(PartialToken::new(byte).0),
            (State::Key { first: true } | State::AfterValue, b'}') => {
                if !self.has(ListField::Items) {
                    return Err(SplitError::NoItems);
                }
                State::AfterList
            }
            (State::AfterValue, b',') => State::Key { first: false },
            (State::Colon, b':') => State::Value,
            (State::Value, b'[') if self.field == ListField::Items => {
                let bytes = self.pending.take(self.at + 1);
                self.at = 0;
                self.state = State::Item { first: true };
                return Ok(Some(Some(Piece::Head { bytes })));
            }
            (State::Value, b'n') if self.field == ListField::Items => {
                let bytes = self.pending.take(self.at);
                (self.at, self.start) = (0, 0);
                self.state = State::InValue(PartialToken::Scalar);
                return Ok(Some(Some(Piece::Head { bytes })));
            }
            (State::Value, _) if self.field == ListField::Items => {
                return wrong("expected an array of items");
            }
            (State::Value, _) => {
                let (token, skip) = PartialToken::new(byte);
                self.at += skip;
                self.state = State::InValue(token);
                return Ok(Some(None));
            }
            (State::Item { .. }, b'{') => {
                self.state = State::InItem(PartialToken::new(byte).0);
                return Ok(Some(None));
            }
            (State::Item { first: true } | State::AfterItem, b']') => {
                if !self.items.is_empty() {
                    return Ok(Some(Some(self.batch())));
                }
                State::AfterValue
            }
            (State::AfterItem, b',') => State::Item { first: false },
            (State::Item { .. }, _) => return wrong("expected an object as item"),
            (State::AfterItem, _) => return wrong("expected a comma or ]"),
            (State::Key { .. }, _) => return wrong("expected a member name"),
            (State::Colon, _) => return wrong("expected a colon"),
            (State::AfterValue, _) => return wrong("expected a comma or }"),
            (State::AfterList | State::Finished | State::InKey(_) | State::InValue(_) | State::InItem(_), _) => {
                return wrong("bytes after the end of the list");
            }
        };
        self.at += 1;
        Ok(Some(None))
    }

    /// Handles the end of the current token at `self.at`.
    fn token_end(&mut self) -> Result<Option<Option<Piece>>, SplitError> {
        match self.state {
            State::InItem(_) => {
                let length = self.at - self.start;
                if length > self.limit {
                    return Err(SplitError::TooLarge { limit: self.limit });
                }
                self.items.push(self.start..self.at);
                self.firsts.push(self.first);
                self.marks.end_text(self.first, length);
                self.first = self.marks.blocks.len();
                self.state = State::AfterItem;
                if self.at >= BATCH {
                    return Ok(Some(Some(self.batch())));
                }
            }
            State::InKey(_) => {
                self.field = self.key()?;
                self.state = State::Colon;
            }
            _ => {
                self.value()?;
                self.state = State::AfterValue;
            }
        }
        Ok(Some(None))
    }

    /// Removes the complete items and returns them as a batch.
    fn batch(&mut self) -> Piece {
        let items = std::mem::take(&mut self.items);
        let end = items.last().map_or(0, |item| item.end);
        self.at -= end.min(self.at);
        self.start = self.start.saturating_sub(end);
        let firsts = std::mem::take(&mut self.firsts);
        self.items.reserve(items.len());
        self.firsts.reserve(items.len());
        // The marks of the next item stay.
        let marks = self.marks.cut(self.first);
        self.first = 0;
        Piece::Batch(Batch { bytes: self.pending.take(end), items, marks: BatchMarks::new(marks, firsts) })
    }

    fn has(&self, field: ListField) -> bool {
        self.seen.get(field as usize).copied().unwrap_or(false)
    }

    fn key(&mut self) -> Result<ListField, SplitError> {
        let key = self.text()?;
        let (field, name) = match &*key {
            "apiVersion" => (ListField::ApiVersion, "apiVersion"),
            "kind" => (ListField::Kind, "kind"),
            "metadata" => (ListField::Metadata, "metadata"),
            key if key == self.array => (ListField::Items, self.array),
            _ => return Ok(ListField::Other),
        };
        match self.seen.get_mut(field as usize) {
            Some(seen @ false) => *seen = true,
            _ => return Err(SplitError::Repeated { key: name }),
        }
        Ok(field)
    }

    fn value(&mut self) -> Result<(), SplitError> {
        let bytes = self.pending.bytes();
        let value = bytes.get(self.start..self.at).unwrap_or_default();
        match (self.field, value.first()) {
            (ListField::Other, Some(b'"' | b'{' | b'[')) => {}
            (ListField::ApiVersion, Some(b'"')) => self.meta.api_version = Some(self.text()?),
            (ListField::Kind, Some(b'"')) => self.meta.kind = Some(self.text()?),
            (ListField::Metadata, Some(b'{')) => {
                self.meta.resource_version = self.metadata("resourceVersion")?;
                self.meta.continue_token = self.metadata("continue")?.filter(|token| !token.is_empty());
            }
            (ListField::Other, _) => {
                let end = token::scalar(value, 0).map_err(|error| self.pending.part(self.start, error))?;
                if end != value.len() {
                    return Err(self.pending.malformed(self.start, "expected a value"));
                }
            }
            _ if value == b"null" => {}
            _ => {
                return Err(self.pending.malformed(self.start, "a value of the wrong type"));
            }
        }
        Ok(())
    }

    /// Returns the text of the string that was just scanned.
    fn text(&self) -> Result<String, SplitError> {
        let bytes = self.pending.bytes();
        let text = token::quoted(bytes, self.start).and_then(|quoted| string::text(bytes, quoted));
        text.map(|text| text.into_owned()).map_err(|error| self.pending.placed(error))
    }

    /// Returns a string of the metadata that was just scanned.
    fn metadata(&self, name: &'static str) -> Result<Option<String>, SplitError> {
        let bytes = self.pending.bytes().get(self.start..self.at).unwrap_or_default();
        let marks = Marks::of(bytes);
        let mut one = One::default();
        let found = walk(Marked::new(bytes, &marks), 0, &[Segment::Name(name.into())], &mut one)
            .and_then(|_| one.0.map(|at| super::read::cell(bytes, at)).transpose())
            .map_err(|error| self.pending.part(self.start, error))?;
        Ok(found.flatten().map(|text| text.into_owned()))
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
