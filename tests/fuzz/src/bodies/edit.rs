//! Parses an edit from bytes.

use weir_document::{Document, Error, Path, Rows, Value};
use weir_kube::FILTER_EDITS;

/// One edit of a document.
pub struct Edit<'a> {
    /// The path.
    pub path: Path,
    /// The kind, one of seven.
    pub kind: u8,
    /// The row bitmap.
    pub bits: &'a [u8],
    /// The new value.
    pub value: Value,
}

impl<'a> Edit<'a> {
    /// Parses a line with a path, a line with the kind and the bits, a line with a value, and the object. Returns none
    /// without a path.
    pub fn parse(data: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut lines = data.splitn(4, |byte| *byte == b'\n');
        let mut line = || lines.next().unwrap_or_default();
        let (expression, bits, value, object) = (line(), line(), line(), line());
        let path = std::str::from_utf8(expression).ok().and_then(|text| Path::parse(text).ok())?;
        let (kind, bits) = bits.split_first().unwrap_or((&b'0', &[]));
        let value = match std::str::from_utf8(value) {
            Ok("null") | Err(_) => Value::Null,
            Ok("true") => Value::Boolean(true),
            Ok("false") => Value::Boolean(false),
            Ok(text) if text.starts_with(['{', '[']) => Value::Json(text.to_owned()),
            Ok(text) if text.starts_with(['-', '1']) => Value::Number(text.to_owned()),
            Ok(text) => Value::Text(text.to_owned()),
        };
        Some((Edit { path, kind: kind % 7, bits, value }, object))
    }

    /// Returns whether the edit writes its value to every row.
    pub fn sets(&self) -> bool {
        self.kind == 0
    }

    /// Applies the edit by the rules for filters.
    pub fn run(&self, document: &mut Document) -> Result<(), Error> {
        let Edit { path, kind, bits, value } = self;
        let rows = Rows::from_bits(bits);
        *document = document.clone().with_rules(&FILTER_EDITS);
        match (kind, value) {
            (0, _) => document.set(path, value),
            (1, _) => document.set_rows(path, &rows, value),
            (2, _) => document.remove(path).map(drop),
            (3, _) => document.remove_rows(path, &rows).map(drop),
            (4, _) => document.retain(path, &rows),
            (5, _) => document.append(path, value),
            (_, Value::Json(json)) => document.replace(json),
            (_, Value::Text(text)) => document.retain_in(path, &[text.as_str()].into_iter().collect()),
            _ => Ok(()),
        }
    }
}
