//! Tokens that may continue in a later chunk. Each byte is scanned once. Memory: a few words.

use crate::{
    Error,
    json::scan::{Marks, Reached, Skip},
};

/// A token that is being scanned, and can continue in the next chunk.
#[derive(Debug, Clone)]
pub(crate) enum PartialToken {
    /// A string, after the opening quote.
    Text {
        /// Whether the next byte is escaped.
        escaped: bool,
    },
    Container(Skip),
    /// A number or literal.
    Scalar,
}

impl PartialToken {
    /// Returns the token that begins with this byte, and the number of its bytes that need no scan.
    pub(crate) fn new(first: u8) -> (PartialToken, usize) {
        match first {
            b'"' => (PartialToken::Text { escaped: false }, 1),
            b'{' | b'[' => (PartialToken::Container(Skip::new()), 0),
            _ => (PartialToken::Scalar, 0),
        }
    }

    /// Continues the scan. Appends the marks of a container to `keep`.
    pub(crate) fn run(&mut self, bytes: &[u8], from: usize, keep: Option<&mut Marks>) -> Result<Reached, Error> {
        let end = match self {
            PartialToken::Container(skip) => return skip.run(bytes, from, keep),
            PartialToken::Text { escaped } => text_end(bytes, from, escaped),
            PartialToken::Scalar => {
                let rest = bytes.get(from..).unwrap_or_default();
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                rest.iter().position(ends).map(|length| from + length)
            }
        };
        Ok(end.map_or(Reached::More(bytes.len()), Reached::End))
    }
}

fn text_end(bytes: &[u8], mut at: usize, escaped: &mut bool) -> Option<usize> {
    while at < bytes.len() {
        if std::mem::take(escaped) {
            at += 1;
            continue;
        }
        let found = at + memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        at = found + 1;
        if bytes.get(found) == Some(&b'"') {
            return Some(at);
        }
        *escaped = true;
    }
    None
}
