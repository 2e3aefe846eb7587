//! Text that nobody trusts, made safe for one line of a log or a terminal.

/// Converts text that nobody trusts, of a module or a child process, to one bounded line without control and bidirectional formatting characters, so that it is safe
/// to display.
#[must_use]
pub fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::with_capacity(text.len().min(limit));
    for letter in text.chars() {
        if line.len() + letter.len_utf8() > limit {
            line.push('…');
            break;
        }
        match letter.is_control() || is_invisible(letter) {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
    line
}

/// Whether a character changes the direction of text, or breaks a line, without being a control character: it could make a
/// line look like another one.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_and_has_no_control_characters() {
        assert_eq!(one_line("a\u{1b}[31m\nb", 100), "a\\u{1b}[31m\\nb");
        assert_eq!(one_line(&"x".repeat(20), 5), "xxxxx…");
        assert_eq!(one_line("a\u{202e}b\u{2069}c\u{2028}d", 100), "a\\u{202e}b\\u{2069}c\\u{2028}d");
        assert_eq!(one_line("grün \u{5d0}", 100), "grün \u{5d0}", "other scripts stay");
    }
}
