//! Replaces one value in a YAML text. It works on lines, not on a parsed tree, so that all other text and all comments
//! keep their bytes. The time is linear in the text. Mappings in flow style, JSON among them, are those of `flow`.

use crate::flow;

const KEY: &str = "nodePortAddresses";

/// Sets `nodePortAddresses` to these addresses, in any YAML form of the old value, or appends the key. Comments inside
/// the old value keep their lines. The error gives the reason why the text cannot be edited.
pub(crate) fn with_addresses(config: &str, addresses: &[String]) -> Result<String, String> {
    let mut value = String::from("[");
    for address in addresses {
        let separator = if value.len() > 1 { ", \"" } else { "\"" };
        value = value + separator + address + "\"";
    }
    value.push(']');

    let lines: Vec<&str> = config.split_inclusive('\n').collect();
    let body = Mapping::find(&lines);
    match lines.get(body.first).map(|line| line.trim_start()) {
        Some(start) if start.starts_with('{') => {
            let open = lines.iter().take(body.first).map(|line| line.len()).sum::<usize>() + body.indent;
            return flow::with_value(config, open, KEY, &value);
        }
        Some(start) if start.starts_with('[') => return Err("a list instead of a mapping".to_owned()),
        _ => {}
    }
    let mut keys = (body.first..body.end).filter_map(|at| {
        let line = lines.get(at).filter(|line| indent(line) == body.indent)?;
        value_offset(line).map(|offset| (at, offset))
    });
    let result = match (keys.next(), keys.next()) {
        (None, _) => added(&lines, &body, &value),
        (Some((at, offset)), None) => replaced(&lines, &body, at, offset, &value)?,
        (Some(_), Some(_)) => return Err(format!("{KEY} is there twice")),
    };
    Ok(result)
}

/// The lines of the top-level mapping in the first document.
struct Mapping {
    first: usize,
    end: usize,
    indent: usize,
}

impl Mapping {
    fn find(lines: &[&str]) -> Self {
        let marker = |line: &&str, mark: &str| {
            line.strip_prefix(mark).is_some_and(|rest| rest.trim_start().len() < rest.len() || rest.is_empty())
        };
        let first = lines.iter().position(|line| !is_idle(line) && !line.starts_with('%') && !marker(line, "---"));
        let Some(first) = first else {
            return Self { first: lines.len(), end: lines.len(), indent: 0 };
        };
        let start = lines.get(first).copied().unwrap_or_default();
        let ends = |line: &&str| marker(line, "---") || marker(line, "...");
        let end = lines.iter().skip(first).position(ends).map_or(lines.len(), |length| first + length);
        // In flow style, white space may also be tabs.
        let indent =
            if start.trim_start().starts_with('{') { start.len() - start.trim_start().len() } else { indent(start) };
        Self { first, end, indent }
    }
}

/// Appends lines unchanged.
fn keep(result: &mut String, lines: &[&str]) {
    lines.iter().for_each(|line| result.push_str(line));
}

/// Returns the text with a new line at the end of the mapping.
fn added(lines: &[&str], body: &Mapping, value: &str) -> String {
    let (before, after) = lines.split_at_checked(body.end).unwrap_or((lines, &[]));
    let line_end = if before.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
    let mut result = String::new();
    keep(&mut result, before);
    if !result.is_empty() && !result.ends_with('\n') {
        result.push_str(line_end);
    }
    (0..body.indent).for_each(|_| result.push(' '));
    keep(&mut result, &[KEY, ": ", value, line_end]);
    keep(&mut result, after);
    result
}

/// Returns the text with a new value for the key in line `at`, whose old value starts at `offset`.
fn replaced(lines: &[&str], body: &Mapping, at: usize, offset: usize, value: &str) -> Result<String, String> {
    let (before, rest) = lines.split_at_checked(at).unwrap_or((lines, &[]));
    let (before_value, after_key) = rest.first().and_then(|line| line.split_at_checked(offset)).unwrap_or_default();
    let mut scan = Scan::default();
    let comment = scan.line(after_key)?;
    // In the key's line, white space and a comment after the old value stay.
    let mut result = String::new();
    keep(&mut result, before);
    keep(&mut result, &[before_value, " ", value, after_key.get(comment..).unwrap_or_default()]);

    // In the further lines of the value, comments stay, and lines without a comment are removed.
    let block_at_key = scan.empty;
    let mut left = rest.get(1..).unwrap_or_default();
    while let Some((line, after)) = left.split_first()
        && lines.len() - left.len() < body.end
    {
        let deeper = indent(line) > body.indent || (block_at_key && indent(line) == body.indent && is_item(line));
        if !scan.is_open() && !is_idle(line) && !deeper {
            break;
        }
        // A number sign inside quotes does not start a comment.
        let idle = is_idle(line) && scan.quote.is_none();
        let comment = scan.line(line)?;
        if idle {
            result.push_str(line);
        } else if let Some(comment) = line.get(comment..).filter(|comment| !comment.trim().is_empty()) {
            keep(&mut result, &[line.get(..indent(line)).unwrap_or_default(), comment.trim_start()]);
        }
        left = after;
    }
    if scan.is_open() {
        return Err(format!("the value of {KEY} has no end"));
    }
    keep(&mut result, left);
    Ok(result)
}

/// Returns the offset of the key's value in the line, after the colon. Returns none if the line has another key.
fn value_offset(line: &str) -> Option<usize> {
    let text = line.trim_start_matches(' ');
    let quote = text.get(..1).filter(|quote| matches!(*quote, "\"" | "'")).unwrap_or_default();
    let rest = text.strip_prefix(quote)?.strip_prefix(KEY)?.strip_prefix(quote)?;
    let value = rest.trim_start().strip_prefix(':')?;
    (value.is_empty() || value.starts_with([' ', '\t', '\r', '\n'])).then_some(line.len() - value.len())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns whether the line is blank or only a comment.
fn is_idle(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

/// Returns whether the line is an element of a block sequence.
fn is_item(line: &str) -> bool {
    line.trim_start().strip_prefix('-').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// A scan over the lines of a value. Brackets and quotes may span lines.
struct Scan {
    /// Whether the scan has seen nothing of the value so far.
    empty: bool,
    depth: usize,
    quote: Option<u8>,
}

impl Default for Scan {
    fn default() -> Self {
        Self { empty: true, depth: 0, quote: None }
    }
}

impl Scan {
    fn is_open(&self) -> bool {
        self.depth > 0 || self.quote.is_some()
    }

    /// Scans one line. Returns the offset of its comment, including the white space before it, or the end of the line.
    fn line(&mut self, line: &str) -> Result<usize, String> {
        let mut previous = b' ';
        let mut escaped = false;
        let mut value_end = 0;
        for (at, byte) in line.bytes().enumerate() {
            let after_gap = matches!(previous, b' ' | b'\t');
            match (self.quote, byte) {
                (Some(_), _) if escaped => escaped = false,
                (Some(b'"'), b'\\') => escaped = true,
                (Some(quote), _) if quote == byte => self.quote = None,
                (Some(_), _) => {}
                (None, b'#') if after_gap => break,
                (None, b' ' | b'\t' | b'\r' | b'\n') => {}
                (None, b'&' | b'*' | b'!' | b'|' | b'>' | b'{' | b'?' | b'%' | b'@' | b'`') if self.empty => {
                    return Err(format!("cannot edit a value of {KEY} that starts with `{}`", char::from(byte)));
                }
                (None, b'"' | b'\'') if after_gap || matches!(previous, b'[' | b',') => self.quote = Some(byte),
                (None, b'[') if self.empty || self.depth > 0 => self.depth += 1,
                (None, b']') => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.quote.is_some() || !byte.is_ascii_whitespace() {
                self.empty = false;
                value_end = at + 1;
            }
            previous = byte;
        }
        // The line's end belongs to an open quote, but otherwise stays in the text.
        Ok(value_end.min(line.trim_end_matches(['\r', '\n']).len()))
    }
}

#[cfg(test)]
mod tests;
