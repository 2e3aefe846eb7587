//! The first two levels of an object as spans. Most reads start with the same one or two names, so they can start at
//! their spans. It takes 16 bytes per member, and the first read builds it.

use super::{
    marked::Marked,
    members::{Member, Members},
    scan::{Block, Marks},
    spans::Spans,
    string,
    token::Quoted,
};
use crate::Error;
use std::{ops::Range, sync::OnceLock};

/// One member. Offsets of an object have at most 31 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberSpan {
    key_start: u32,
    /// The end of the key. The top bit means that it has escapes.
    key_end: u32,
    value_start: u32,
    value_end: u32,
}

/// The members of an object, and the members of its object members, found in one pass.
#[derive(Debug)]
pub(crate) struct MemberIndex {
    top: Vec<Top>,
    /// The members of all object members.
    inner: Vec<MemberSpan>,
    /// The position for another member of the object.
    last: usize,
    /// The position after the object.
    pub(crate) end: usize,
    /// The marks of the whole object, if they were built and are kept.
    pub(crate) marks: Option<Marks>,
    /// The element spans of the first array from which a column was read.
    pub(crate) spans: OnceLock<Spans>,
}

/// A member of the object itself.
#[derive(Debug)]
struct Top {
    slot: MemberSpan,
    /// If the value is an object: the range of its members in `inner`, and the position for another one.
    below: Option<(Range<u32>, u32)>,
}

const ESCAPED: u32 = 1 << 31;

/// The number of members to allocate space for at first, on each level.
const INITIAL_MEMBERS: usize = 8;
const SOME: usize = 40;

impl MemberIndex {
    /// Builds the index of the object whose `{` is at `at`, from the marks of its text if there are any.
    pub(crate) fn build(
        bytes: &[u8],
        at: usize,
        known: Option<&[Block]>,
        keep_marks: bool,
    ) -> Result<MemberIndex, Error> {
        let made = if known.is_none() { Some(Marks::of(bytes)) } else { None };
        let made_blocks = made.as_ref().map(|marks| &*marks.blocks);
        let text = Marked::with(bytes, known.or(made_blocks).unwrap_or_default());
        let (mut top, mut inner) = (Vec::with_capacity(INITIAL_MEMBERS), Vec::with_capacity(SOME));
        let (last, end) = each(text, at, |member| {
            let (end, below) = if bytes.get(member.value) == Some(&b'{') {
                let from = inner.len() as u32;
                let (last, end) = each(text, member.value, |member| {
                    let end = text.value_end(member.value)?;
                    inner.push(MemberSpan::new(member, end));
                    Ok(end)
                })?;
                (end, Some((from..inner.len() as u32, narrow(last))))
            } else {
                (text.value_end(member.value)?, None)
            };
            top.push(Top { slot: MemberSpan::new(member, end), below });
            Ok(end)
        })?;
        Ok(MemberIndex { top, inner, last, end, marks: made.filter(|_| keep_marks), spans: OnceLock::new() })
    }

    /// Returns the object's own members.
    pub(crate) fn top(&self) -> impl ExactSizeIterator<Item = MemberSpan> {
        self.top.iter().map(|top| top.slot)
    }

    /// Returns the position for another member.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// Returns the members of member `i` and the position for another one, or none if its value is not an object.
    pub(crate) fn below(&self, i: usize) -> Option<(&[MemberSpan], usize)> {
        let (range, last) = self.top.get(i)?.below.as_ref()?;
        Some((self.inner.get(range.start as usize..range.end as usize)?, *last as usize))
    }
}

/// Returns the members of the object whose `{` is at `at`.
pub(crate) fn slots(text: Marked<'_>, at: usize) -> Result<Vec<MemberSpan>, Error> {
    let mut slots = Vec::with_capacity(INITIAL_MEMBERS);
    each(text, at, |member| {
        let end = text.value_end(member.value)?;
        slots.push(MemberSpan::new(member, end));
        Ok(end)
    })?;
    Ok(slots)
}

/// Returns the member of this name and its index. A repeated name is an error.
#[inline]
pub(crate) fn find(
    slots: impl IntoIterator<Item = MemberSpan>,
    bytes: &[u8],
    name: &str,
) -> Result<Option<(usize, MemberSpan)>, Error> {
    let mut found = None;
    for (i, slot) in slots.into_iter().enumerate() {
        let key = slot.key();
        if string::is(bytes, key, name)? && found.replace((i, slot)).is_some() {
            return Err(Error::DuplicateKey { key: name.to_owned(), offset: key.start });
        }
    }
    Ok(found)
}

/// Calls a function for each member, which skips its value. Returns the position for another member and the object's
/// end.
#[inline(always)]
fn each(
    text: Marked<'_>,
    at: usize,
    mut member: impl FnMut(Member) -> Result<usize, Error>,
) -> Result<(usize, usize), Error> {
    if text.get(at) != Some(&b'{') {
        return Err(Error::malformed(at, "expected an object"));
    }
    let mut members = Members::new(text, at);
    while let Some(next) = members.next()? {
        let end = member(next)?;
        members.past(end);
    }
    Ok((members.last(), members.end()))
}

impl MemberSpan {
    fn new(member: Member, end: usize) -> MemberSpan {
        MemberSpan {
            key_start: narrow(member.key.start),
            key_end: narrow(member.key.end) | if member.key.plain { 0 } else { ESCAPED },
            value_start: narrow(member.value),
            value_end: narrow(end),
        }
    }

    fn key(self) -> Quoted {
        Quoted {
            start: self.key_start as usize,
            end: (self.key_end & !ESCAPED) as usize,
            plain: self.key_end & ESCAPED == 0,
        }
    }

    pub(crate) fn value(self) -> usize {
        self.value_start as usize
    }

    pub(crate) fn value_end(self) -> usize {
        self.value_end as usize
    }
}

/// INVARIANT: `Object` refuses more than 31 bits of bytes before it builds a table.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(ESCAPED - 1)
}
