//! Finds the entries `kubeconfig` of a YAML text with a parser, and edits the text at their positions.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

/// An entry of a mapping with the key `kubeconfig` and a value that is not empty, as byte offsets in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    key: usize,
    value: Range<usize>,
    /// Inside `{…}` or `[…]`.
    flow: bool,
}

/// An open collection.
enum Open {
    /// A mapping: whether its next node is a key, and the position of the last key if it is `kubeconfig`.
    Mapping { at_key: bool, key: Option<usize>, flow: bool },
    /// A sequence.
    Sequence { flow: bool },
}

/// Returns the kubeconfig entries at any depth, in the order of the text.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, ScanError> {
    let (mut entries, mut open) = (Vec::new(), Vec::<Open>::new());
    for next in Parser::new_from_str(text) {
        let (event, span) = next?;
        match event {
            Event::MappingStart(..) => {
                let flow = begins_flow(text, &span, '{') || is_flow(&open);
                node(&mut open, None);
                open.push(Open::Mapping { at_key: true, key: None, flow });
            }
            Event::SequenceStart(..) => {
                let flow = begins_flow(text, &span, '[') || is_flow(&open);
                node(&mut open, None);
                open.push(Open::Sequence { flow });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
            }
            Event::Scalar(value, style, ..) => {
                let flow = is_flow(&open);
                let is_key = (value == "kubeconfig").then_some(bytes(&span).start);
                let null = style == ScalarStyle::Plain && matches!(&*value, "" | "~" | "null" | "Null" | "NULL");
                if let Some(key) = node(&mut open, is_key).filter(|_| !null && !value.is_empty()) {
                    entries.push(Entry { key, value: bytes(&span), flow });
                }
            }
            Event::Alias(_) => {
                let flow = is_flow(&open);
                if let Some(key) = node(&mut open, None) {
                    entries.push(Entry { key, value: bytes(&span), flow });
                }
            }
            _ => {}
        }
    }
    Ok(entries)
}

/// Returns the text without these entries, or none if there are none.
pub(crate) fn without(text: &str, entries: &[Entry]) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let (mut result, mut done) = (String::with_capacity(text.len() + entries.len()), 0);
    for Entry { key, value, flow } in entries {
        // A line of a flow collection may have any number of entries, and would be read once for each.
        let alone = !flow && text.get(..*key)?.rsplit('\n').next()?.chars().all(char::is_whitespace);
        if alone {
            result.push_str(text.get(done..*key)?);
            let entry = text.get(*key..value.end)?.trim_end();
            // A value may continue on further lines.
            for (number, part) in entry.split_inclusive('\n').enumerate() {
                let content = part.trim_start();
                let indentation = part.get(..part.len() - content.len())?;
                result.push_str(if number == 0 { "" } else { indentation });
                result.push_str(if content.is_empty() { "" } else { "#" });
                result.push_str(content);
            }
            done = key + entry.len();
        } else {
            result.push_str(text.get(done..value.start)?);
            result.push_str("\"\"");
            done = value.end;
        }
    }
    result.push_str(text.get(done..)?);
    Some(result)
}

/// Visits a node of the innermost collection. Returns the position of its key if the node is the value of `kubeconfig`.
fn node(open: &mut [Open], kubeconfig: Option<usize>) -> Option<usize> {
    let Some(Open::Mapping { at_key, key, .. }) = open.last_mut() else { return None };
    *at_key = !*at_key;
    if *at_key {
        key.take()
    } else {
        *key = kubeconfig;
        None
    }
}

fn is_flow(open: &[Open]) -> bool {
    matches!(open.last(), Some(Open::Mapping { flow: true, .. } | Open::Sequence { flow: true }))
}

fn begins_flow(text: &str, span: &Span, bracket: char) -> bool {
    text.get(bytes(span).start..).is_some_and(|rest| rest.starts_with(bracket))
}

fn bytes(span: &Span) -> Range<usize> {
    // The parser has the whole text, so it knows all offsets.
    span.start.byte_offset().unwrap_or(0)..span.end.byte_offset().unwrap_or(0)
}
