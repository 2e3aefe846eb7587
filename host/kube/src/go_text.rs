//! Go's `strings` functions on bytes that may not be UTF-8, exactly as kube-apiserver applies them to header values.

/// The white space of Unicode outside ASCII, as `unicode.IsSpace` has it.
const WIDE_SPACES: &[char] = &[
    '\u{85}', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}',
    '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}', '\u{2028}', '\u{2029}', '\u{202f}', '\u{205f}', '\u{3000}',
];

/// `strings.TrimSpace`: removes white space of Unicode at both ends. A byte that is not UTF-8 is no space.
pub(crate) fn trim_space(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = strip_space(text, |text, space| text.strip_prefix(space)) {
        text = rest;
    }
    while let Some(rest) = strip_space(text, |text, space| text.strip_suffix(space)) {
        text = rest;
    }
    text
}

/// `strings.EqualFold` with a text of lower-case ASCII letters: U+017F folds to `s`, U+212A to `k`.
pub(crate) fn equal_fold(text: &[u8], ascii: &str) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let folded = text.chars().map(|char| match char {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        char => char.to_ascii_lowercase(),
    });
    folded.eq(ascii.chars())
}

fn strip_space<'a>(text: &'a [u8], strip: impl Fn(&'a [u8], &[u8]) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
    for ascii in [b" ", b"\t", b"\n", b"\r", b"\x0b", b"\x0c"] {
        if let Some(rest) = strip(text, ascii) {
            return Some(rest);
        }
    }
    let mut utf8 = [0; 4];
    WIDE_SPACES.iter().find_map(|space| strip(text, space.encode_utf8(&mut utf8).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_of_unicode_is_trimmed_and_broken_text_is_not() {
        assert!(WIDE_SPACES.iter().all(|space| space.is_whitespace()));
        for (text, trimmed) in [
            (&b" a b \t\n"[..], &b"a b"[..]),
            ("\u{3000}\u{85} a\u{200b}\u{2028}".as_bytes(), "a\u{200b}".as_bytes()),
            (b"\xa0a\x85", b"\xa0a\x85"),
            (b" \xe2\x80a", b"\xe2\x80a"),
            (b"\x0b\x0c", b""),
            (b"", b""),
        ] {
            assert_eq!(trim_space(text), trimmed, "{text:?}");
        }
    }

    #[test]
    fn letters_fold_as_in_go() {
        for yes in ["websocket", "WebSocket", "web\u{17f}ocket", "websoc\u{212a}et"] {
            assert!(equal_fold(yes.as_bytes(), "websocket"), "{yes}");
        }
        assert!(!equal_fold(b"websocket ", "websocket") && !equal_fold(b"websocke\xff", "websocket"));
    }
}
