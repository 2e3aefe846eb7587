//! Replaces one value of a mapping in flow style, such as JSON. It finds the value with a scan over the bytes, so that all
//! other text keeps its bytes. The time is linear in the text.

use std::ops::Range;

/// Sets the key of the mapping whose brace is at `open`, or adds it at the end. The error gives the reason why the text
/// cannot be edited.
pub(crate) fn with_value(text: &str, open: usize, key: &str, value: &str) -> Result<String, String> {
    let scan = Scan(text.as_bytes());
    let mut old: Option<Range<usize>> = None;
    // The end of the last entry, and whether a further one needs no comma before it.
    let (mut end, mut separated) = (open + 1, true);
    let mut at = end;
    loop {
        at = scan.skip_idle(at);
        match scan.byte(at) {
            None => return Err("the mapping has no end".to_owned()),
            Some(b'}') => break,
            Some(b',') => {
                at += 1;
                (end, separated) = (at, true);
                continue;
            }
            Some(_) => {}
        }
        let name = at..scan.node_end(at, true)?;
        let colon = scan.skip_idle(name.end);
        let mut entry_end = name.end;
        if scan.byte(colon) == Some(b':') {
            let found = scan.value(colon + 1)?;
            entry_end = found.end;
            if unquoted(text.get(name).unwrap_or_default()) == key && old.replace(found).is_some() {
                return Err(format!("{key} is there twice"));
            }
        }
        if entry_end == at {
            return Err("the mapping has an unpaired bracket".to_owned());
        }
        at = entry_end;
        (end, separated) = (at, false);
    }
    let (place, new) = match old {
        Some(old) if old.is_empty() => (old, format!(" {value}")),
        Some(old) => {
            if let Some(byte @ (b'&' | b'*' | b'!')) = scan.byte(old.start) {
                return Err(format!("cannot edit a value of {key} that starts with `{}`", char::from(byte)));
            }
            (old, value.to_owned())
        }
        None => {
            let separator = match (separated, end == open + 1) {
                (true, true) => "",
                (true, false) => " ",
                (false, _) => ", ",
            };
            (end..end, format!("{separator}\"{key}\": {value}"))
        }
    };
    let (before, after) = (text.get(..place.start).unwrap_or_default(), text.get(place.end..).unwrap_or_default());
    Ok([before, &new, after].concat())
}

fn unquoted(name: &str) -> &str {
    let inside = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(name)
}

/// The text of a flow mapping.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    /// Returns the position after white space and comments.
    fn skip_idle(&self, mut at: usize) -> usize {
        while let Some(byte) = self.byte(at) {
            match byte {
                b'#' if self.begins_comment(at) => at = self.line_end(at),
                byte if byte.is_ascii_whitespace() => at += 1,
                _ => break,
            }
        }
        at
    }

    fn begins_comment(&self, at: usize) -> bool {
        at.checked_sub(1).and_then(|before| self.byte(before)).is_none_or(|byte| byte.is_ascii_whitespace())
    }

    fn line_end(&self, at: usize) -> usize {
        let rest = self.0.get(at..).unwrap_or_default();
        rest.iter().position(|byte| *byte == b'\n').map_or(self.0.len(), |length| at + length)
    }

    /// Returns the place of the value after a colon: the position after the colon if there is none.
    fn value(&self, after_colon: usize) -> Result<Range<usize>, String> {
        let start = self.skip_idle(after_colon);
        let end = self.node_end(start, false)?;
        Ok(if end > start { start..end } else { after_colon..after_colon })
    }

    /// Returns the end of the node that starts here, without white space and comments after it. A key ends at its colon.
    fn node_end(&self, start: usize, is_key: bool) -> Result<usize, String> {
        let (mut at, mut end, mut depth) = (start, start, 0_usize);
        // A quote inside a plain scalar is none.
        let mut begins = true;
        while let Some(byte) = self.byte(at) {
            match byte {
                b'"' | b'\'' if begins => {
                    at = self.quote_end(at, byte)?;
                    (end, begins) = (at, false);
                    if is_key && depth == 0 {
                        return Ok(end);
                    }
                    continue;
                }
                b'#' if self.begins_comment(at) => {
                    at = self.line_end(at);
                    continue;
                }
                b',' | b'}' | b']' if depth == 0 => return Ok(end),
                b':' if is_key && depth == 0 && self.ends_key(at + 1) => return Ok(end),
                b'{' | b'[' => (depth, begins) = (depth + 1, true),
                b'}' | b']' => (depth, begins) = (depth - 1, false),
                b',' | b':' => begins = true,
                byte if byte.is_ascii_whitespace() => {}
                _ => begins = false,
            }
            at += 1;
            if !byte.is_ascii_whitespace() {
                end = at;
            }
        }
        Err("a value has no end".to_owned())
    }

    fn ends_key(&self, after_colon: usize) -> bool {
        self.byte(after_colon).is_none_or(|byte| byte.is_ascii_whitespace() || b",[]{}".contains(&byte))
    }

    /// Returns the position after the quoted scalar that starts here.
    fn quote_end(&self, start: usize, quote: u8) -> Result<usize, String> {
        let mut at = start + 1;
        while let Some(byte) = self.byte(at) {
            at += match byte {
                b'\\' if quote == b'"' => 2,
                b'\'' if byte == quote && self.byte(at + 1) == Some(quote) => 2,
                byte if byte == quote => return Ok(at + 1),
                _ => 1,
            };
        }
        Err("a quoted text has no end".to_owned())
    }
}
