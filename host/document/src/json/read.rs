//! The visitors of reads. A column is bounded by 31 bits of text, all other results by the object.

use super::{
    check,
    marked::Marked,
    members::{Elements, Members},
    string, token,
    walk::{Gap, Visit},
};
use crate::{Error, Value, path::Segment};
use std::{
    borrow::Cow,
    hash::{BuildHasher, Hasher},
    ops::Range,
    sync::LazyLock,
};

/// Reads the span of the value at a path without `[*]`, validated.
#[derive(Default)]
pub(crate) struct One(pub(crate) Option<Range<usize>>);

impl Visit for One {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        let end = check::checked_end(text.bytes, at)?;
        self.0 = Some(at..end);
        Ok(end)
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        Ok(())
    }
}

/// Reads the spans of all rows, validated, none for missing and null.
#[derive(Default)]
pub(crate) struct RawRows(pub(crate) Vec<Option<Range<usize>>>);

impl Visit for RawRows {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        let end = check::checked_end(text.bytes, at)?;
        self.0.push((text.bytes.get(at) != Some(&b'n')).then_some(at..end));
        Ok(end)
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        self.0.push(None);
        Ok(())
    }
}

/// Reads one member of the object at the path, by a name that is not a segment: labels and annotations.
pub(crate) struct Pick<'a> {
    name: &'a str,
    pub(crate) found: Option<Range<usize>>,
}

impl<'a> Pick<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        Pick { name, found: None }
    }
}

impl Visit for Pick<'_> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) != Some(&b'{') {
            return text.value_end(at);
        }
        let mut members = Members::new(text, at);
        while let Some(member) = members.next()? {
            let end = if string::is(text.bytes, member.key, self.name)? {
                if self.found.is_some() {
                    return Err(Error::DuplicateKey { key: self.name.to_owned(), offset: member.key.start });
                }
                let end = check::checked_end(text.bytes, member.value)?;
                self.found = Some(member.value..end);
                end
            } else {
                text.value_end(member.value)?
            };
            members.past(end);
        }
        Ok(members.end())
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        Ok(())
    }
}

/// Calls a function with the cell of each row, none for missing and null.
pub(crate) struct Cells<F>(pub(crate) F);

impl<F: FnMut(Option<&str>) -> Result<(), Error>> Visit for Cells<F> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) == Some(&b'"') {
            let quoted = text.quoted(at)?;
            (self.0)(Some(&string::text(text.bytes, quoted)?))?;
            return Ok(quoted.after());
        }
        let end = check::checked_end(text.bytes, at)?;
        (self.0)(cell(text.bytes, at..end)?.as_deref())?;
        Ok(end)
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        (self.0)(None)
    }
}

/// Reads the sizes of arrays, 0 for other values.
#[derive(Default)]
pub(crate) struct Lengths(pub(crate) Vec<u32>);

impl Visit for Lengths {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) != Some(&b'[') {
            self.0.push(0);
            return text.value_end(at);
        }
        let mut elements = Elements::new(text, at);
        let mut count = 0;
        while let Some(at) = elements.next()? {
            elements.past(text.value_end(at)?);
            count += 1;
        }
        self.0.push(count);
        Ok(elements.end())
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        self.0.push(0);
        Ok(())
    }
}

/// Reads the member names of one object.
#[derive(Default)]
pub(crate) struct MemberNames(pub(crate) Vec<String>);

impl Visit for MemberNames {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) != Some(&b'{') {
            return text.value_end(at);
        }
        let mut members = Members::new(text, at);
        let mut seen = std::collections::HashSet::<_, foldhash::fast::RandomState>::default();
        while let Some(member) = members.next()? {
            let key = string::text(text.bytes, member.key)?.into_owned();
            if !seen.insert(key.clone()) {
                return Err(Error::DuplicateKey { key, offset: member.key.start });
            }
            self.0.push(key);
            members.past(text.value_end(member.value)?);
        }
        Ok(members.end())
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        Ok(())
    }
}

/// One random seed per process. Equal values have equal hashes for its life, and nobody can choose values that collide.
static SEED: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// Hashes the values of all rows. Strings are hashed by their unescaped text, other values by their spelling.
///
/// The hash must distinguish where a row ends and how many rows there are. No part may end in zeros, because the
/// hasher's padding is zeros too. The input therefore contains non-zero tags, lengths, and the number of rows at the
/// end.
pub(crate) struct Fingerprint {
    hasher: foldhash::quality::FoldHasher<'static>,
    rows: u64,
}

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Fingerprint { hasher: SEED.build_hasher(), rows: 0 }
    }

    pub(crate) fn finish(mut self) -> u64 {
        self.hasher.write_u64(self.rows + 1);
        self.hasher.finish()
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.row(1, text.as_bytes());
    }

    /// Hashes a row that is not a string, by its spelling.
    pub(crate) fn spelt(&mut self, json: &[u8]) {
        self.row(2, json);
    }

    /// Hashes an absent row.
    pub(crate) fn absent_row(&mut self) {
        self.row(3, &[]);
    }

    fn row(&mut self, tag: u8, bytes: &[u8]) {
        self.rows += 1;
        self.hasher.write_u8(tag);
        self.hasher.write_usize(bytes.len());
        self.hasher.write(bytes);
    }
}

impl Visit for Fingerprint {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        let end = check::checked_end(text.bytes, at)?;
        if text.bytes.get(at) == Some(&b'"') {
            let quoted = text.quoted(at)?;
            self.text(&string::text(text.bytes, quoted)?);
        } else {
            self.spelt(text.bytes.get(at..end).unwrap_or_default());
        }
        Ok(end)
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        self.absent_row();
        Ok(())
    }
}

/// Converts a validated value to the cell of a column, none if it is null.
pub(crate) fn cell(bytes: &[u8], at: Range<usize>) -> Result<Option<Cow<'_, str>>, Error> {
    match bytes.get(at.start) {
        Some(b'"') => string::text(bytes, token::quoted(bytes, at.start)?).map(Some),
        Some(b'n') => Ok(None),
        _ => raw(bytes, at).map(|text| Some(Cow::Borrowed(text))),
    }
}

/// Converts a validated value to a [`Value`].
pub(crate) fn value(bytes: &[u8], at: Range<usize>) -> Result<Value, Error> {
    Ok(match bytes.get(at.start) {
        Some(b'"') => Value::Text(string::text(bytes, token::quoted(bytes, at.start)?)?.into_owned()),
        Some(b'n') => Value::Null,
        Some(b't') => Value::Boolean(true),
        Some(b'f') => Value::Boolean(false),
        Some(b'{' | b'[') => Value::Json(raw(bytes, at)?.to_owned()),
        _ => Value::Number(raw(bytes, at)?.to_owned()),
    })
}

/// Returns the text of a span.
pub(crate) fn raw(bytes: &[u8], at: Range<usize>) -> Result<&str, Error> {
    let start = at.start;
    std::str::from_utf8(bytes.get(at).unwrap_or_default())
        .map_err(|error| Error::malformed(start + error.valid_up_to(), "text that is not UTF-8"))
}
