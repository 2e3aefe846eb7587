//! Builds the bytes of an edited message from spans of the old bytes and new ones, and updates every length around
//! them. Memory: 32 bytes per splice and per changed message, and the new buffer.

use super::{
    place::EnclosingLength,
    wire::{put_varint, varint_length},
};
use crate::{Error, MAX_OBJECT};
use bytes::Bytes;
use std::{ops::Range, sync::Arc};

/// Replacements in the order of their positions, without overlaps.
#[derive(Default)]
pub(crate) struct Splices {
    list: Vec<Splice>,
    /// Every changed message, each after the one that contains it.
    changed: Vec<Changed>,
    /// The messages that contain the last splice, outermost first.
    open: Vec<usize>,
    last: Option<Arc<[u8]>>,
}

struct Splice {
    at: Range<usize>,
    text: Replacement,
}

/// The replacement of a span.
enum Replacement {
    None,
    Value(Arc<[u8]>),
    /// A varint.
    Length(u64),
}

impl Replacement {
    fn length(&self) -> usize {
        match self {
            Replacement::None => 0,
            Replacement::Value(text) => text.len(),
            Replacement::Length(length) => varint_length(*length),
        }
    }
}

struct Changed {
    frame: EnclosingLength,
    within: Option<usize>,
    /// The growth of its payload.
    growth: i64,
}

impl Splices {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Replaces a span in these messages with a text, which may be empty.
    pub(crate) fn put(&mut self, enclosing: &[EnclosingLength], at: Range<usize>, text: &[u8]) {
        let growth = text.len() as i64 - at.len() as i64;
        let innermost = self.enter(enclosing);
        if let Some(changed) = innermost.and_then(|innermost| self.changed.get_mut(innermost)) {
            changed.growth += growth;
        }
        if !text.is_empty() {
            let text = Replacement::Value(self.shared(text));
            self.list.push(Splice { at, text });
            return;
        }
        match self.list.last_mut() {
            // Consecutive removals are one splice.
            Some(Splice { at: last, text: Replacement::None }) if last.end == at.start => last.end = at.end,
            _ => self.list.push(Splice { at, text: Replacement::None }),
        }
    }

    /// Most rows get the same text, which is stored once.
    fn shared(&mut self, text: &[u8]) -> Arc<[u8]> {
        match &self.last {
            Some(last) if **last == *text => last.clone(),
            _ => self.last.insert(Arc::from(text)).clone(),
        }
    }

    fn enter(&mut self, enclosing: &[EnclosingLength]) -> Option<usize> {
        let same = |(open, frame): &(&usize, &EnclosingLength)| {
            self.changed.get(**open).is_some_and(|changed| changed.frame.payload == frame.payload)
        };
        let shared = self.open.iter().zip(enclosing).take_while(same).count();
        self.open.truncate(shared);
        for frame in enclosing.iter().skip(shared) {
            let within = self.open.last().copied();
            self.open.push(self.changed.len());
            self.changed.push(Changed { frame: frame.clone(), within, growth: 0 });
        }
        self.open.last().copied()
    }

    /// Builds the new buffer in one pass, with one allocation of its exact size: `limit` at most, or the old size.
    pub(crate) fn apply(mut self, old: &[u8], limit: usize) -> Result<Bytes, Error> {
        let limit = limit.max(old.len()).min(MAX_OBJECT);
        self.lengths();
        // An insertion comes before a removal at the same position.
        self.list.sort_by_key(|splice| (splice.at.start, splice.at.end));
        let size = self.list.iter().try_fold(old.len(), |size, splice| {
            let text = splice.text.length();
            Some((size.checked_add(text)?).saturating_sub(splice.at.len())).filter(|size| *size <= limit + old.len())
        });
        let size = size.filter(|size| *size <= limit).ok_or(Error::TooLarge { limit })?;
        let mut new = Vec::with_capacity(size);
        let mut at = 0;
        for splice in &self.list {
            new.extend_from_slice(old.get(at..splice.at.start).unwrap_or_default());
            match &splice.text {
                Replacement::None => {}
                Replacement::Value(text) => new.extend_from_slice(text),
                Replacement::Length(length) => put_varint(*length, &mut new),
            }
            at = splice.at.end;
        }
        new.extend_from_slice(old.get(at..).unwrap_or_default());
        Ok(Bytes::from(new))
    }

    /// Adds a splice for the length of each changed message, the innermost first, because a length can become longer
    /// itself.
    fn lengths(&mut self) {
        for i in (0..self.changed.len()).rev() {
            let Some(Changed { frame, within, growth }) = self.changed.get(i) else { continue };
            let (frame, within, growth) = (frame.clone(), *within, *growth);
            if growth == 0 {
                continue;
            }
            let length = (frame.payload.len() as i64).saturating_add(growth).max(0) as u64;
            let at = frame.length_at..frame.payload.start;
            let longer = varint_length(length) as i64 - at.len() as i64;
            if let Some(outer) = within.and_then(|within| self.changed.get_mut(within)) {
                outer.growth += growth + longer;
            }
            self.list.push(Splice { at, text: Replacement::Length(length) });
        }
    }
}
