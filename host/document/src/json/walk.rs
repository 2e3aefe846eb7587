//! Follows the segments of a path over the bytes, each byte once, and calls a visitor at the end of the path. The
//! recursion is as deep as the path is long. Keeps no state.

use super::{
    marked::Marked,
    members::{Elements, Members},
    string,
};
use crate::{Error, path::Segment};
use std::ops::Range;

/// Handles the results of a walk.
pub(crate) trait Visit {
    /// The path leads to the value at `at`. The visitor skips it and returns its end.
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error>;

    /// The first of these segments leads nowhere. None of them is a [`Segment::Wildcard`], because a missing array has
    /// no rows.
    fn absent(&mut self, rest: &[Segment], gap: Gap) -> Result<(), Error>;

    /// Called for each element that a [`Segment::Wildcard`] selects.
    #[inline(always)]
    fn element(&mut self, _at: Range<usize>) {}
}

/// The reason why a segment leads nowhere, and the position at which an edit can insert a value.
#[derive(Debug, Clone)]
pub(crate) enum Gap {
    /// The object has no such member. A new one can be inserted at `at`.
    Member {
        /// The position after the last value, or after the `{`.
        at: usize,
        /// Whether the object has no members.
        empty: bool,
    },
    /// The value is null instead of an object or array.
    Null {
        /// The span of the null.
        at: Range<usize>,
    },
    /// The array has no such element.
    Element,
    /// The value is of another kind.
    Other {
        /// The position of the value.
        at: usize,
    },
}

/// Follows `segments` from the value at `at`. Returns the end of that value.
pub(crate) fn walk<V: Visit>(
    text: Marked<'_>,
    at: usize,
    segments: &[Segment],
    visitor: &mut V,
) -> Result<usize, Error> {
    match segments {
        [] => visitor.value(text, at),
        [Segment::Name(name), rest @ ..] => match text.bytes.get(at) {
            Some(b'{') => member(text, at, name, segments, rest, visitor),
            _ => other(text, at, segments, visitor),
        },
        [Segment::Index(index), rest @ ..] => match text.bytes.get(at) {
            Some(b'[') => element(text, at, *index, segments, rest, visitor),
            _ => other(text, at, segments, visitor),
        },
        [Segment::Wildcard, rest @ ..] => match text.bytes.get(at) {
            Some(b'[') => {
                let mut elements = Elements::new(text, at);
                while let Some(at) = elements.next()? {
                    let end = walk(text, at, rest, visitor)?;
                    visitor.element(at..end);
                    elements.past(end);
                }
                Ok(elements.end())
            }
            _ => text.value_end(at),
        },
    }
}

fn member<V: Visit>(
    text: Marked<'_>,
    at: usize,
    name: &str,
    segments: &[Segment],
    rest: &[Segment],
    visitor: &mut V,
) -> Result<usize, Error> {
    let mut members = Members::new(text, at);
    let mut found = false;
    while let Some(member) = members.next()? {
        let end = if string::is(text.bytes, member.key, name)? {
            if std::mem::replace(&mut found, true) {
                return Err(Error::DuplicateKey { key: name.to_owned(), offset: member.key.start });
            }
            if rest.is_empty() { visitor.value(text, member.value)? } else { walk(text, member.value, rest, visitor)? }
        } else {
            text.value_end(member.value)?
        };
        members.past(end);
    }
    if !found {
        absent(segments, Gap::Member { at: members.last(), empty: members.is_empty() }, visitor)?;
    }
    Ok(members.end())
}

fn element<V: Visit>(
    text: Marked<'_>,
    at: usize,
    index: usize,
    segments: &[Segment],
    rest: &[Segment],
    visitor: &mut V,
) -> Result<usize, Error> {
    let mut elements = Elements::new(text, at);
    let mut count = 0;
    while let Some(at) = elements.next()? {
        let end = if count == index { walk(text, at, rest, visitor)? } else { text.value_end(at)? };
        elements.past(end);
        count += 1;
    }
    if count <= index {
        absent(segments, Gap::Element, visitor)?;
    }
    Ok(elements.end())
}

/// Handles a value of another kind than the segment needs.
fn other<V: Visit>(text: Marked<'_>, at: usize, segments: &[Segment], visitor: &mut V) -> Result<usize, Error> {
    let end = text.value_end(at)?;
    let gap = if text.bytes.get(at) == Some(&b'n') { Gap::Null { at: at..end } } else { Gap::Other { at } };
    absent(segments, gap, visitor)?;
    Ok(end)
}

/// Calls the visitor for a missing value, unless a `[*]` follows: a missing array has no rows.
pub(crate) fn absent<V: Visit>(segments: &[Segment], gap: Gap, visitor: &mut V) -> Result<(), Error> {
    if segments.contains(&Segment::Wildcard) { Ok(()) } else { visitor.absent(segments, gap) }
}
