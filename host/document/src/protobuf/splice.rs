//! The new bytes of an edited message: spans of the old ones with others in their place, and every enclosing length
//! written anew. Memory: 32 bytes a splice, as much for each message that changes, and the new buffer.

use super::{
    place::Frame,
    wire::{put_varint, varint_length},
};
use crate::{Error, MAX_EDITED, MAX_OBJECT};
use bytes::Bytes;
use std::{ops::Range, sync::Arc};

/// Replacements in the order of their places, none overlapping.
#[derive(Default)]
pub(crate) struct Splices {
    list: Vec<Splice>,
    /// Every message that changes, each after the one that it is in.
    changed: Vec<Changed>,
    /// Those that the last splice was in, outermost first.
    open: Vec<usize>,
    last: Option<Arc<[u8]>>,
}

struct Splice {
    at: Range<usize>,
    text: Text,
}

/// What is put in the place of a span.
enum Text {
    None,
    Value(Arc<[u8]>),
    /// A varint.
    Length(u64),
}

impl Text {
    fn length(&self) -> usize {
        match self {
            Text::None => 0,
            Text::Value(text) => text.len(),
            Text::Length(length) => varint_length(*length),
        }
    }
}

struct Changed {
    frame: Frame,
    within: Option<usize>,
    /// By how much its payload grows.
    growth: i64,
}

impl Splices {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts a text, maybe an empty one, in the place of a span that lies in these messages.
    pub(crate) fn put(&mut self, frames: &[Frame], at: Range<usize>, text: &[u8]) {
        let growth = text.len() as i64 - at.len() as i64;
        let innermost = self.enter(frames);
        if let Some(changed) = innermost.and_then(|innermost| self.changed.get_mut(innermost)) {
            changed.growth += growth;
        }
        let text = if text.is_empty() { Text::None } else { Text::Value(self.shared(text)) };
        self.list.push(Splice { at, text });
    }

    /// Rows mostly get the same: it is kept once.
    fn shared(&mut self, text: &[u8]) -> Arc<[u8]> {
        match &self.last {
            Some(last) if **last == *text => last.clone(),
            _ => self.last.insert(Arc::from(text)).clone(),
        }
    }

    fn enter(&mut self, frames: &[Frame]) -> Option<usize> {
        let same = |(open, frame): &(&usize, &Frame)| {
            self.changed.get(**open).is_some_and(|changed| changed.frame.payload == frame.payload)
        };
        let shared = self.open.iter().zip(frames).take_while(same).count();
        self.open.truncate(shared);
        for frame in frames.iter().skip(shared) {
            let within = self.open.last().copied();
            self.open.push(self.changed.len());
            self.changed.push(Changed { frame: frame.clone(), within, growth: 0 });
        }
        self.open.last().copied()
    }

    /// Writes the new buffer, in one pass, with one allocation of its exact size.
    pub(crate) fn apply(mut self, old: &[u8]) -> Result<Bytes, Error> {
        let limit = old.len().clamp(MAX_EDITED, MAX_OBJECT);
        self.lengths();
        // An insertion comes before what is cut at the same place.
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
                Text::None => {}
                Text::Value(text) => new.extend_from_slice(text),
                Text::Length(length) => put_varint(*length, &mut new),
            }
            at = splice.at.end;
        }
        new.extend_from_slice(old.get(at..).unwrap_or_default());
        Ok(Bytes::from(new))
    }

    /// Adds a splice for the length of each message that changed, the innermost first: a length may itself get longer.
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
            self.list.push(Splice { at, text: Text::Length(length) });
        }
    }
}
