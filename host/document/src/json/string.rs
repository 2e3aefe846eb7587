//! Conversion of strings between their escaped form and their text.

use super::token::Quoted;
use crate::{
    Error,
    escape::{InvalidEscape, unescape, unescape_to},
};
use std::borrow::Cow;

/// Validates the content of a string: UTF-8, no control characters, valid escapes. Returns it in its spelling.
pub(crate) fn checked(bytes: &[u8], quoted: Quoted) -> Result<&str, Error> {
    let content = bytes.get(quoted.start..quoted.end).unwrap_or_default();
    if content.iter().fold(false, |found, byte| found | (*byte < 0x20)) {
        let position = content.iter().position(|byte| *byte < 0x20).unwrap_or(0);
        return Err(Error::malformed(quoted.start + position, "a control character in a string"));
    }
    let raw = std::str::from_utf8(content)
        .map_err(|error| Error::malformed(quoted.start + error.valid_up_to(), "a string that is not UTF-8"))?;
    Ok(raw)
}

/// Validates a string and returns its text, borrowed if it has no escapes.
pub(crate) fn text(bytes: &[u8], quoted: Quoted) -> Result<Cow<'_, str>, Error> {
    let raw = checked(bytes, quoted)?;
    if quoted.plain {
        return Ok(Cow::Borrowed(raw));
    }
    unescape(raw).map(Cow::Owned).map_err(|error| invalid(error, quoted.start))
}

/// Validates a string without building its text.
pub(crate) fn validate(bytes: &[u8], quoted: Quoted) -> Result<(), Error> {
    let raw = checked(bytes, quoted)?;
    if quoted.plain {
        return Ok(());
    }
    unescape_to(raw, |_| ()).map_err(|error| invalid(error, quoted.start))
}

/// Returns whether a key equals `name`. Keys are compared unescaped.
#[inline(always)]
pub(crate) fn is(bytes: &[u8], quoted: Quoted, name: &str) -> Result<bool, Error> {
    if !quoted.plain {
        return is_unescaped(bytes, quoted, name);
    }
    // Most keys differ in length.
    Ok(quoted.end - quoted.start == name.len() && bytes.get(quoted.start..quoted.end) == Some(name.as_bytes()))
}

#[cold]
fn is_unescaped(bytes: &[u8], quoted: Quoted, name: &str) -> Result<bool, Error> {
    Ok(text(bytes, quoted)? == name)
}

/// Returns the error of a string whose content starts at `start`.
fn invalid(escape: InvalidEscape, start: usize) -> Error {
    Error::malformed(start + escape.offset, "an invalid escape in a string")
}

/// Returns the length of the text that [`write_string`] writes.
pub(crate) fn written_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        0..0x20 => 6,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

/// Writes a string with its quotes. Escapes only what JSON requires.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    // Without an early exit, the compiler compares many bytes at once.
    let escaped = text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\'));
    match escaped {
        false => out.extend_from_slice(text.as_bytes()),
        true => write_escaped(text, out),
    }
    out.push(b'"');
}

#[cold]
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend([byte >> 4, byte & 15].iter().filter_map(|digit| HEX.get(usize::from(*digit))));
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::write_string;

    #[test]
    fn written_strings_read_back() {
        let all: String = (0..=0xffu8).map(char::from).chain("😀\u{2028}".chars()).collect();
        let mut written = Vec::new();
        write_string(&all, &mut written);
        assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), all);
        assert_eq!(super::written_length(&all), written.len());
    }
}
