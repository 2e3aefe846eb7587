//! The escapes of JSON strings, as text. JSON and the quoted names of paths share them. Keeps no state.

/// An escape that JSON does not define, or half a surrogate pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidEscape {
    /// The byte offset of its backslash.
    pub(crate) offset: usize,
}

/// Unescapes the content of a JSON string.
pub(crate) fn unescape(raw: &str) -> Result<String, InvalidEscape> {
    let mut text = String::with_capacity(raw.len());
    unescape_to(raw, |part| text.push_str(part))?;
    Ok(text)
}

/// Unescapes piece by piece.
pub(crate) fn unescape_to(raw: &str, mut write: impl FnMut(&str)) -> Result<(), InvalidEscape> {
    let mut rest = raw;
    while let Some(plain) = memchr::memchr(b'\\', rest.as_bytes()) {
        write(rest.get(..plain).unwrap_or_default());
        let escape = rest.get(plain..).unwrap_or_default();
        let (text, length) = escaped(escape).ok_or(InvalidEscape { offset: raw.len() - escape.len() })?;
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

#[cfg(test)]
mod tests {
    use super::unescape;

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
    fn the_offset_is_that_of_the_backslash() {
        assert_eq!(unescape(r"ab\n\x").unwrap_err().offset, 4);
    }
}
