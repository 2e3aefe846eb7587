//! Follows the steps of a path over the bytes, each byte once, and tells a visitor what is at their end.
//! Recursion is as deep as the path is long; nothing is kept.

use super::{
    marked::Marked,
    members::{Elements, Members},
    string,
};
use crate::{Error, path::Step};
use std::ops::Range;

/// What becomes of the ends of a walk.
pub(crate) trait Visit {
    /// All steps led here: a value begins at `at`. The visitor steps over it and returns its end.
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error>;

    /// The first of these steps led nowhere. None of them is a [`Step::Every`]: what is absent above one has no rows.
    fn absent(&mut self, rest: &[Step], gap: Gap) -> Result<(), Error>;

    /// An element that a [`Step::Every`] led through lies here.
    #[inline(always)]
    fn element(&mut self, _at: Range<usize>) {}
}

/// Why a step led nowhere, and what an edit could do about it.
#[derive(Debug, Clone)]
pub(crate) enum Gap {
    /// The object has no such member; one could be put at `at`.
    Member {
        /// After the last value, or after the `{`.
        at: usize,
        /// Whether the object has no members.
        empty: bool,
    },
    /// Null, where an object or array was wanted.
    Null {
        /// Its span.
        at: Range<usize>,
    },
    /// The array has no such element.
    Element,
    /// A value of another kind.
    Other {
        /// Its position.
        at: usize,
    },
}

/// Follows `steps` from the value at `at`; returns the value's end.
pub(crate) fn walk<V: Visit>(text: Marked<'_>, at: usize, steps: &[Step], visitor: &mut V) -> Result<usize, Error> {
    match steps {
        [] => visitor.value(text, at),
        [Step::Name(name), rest @ ..] => match text.bytes.get(at) {
            Some(b'{') => member(text, at, name, steps, rest, visitor),
            _ => other(text, at, steps, visitor),
        },
        [Step::Index(index), rest @ ..] => match text.bytes.get(at) {
            Some(b'[') => element(text, at, *index, steps, rest, visitor),
            _ => other(text, at, steps, visitor),
        },
        [Step::Every, rest @ ..] => match text.bytes.get(at) {
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
    steps: &[Step],
    rest: &[Step],
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
        absent(steps, Gap::Member { at: members.last(), empty: members.is_empty() }, visitor)?;
    }
    Ok(members.end())
}

fn element<V: Visit>(
    text: Marked<'_>,
    at: usize,
    index: usize,
    steps: &[Step],
    rest: &[Step],
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
        absent(steps, Gap::Element, visitor)?;
    }
    Ok(elements.end())
}

/// The value is not of the kind that the step needs.
fn other<V: Visit>(text: Marked<'_>, at: usize, steps: &[Step], visitor: &mut V) -> Result<usize, Error> {
    let end = text.value_end(at)?;
    let gap = if text.bytes.get(at) == Some(&b'n') { Gap::Null { at: at..end } } else { Gap::Other { at } };
    absent(steps, gap, visitor)?;
    Ok(end)
}

/// What is absent above a `[*]` has no rows: nobody is told.
pub(crate) fn absent<V: Visit>(steps: &[Step], gap: Gap, visitor: &mut V) -> Result<(), Error> {
    if steps.contains(&Step::Every) { Ok(()) } else { visitor.absent(steps, gap) }
}
