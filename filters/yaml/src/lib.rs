//! Edits entries of a YAML text, JSON among it, at the positions that a parser finds, so that all other text and all comments keep
//! their bytes. Memory and time are linear in the text.

mod scan;

use std::ops::Range;

use granit_parser::{Event, Parser, ScanError};

use scan::{Entry, Root, Scan, is_idle};

/// Returns the text with another value of a key of the mapping that its first document is. The value is in flow style, on one line.
/// The key is added if it is not there. Comments inside the old value keep their lines.
///
/// # Errors
/// The reason why the text cannot be edited.
pub fn set(text: &str, key: &str, value: &str) -> Result<String, String> {
    // YAML knows it as a line break, as no other tool does.
    if text.split("\r\n").any(|line| line.contains('\r')) {
        return Err("it has a carriage return without a line feed".to_owned());
    }
    let mut scan = Scan::new(text, key);
    // An alias of nothing is refused with all others, by its place.
    let options = granit_parser::options! { emit_unresolved_aliases: true };
    let mut end = text.len();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| format!("not YAML: {error}"))?;
        // Other documents are those of other programs.
        if matches!(event, Event::DocumentEnd) {
            // A marker, which has a line of its own, or the end of the text.
            end = span.start.byte_offset().filter(|at| *at < text.len()).map_or(end, |at| scan.line_start(at));
            break;
        }
        scan.visit(&event, &span);
    }
    let mut entries = scan.entries.iter().filter(|entry| entry.top);
    match (&scan.root, entries.next(), entries.next()) {
        (Root::Other(kind), ..) => Err(format!("{kind} instead of a mapping")),
        (_, Some(_), Some(_)) => Err(format!("{key} is there twice")),
        (_, Some(entry), None) => scan.replaced(entry, value),
        (Root::Mapping { start, flow: true }, None, _) => Ok(scan.added_to_flow(*start, value)),
        (Root::Mapping { start, flow: false }, None, _) => Ok(scan.added(scan.line_start(*start)..*start, end, value)),
        (Root::Empty, None, _) if text.lines().all(|line| is_idle(line) || begins_document(line)) => {
            Ok(scan.added(0..0, text.len(), value))
        }
        (Root::Empty, None, _) => Err("nothing instead of a mapping".to_owned()),
    }
}

/// Returns the text without the entries of a key that have a scalar, at any depth; `None` if there are none. An entry with its own
/// lines becomes a comment. Any other entry, such as one in JSON, gets the value `""`.
///
/// # Errors
/// The text is not YAML.
pub fn without(text: &str, key: &str) -> Result<Option<String>, ScanError> {
    let mut scan = Scan::new(text, key);
    for next in Parser::new_from_str(text) {
        let (event, span) = next?;
        scan.visit(&event, &span);
    }
    let mut entries = scan.entries.iter().filter(|entry| entry.is_scalar).peekable();
    Ok(entries.peek().is_some().then(|| {
        let (mut result, mut done) = (String::with_capacity(text.len() + 64), 0);
        for Entry { key, value, flow, .. } in entries {
            // A line of a flow collection may have any number of entries, and would be read once for each.
            if !flow && scan.begins_line(key.start) {
                result.push_str(part(text, done..key.start));
                let entry = part(text, key.start..value.end).trim_end();
                // A value may continue on further lines.
                for (number, line) in entry.split_inclusive('\n').enumerate() {
                    let content = line.trim_start();
                    let indentation = part(line, 0..line.len() - content.len());
                    result.push_str(if number == 0 { "" } else { indentation });
                    result.push_str(if content.is_empty() { "" } else { "#" });
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
        result
    }))
}

impl Scan<'_> {
    /// Returns where the line of a position begins.
    fn line_start(&self, at: usize) -> usize {
        part(self.text, 0..at).rfind('\n').map_or(0, |end| end + 1)
    }

    /// Whether only white space is before it in its line.
    fn begins_line(&self, at: usize) -> bool {
        part(self.text, self.line_start(at)..at).chars().all(char::is_whitespace)
    }

    /// Returns the text with another value of the entry.
    fn replaced(&self, entry: &Entry, value: &str) -> Result<String, String> {
        let Entry { key, value: old, flow, .. } = entry;
        let colon = self.skip_idle(key.end);
        if self.byte(colon) != Some(b':') {
            return Err(format!("cannot edit {} without a value", self.key));
        }
        let after = colon + 1;
        let is_empty = entry.is_absent && !entry.has_properties;
        let begin = self.skip_idle(after);
        let refused: &[u8] = if *flow { b"&*!" } else { b"&*!|>{" };
        if let Some(byte) = self.byte(begin).filter(|byte| !is_empty && refused.contains(byte)) {
            return Err(format!("cannot edit a value of {} that starts with `{}`", self.key, char::from(byte)));
        }
        let (before, end) = match (is_empty, flow) {
            (true, _) => (part(self.text, 0..after), after),
            (false, true) => (part(self.text, 0..old.start), old.end),
            (false, false) => (part(self.text, 0..after), old.end),
        };
        let mut result = String::with_capacity(self.text.len() + value.len());
        result.push_str(before);
        result.push_str(if *flow && !is_empty { "" } else { " " });
        result.push_str(value);
        if *flow {
            let rest = part(self.text, end..self.text.len());
            result.push_str(gap(rest));
            result.push_str(rest);
            return Ok(result);
        }
        // In the key's line, white space and a comment after the old value stay. In its further lines, comments stay, and lines
        // without a comment are removed.
        let line_end =
            part(self.text, end..self.text.len()).find('\n').map_or(self.text.len(), |length| end + length + 1);
        let mut at = after;
        for (number, line) in part(self.text, after..line_end).split_inclusive('\n').enumerate() {
            let comment = self.comment(entry, at, line).unwrap_or(line.len());
            let content = part(line, 0..comment).trim_end();
            if number == 0 {
                let rest = part(line, content.len()..line.len());
                result.push_str(gap(rest));
                result.push_str(rest);
            } else if content.is_empty() && !entry.is_inside(at) {
                result.push_str(line);
            } else if comment < line.len() {
                result.push_str(part(line, 0..line.len() - line.trim_start().len()));
                result.push_str(part(line, comment..line.len()));
            }
            at += line.len();
        }
        result.push_str(part(self.text, line_end..self.text.len()));
        Ok(result)
    }

    /// Returns where the comment of a line begins, which begins at `at`.
    fn comment(&self, entry: &Entry, at: usize, line: &str) -> Option<usize> {
        let mut signs = line.match_indices('#').map(|(position, _)| position);
        signs.find(|position| self.begins_comment(at + position) && !entry.is_inside(at + position))
    }

    /// Returns the text with the key at the end of a block mapping, whose first line has this indentation.
    fn added(&self, indentation: Range<usize>, end: usize, value: &str) -> String {
        let (before, after) = (part(self.text, 0..end), part(self.text, end..self.text.len()));
        let line_end =
            if before.split_inclusive('\n').next().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
        let indentation = part(self.text, indentation).trim_start_matches('\u{feff}');
        let break_before = if before.is_empty() || before.ends_with('\n') { "" } else { line_end };
        [before, break_before, indentation, self.key, ": ", value, line_end, after].concat()
    }

    /// Returns the text with the key at the end of the mapping in flow style that begins at `open`.
    fn added_to_flow(&self, open: usize, value: &str) -> String {
        // The mapping has ended, so that its brace is the last text of a node.
        let close = self.last.saturating_sub(1);
        let (mut end, mut separated) = (self.before_last.max(open + 1), self.before_last <= open);
        let mut at = self.skip_idle(end);
        while at < close {
            (end, separated) = (at + 1, self.byte(at) == Some(b','));
            at = self.skip_idle(end);
        }
        let separator = match (separated, end == open + 1) {
            (true, true) => "",
            (true, false) => " ",
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
