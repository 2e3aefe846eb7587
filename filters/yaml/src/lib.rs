//! Edits entries of a YAML text, JSON among it, at the positions that a parser finds, so that all other text and all comments keep
//! their bytes. Memory and time are linear in the text.

mod scan;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::ops::Range;

use granit_parser::{Event, Parser, ScanError};

use scan::{Entry, Root, Scan, Searched, is_idle};

/// Returns the text with another value of a key of the mapping that its first document is. The value is in flow style, on one line.
/// The key is added if it is not there. Comments inside the old value keep their lines.
///
/// # Errors
/// The reason why the text cannot be edited.
pub fn set(text: &str, key: &str, value: &str) -> Result<String, String> {
    // Other documents are those of other programs.
    let (scan, end) = scan(text, key, Searched::Top, |error| format!("not YAML: {error}"))?;
    let mut entries = scan.entries.iter();
    match (&scan.root, entries.next(), entries.next()) {
        (Root::Other(kind), ..) => Err(format!("{kind} instead of a mapping")),
        (_, Some(_), Some(_)) => Err(format!("{key} is there twice")),
        (_, Some(entry), None) => scan.replaced(entry, value),
        (Root::Mapping { start, flow: true }, None, _) => Ok(scan.added_to_flow(*start, value)),
        (Root::Mapping { start, flow: false }, None, _) => Ok(scan.added(*start, end, value)),
        (Root::Empty, None, _) if text.lines().all(|line| is_idle(line) || begins_document(line)) => {
            Ok(scan.added(0, text.len(), value))
        }
        (Root::Empty, None, _) => Err("nothing instead of a mapping".to_owned()),
    }
}

/// Returns the text without the entries of a key that have a scalar, at any depth and in all documents; `None` if there are none. An
/// entry with its own lines becomes a comment. Any other entry, such as one in JSON, gets the value `""`.
///
/// # Errors
/// The reason why the text cannot be edited.
pub fn without(text: &str, key: &str) -> Result<Option<String>, String> {
    // Without the parser's message: its texts need 10 KB in a module that has no other use for them.
    let not_yaml = |error: &ScanError| {
        let at = error.marker();
        format!("not YAML: line {}, column {}", at.line(), at.col() + 1)
    };
    let (scan, _) = scan(text, key, Searched::Scalars, not_yaml)?;
    if scan.entries.is_empty() {
        return Ok(None);
    }
    let (mut result, mut done) = (String::with_capacity(text.len() + 64), 0);
    for entry @ Entry { key, value, .. } in &scan.entries {
        if scan.has_own_lines(entry) {
            result.push_str(part(text, done..key.start));
            let entry = part(text, key.start..value.end).trim_end();
            // A value may continue on further lines.
            for (number, line) in entry.split_inclusive('\n').enumerate() {
                let content = line.trim_start_matches(BLANK);
                result.push_str(if number == 0 { "" } else { indentation(line) });
                result.push_str(if content.trim_end().is_empty() { "" } else { "#" });
                result.push_str(content);
            }
            done = key.start + entry.len();
        } else {
            result.push_str(part(text, done..value.start));
            result.push_str("\"\"");
            done = value.end;
        }
    }
    result.push_str(part(text, done..text.len()));
    Ok(Some(result))
}

/// Reads the first document, or all of them if scalars are searched. Returns where it ends, too.
fn scan<'a>(
    text: &'a str,
    key: &'a str,
    searched: Searched,
    not_yaml: impl FnOnce(&ScanError) -> String,
) -> Result<(Scan<'a>, usize), String> {
    // YAML 1.1, which kube-proxy reads, knows them as line breaks; the parser and other tools do not.
    if text.split("\r\n").any(|line| line.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}'])) {
        return Err("it has a line break other than LF and CR LF".to_owned());
    }
    let mut scan = Scan::new(text, key, searched);
    // An alias of nothing is refused by its place, if at all.
    let options = granit_parser::options! { emit_unresolved_aliases: true };
    let mut end = text.len();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match next {
            Ok(next) => next,
            Err(error) => return Err(not_yaml(&error)),
        };
        if searched == Searched::Top && matches!(event, Event::DocumentEnd) {
            // A marker, which has a line of its own, or the end of the text.
            end = span.start.byte_offset().filter(|at| *at < text.len()).map_or(end, |at| scan.line_start(at));
            break;
        }
        scan.visit(&event, &span);
    }
    match scan.refusal.take() {
        Some(reason) => Err(reason),
        None => Ok((scan, end)),
    }
}

impl Scan<'_> {
    /// Returns where the line of a position begins.
    fn line_start(&self, at: usize) -> usize {
        part(self.text, 0..at).rfind('\n').map_or(0, |end| end + 1)
    }

    /// Whether the entry and nothing else is in its lines: only white space before the key, and the colon in the same line.
    fn has_own_lines(&self, entry: &Entry) -> bool {
        let key = &entry.key;
        // A line of a flow collection may have any number of entries, and would be read once for each.
        !entry.flow
            && part(self.text, self.line_start(key.start)..key.start).trim_start().is_empty()
            && part(self.text, key.end..self.text.len()).trim_start_matches(BLANK).starts_with(':')
    }

    /// Returns the text with another value of the entry.
    fn replaced(&self, entry: &Entry, value: &str) -> Result<String, String> {
        let Entry { key, value: old, flow, .. } = entry;
        let colon = self.skip_idle(key.end);
        // In a block, a colon without white space after it begins the next key: this one is explicit, and has no value.
        let is_value = |byte: u8| *flow || byte.is_ascii_whitespace();
        if self.byte(colon) != Some(b':') || !self.byte(colon + 1).is_none_or(is_value) {
            return Err(format!("cannot edit {} without a value", self.key));
        }
        let after = colon + 1;
        let is_empty = entry.is_absent && !entry.has_properties;
        let begin = self.skip_idle(after);
        let refused: &[u8] = if *flow { b"&*!" } else { b"&*!|>{" };
        if let Some(byte) = self.byte(begin).filter(|byte| !is_empty && refused.contains(byte)) {
            return Err(format!("cannot edit a value of {} that starts with `{}`", self.key, char::from(byte)));
        }
        let (begin, end) = match (is_empty, flow) {
            (true, true) => (after, after),
            (false, true) => (old.start, old.end),
            (_, false) => (after, old.end),
        };
        let line_end =
            part(self.text, end..self.text.len()).find('\n').map_or(self.text.len(), |length| end + length + 1);
        // Inside braces, more than a comment may follow in the line.
        let shares_line = *flow && !is_idle(part(self.text, end..line_end));
        let stop = if shares_line { end } else { line_end };
        // In the key's line, white space and a comment after the old value stay. In its further lines, comments stay, and lines
        // without a comment are removed.
        let (mut kept, mut has_comments, mut at) = (String::new(), false, begin);
        for (number, line) in part(self.text, begin..stop).split_inclusive('\n').enumerate() {
            let comment = self.comment(entry, at, line).unwrap_or(line.len());
            let content = part(line, 0..comment).trim_end();
            has_comments |= comment < line.len();
            if number == 0 {
                let rest = part(line, content.len()..line.len());
                kept.push_str(gap(rest));
                kept.push_str(rest);
            } else if comment < line.len() {
                kept.push_str(indentation(line));
                kept.push_str(part(line, comment..line.len()));
            } else if content.is_empty() && !entry.is_inside(at) {
                kept.push_str(line.trim_start_matches(BLANK));
            } else if shares_line && at + line.len() == end {
                kept.push_str(indentation(line));
            }
            at += line.len();
        }
        let kept = if shares_line && !has_comments { "" } else { &kept };
        let space = if *flow && !is_empty { "" } else { " " };
        let (before, rest) = (part(self.text, 0..begin), part(self.text, stop..self.text.len()));
        Ok([before, space, value, kept, rest].concat())
    }

    /// Returns where the comment of a line begins, which begins at `at`.
    fn comment(&self, entry: &Entry, at: usize, line: &str) -> Option<usize> {
        let mut signs = line.match_indices('#').map(|(position, _)| position);
        signs.find(|position| self.begins_comment(at + position) && !entry.is_inside(at + position))
    }

    /// Returns the text with the key at the end of the block mapping that begins at `start`.
    fn added(&self, start: usize, end: usize, value: &str) -> String {
        let line_end = if self.text.split_inclusive('\n').next().is_some_and(|line| line.ends_with("\r\n")) {
            "\r\n"
        } else {
            "\n"
        };
        let indentation = part(self.text, self.line_start(start)..start).trim_start_matches('\u{feff}');
        let before = part(self.text, 0..end);
        let has_line_end = before.is_empty() || before.ends_with('\n');
        let (at, break_before) = match (has_line_end, self.ends_in_block_scalar) {
            (true, _) => (end, ""),
            (false, false) => (end, line_end),
            // A line break would become part of this scalar: the key comes first.
            (false, true) => (start - indentation.len(), ""),
        };
        let (before, after) = (part(self.text, 0..at), part(self.text, at..self.text.len()));
        [before, break_before, indentation, self.key, ": ", value, line_end, after].concat()
    }

    /// Returns the text with the key at the end of the mapping in flow style that begins at `open`.
    fn added_to_flow(&self, open: usize, value: &str) -> String {
        // The mapping has ended, so that its brace is the last text of a node.
        let close = self.last.saturating_sub(1);
        let last = self.before_last.max(open + 1);
        let (mut end, mut separated) = (last, self.before_last <= open);
        let mut at = self.skip_idle(end);
        while at < close {
            (end, separated) = (at + 1, self.byte(at) == Some(b','));
            at = self.skip_idle(end);
        }
        let separator = match (separated, end == open + 1) {
            (true, true) => "",
            (true, false) => " ",
            // YAML 1.1 reads a comma directly after a colon or a tag as a part of it.
            (false, _) if end > last => " , ",
            (false, _) => ", ",
        };
        let (before, after) = (part(self.text, 0..end), part(self.text, end..self.text.len()));
        [before, separator, "\"", self.key, "\": ", value, gap(after), after].concat()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Returns the position after white space and comments.
    fn skip_idle(&self, mut at: usize) -> usize {
        while let Some(byte) = self.byte(at) {
            match byte {
                b'#' if self.begins_comment(at) => {
                    let rest = part(self.text, at..self.text.len());
                    at += rest.find('\n').unwrap_or(rest.len());
                }
                byte if byte.is_ascii_whitespace() => at += 1,
                _ => break,
            }
        }
        at
    }

    /// Whether a number sign outside of scalars begins a comment: not in the name of an anchor, an alias or a tag.
    fn begins_comment(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.byte(before));
        before.is_none_or(|byte| byte.is_ascii_whitespace() || b":,[]{}\"'".contains(&byte))
    }
}

const BLANK: [char; 2] = [' ', '\t'];

/// The spaces with which a line begins. YAML 1.1 refuses a tab before a comment of a block.
fn indentation(line: &str) -> &str {
    part(line, 0..line.len() - line.trim_start_matches(' ').len())
}

/// What must be between a value and the rest of its line: the parser accepts a comment directly after a colon, but not after a value.
fn gap(rest: &str) -> &'static str {
    if rest.starts_with('#') { " " } else { "" }
}

/// Whether a line is a directive, or the marker with which a document begins, and nothing of a node.
fn begins_document(line: &str) -> bool {
    let rest = line.strip_prefix("---");
    line.starts_with('%') || rest.is_some_and(|rest| is_idle(rest) && !rest.starts_with('#'))
}

fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests;
