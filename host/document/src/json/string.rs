//! Conversion of strings between their escaped form and their text.

use super::token::Quoted;
use crate::Error;
use std::borrow::Cow;

/// Unescapes the content of a JSON string. Errors count from the start of `raw`.
pub(crate) fn unescape(raw: &str) -> Result<String, Error> {
    let mut text = String::with_capacity(raw.len());
    unescape_to(raw, |part| text.push_str(part))?;
    Ok(text)
}

/// Unescapes piece by piece.
pub(crate) fn unescape_to(raw: &str, mut write: impl FnMut(&str)) -> Result<(), Error> {
    let mut rest = raw;
    while let Some(plain) = memchr::memchr(b'\\', rest.as_bytes()) {
        write(rest.get(..plain).unwrap_or_default());
        let escape = rest.get(plain..).unwrap_or_default();
        let offset = raw.len() - escape.len();
        let (text, length) =
            escaped(escape).ok_or_else(|| Error::malformed(offset, "an invalid escape in a string"))?;
        write(text.encode_utf8(&mut [0; 4]));
        rest = escape.get(length..).unwrap_or_default();
    }
    write(rest);
    Ok(())
}

/// Returns the character of an escape, and the length of the escape.
fn escaped(escape: &str) -> Option<(char, usize)> {
    let text = match escape.as_bytes().get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return code_point(escape),
        _ => return None,
    };
    Some((text, 2))
}

/// Parses `\uXXXX`, or a surrogate pair of them. Half a pair is an error, because parsers disagree about it.
fn code_point(escape: &str) -> Option<(char, usize)> {
    let first = hex4(escape.get(2..6)?)?;
    if !(0xd800..0xe000).contains(&first) {
        return Some((char::from_u32(first)?, 6));
    }
    let second = hex4(escape.get(6..12)?.strip_prefix("\\u")?)?;
    if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12))
}

fn hex4(digits: &str) -> Option<u32> {
    // `from_str_radix` alone would accept a sign.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

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
    unescape(raw).map(Cow::Owned).map_err(|error| shifted(error, quoted.start))
}

/// Validates a string without building its text.
pub(crate) fn validate(bytes: &[u8], quoted: Quoted) -> Result<(), Error> {
    let raw = checked(bytes, quoted)?;
    if quoted.plain {
        return Ok(());
    }
    unescape_to(raw, |_| ()).map_err(|error| shifted(error, quoted.start))
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

fn shifted(error: Error, by: usize) -> Error {
    match error {
        Error::Malformed { offset, reason } => Error::Malformed { offset: offset + by, reason },
        other => other,
    }
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
    const HEX: [u8; 16] = *b"0123456789abcdef";
    out.push(b'"');
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
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{unescape, write_string};

    #[test]
    fn escapes_become_the_characters_they_stand_for() {
        assert_eq!(unescape(r#"a\"\\\/\b\f\n\r\tz"#).unwrap(), "a\"\\/\u{8}\u{c}\n\r\tz");
        assert_eq!(unescape(r"\u0041\u00fC\ud83d\ude00\u0000").unwrap(), "Aü😀\0");
    }

    #[test]
    fn invalid_escapes_and_half_pairs_are_refused() {
        for raw in
            [r"\x", r"\", r"\u12", r"\u12g4", r"\u+123", r"\ud800", r"\udc00", r"\ud800\u0041", r"\ud800x", "\\uü12"]
        {
            assert!(unescape(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn written_strings_read_back() {
        let all: String = (0..=0xffu8).map(char::from).chain("😀\u{2028}".chars()).collect();
        let mut written = Vec::new();
        write_string(&all, &mut written);
        assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), all);
        assert_eq!(super::written_length(&all), written.len());
    }
}
