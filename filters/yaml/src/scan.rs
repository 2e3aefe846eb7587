//! Finds the entries of a key in the events of a YAML parser.

use std::ops::Range;

use granit_parser::{Event, ScalarStyle, Span, StructureStyle};

use super::part;

/// An entry of a mapping with the key that was searched, as byte offsets in the text.
pub(super) struct Entry {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    /// There is no value: nothing after the colon, which YAML reads as null.
    pub(super) is_absent: bool,
    /// Inside `{…}` or `[…]`.
    pub(super) flow: bool,
    /// There is an anchor or a tag before the value.
    pub(super) has_properties: bool,
    /// The scalars of the value, if the entry is at the top: a number sign in one of them begins no comment.
    scalars: Vec<Range<usize>>,
}

/// The entries of a key that are searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Searched {
    /// Those of the mapping that the document is.
    Top,
    /// Those at any depth whose value is no collection, and something else than null and an empty text.
    Scalars,
}

/// What an alias refers to.
#[derive(Clone, Copy, Default)]
struct Anchor {
    /// The key that is searched.
    is_named: bool,
    /// A part of a value that is found, and that the edit removes.
    is_found: bool,
}

/// An open collection.
struct Open {
    kind: Kind,
    flow: bool,
    /// The entry whose value it is.
    entry: Option<usize>,
}

enum Kind {
    /// Whether its next node is a key, and the position of the last key if it is the one that is searched.
    Mapping {
        at_key: bool,
        key: Option<Range<usize>>,
    },
    Sequence,
}

/// What a document is.
pub(super) enum Root {
    /// Nothing, or only comments.
    Empty,
    Mapping {
        start: usize,
        flow: bool,
    },
    Other(&'static str),
}

/// A node, as far as its parent is concerned.
#[derive(Default)]
struct Node {
    /// It is the searched key, if it is a key.
    is_named: bool,
    is_absent: bool,
    is_scalar: bool,
    has_properties: bool,
}

/// What is found in a text.
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    pub(super) key: &'a str,
    searched: Searched,
    pub(super) entries: Vec<Entry>,
    open: Vec<Open>,
    /// By the parser's number.
    anchors: Vec<Anchor>,
    /// Why the entries cannot lose their values: an alias elsewhere refers to one of them.
    pub(super) refusal: Option<String>,
    pub(super) root: Root,
    /// The end of the last node that has text.
    pub(super) last: usize,
    /// The same without the end of the last collection in flow style.
    pub(super) before_last: usize,
    /// The last node that has text is a block scalar.
    pub(super) ends_in_block_scalar: bool,
    /// The entry at the top to which all nodes belong until the next key.
    inside: Option<usize>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, key: &'a str, searched: Searched) -> Self {
        Self {
            text,
            key,
            searched,
            entries: Vec::new(),
            open: Vec::new(),
            anchors: Vec::new(),
            refusal: None,
            root: Root::Empty,
            last: 0,
            before_last: 0,
            ends_in_block_scalar: false,
            inside: None,
        }
    }

    pub(super) fn visit(&mut self, event: &Event<'_>, span: &Span) {
        // The parser has the whole text, so it knows all offsets.
        let (line, span) = (span.start.line(), &span.byte_range().unwrap_or_default());
        match event {
            Event::MappingStart(style, anchor, tag) => {
                let kind = Kind::Mapping { at_key: true, key: None };
                self.begin(kind, *style, *anchor, tag.is_some(), span);
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.begin(Kind::Sequence, *style, *anchor, tag.is_some(), span);
            }
            Event::MappingEnd | Event::SequenceEnd => self.end(span),
            Event::Scalar(value, style, anchor, tag) => {
                let content = span;
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let span = &if is_block { block_scalar(self.text, content) } else { content.clone() };
                let null =
                    *style == ScalarStyle::Plain && tag.is_none() && matches!(&**value, "~" | "null" | "Null" | "NULL");
                let (is_named, has_properties) = (value == self.key, *anchor != 0 || tag.is_some());
                if self.open.is_empty() && (!span.is_empty() || has_properties) {
                    self.root = Root::Other("a text");
                }
                let is_scalar = !null && !value.is_empty();
                let entry = self.node(Node { is_named, is_absent: span.is_empty(), is_scalar, has_properties }, span);
                self.anchor(*anchor, Anchor { is_named, is_found: entry.or(self.inside).is_some() });
                if let Some(entry) = self.inside.and_then(|inside| self.entries.get_mut(inside)) {
                    entry.scalars.push(content.clone());
                }
                self.leave(span, is_block);
            }
            Event::Alias(anchor) => self.alias(self.anchors.get(*anchor).copied().unwrap_or_default(), line, span),
            Event::UnresolvedAlias(_) => self.alias(Anchor::default(), line, span),
            _ => {}
        }
    }

    /// Notes what the anchor of a node is.
    fn anchor(&mut self, number: usize, anchor: Anchor) {
        // The parser counts from 1: 0 is a node without an anchor.
        if number != 0 {
            self.anchors.resize(number, Anchor::default());
            self.anchors.push(anchor);
        }
    }

    fn alias(&mut self, anchor: Anchor, line: usize, span: &Range<usize>) {
        let node = Node { is_named: anchor.is_named, is_scalar: true, ..Node::default() };
        let found = self.node(node, span).or(self.inside);
        if anchor.is_found && found.is_none() && self.refusal.is_none() {
            let name = part(self.text, span.start + 1..span.end);
            let reason = format!("the anchor &{name} in the value of {} is used elsewhere, in line {line}", self.key);
            self.refusal = Some(reason);
        }
        self.leave(span, false);
    }

    /// Begins a collection, which is a node of the innermost one.
    fn begin(&mut self, kind: Kind, style: StructureStyle, anchor: usize, has_tag: bool, span: &Range<usize>) {
        let flow = style == StructureStyle::Flow || self.open.last().is_some_and(|open| open.flow);
        if self.open.is_empty() {
            self.root = match kind {
                Kind::Mapping { .. } => Root::Mapping { start: span.start, flow },
                Kind::Sequence => Root::Other("a list"),
            };
        }
        let has_properties = anchor != 0 || has_tag;
        let entry = self.node(Node { has_properties, ..Node::default() }, span);
        self.anchor(anchor, Anchor { is_found: self.inside.is_some(), ..Anchor::default() });
        self.open.push(Open { kind, flow, entry });
    }

    /// Ends the innermost collection.
    fn end(&mut self, span: &Range<usize>) {
        let Some(Open { flow, entry, .. }) = self.open.pop() else { return };
        if flow {
            self.before_last = std::mem::replace(&mut self.last, span.end);
        }
        let Some(entry) = entry.and_then(|entry| self.entries.get_mut(entry)) else { return };
        // A block ends where the next node begins, after comments that are not its own. Items without a value have no text.
        let rest = part(self.text, self.last..span.start.max(self.last));
        let own = rest.split_inclusive('\n').scan(0, |at, line| {
            *at += line.len();
            Some((*at - line.len() + line.trim_end().len(), line))
        });
        let own = own.filter(|(_, line)| !is_idle(line)).last().map_or(0, |(end, _)| end);
        entry.value.end = self.last + if flow { 0 } else { own };
    }

    /// The end of a node that is no collection.
    fn leave(&mut self, span: &Range<usize>, is_block_scalar: bool) {
        if !span.is_empty() {
            (self.last, self.ends_in_block_scalar) = (span.end, is_block_scalar);
        }
    }

    /// Visits a node of the innermost collection. Returns its entry if it is a value of the searched key.
    fn node(&mut self, node: Node, span: &Range<usize>) -> Option<usize> {
        let top = self.open.len() == 1;
        let Some(Open { kind: Kind::Mapping { at_key, key }, flow, .. }) = self.open.last_mut() else { return None };
        *at_key = !*at_key;
        if !*at_key {
            *key = node.is_named.then(|| span.clone());
            if top {
                self.inside = None;
            }
            return None;
        }
        let Node { is_absent, is_scalar, has_properties, .. } = node;
        let (key, value, scalars) = (key.take()?, span.clone(), Vec::new());
        let is_searched = if self.searched == Searched::Top { top } else { is_scalar };
        if !is_searched {
            return None;
        }
        self.entries.push(Entry { key, value, is_absent, flow: *flow, has_properties, scalars });
        let entry = self.entries.len() - 1;
        if top {
            self.inside = Some(entry);
        }
        Some(entry)
    }
}

impl Entry {
    /// Whether the position is inside a scalar of the value.
    pub(super) fn is_inside(&self, at: usize) -> bool {
        let next = self.scalars.partition_point(|scalar| scalar.end <= at);
        self.scalars.get(next).is_some_and(|scalar| scalar.start < at)
    }
}

/// A block scalar from its indicator to the end of its last line. What the parser says begins with the first word of the text, and ends
/// where the next node begins.
fn block_scalar(text: &str, content: &Range<usize>) -> Range<usize> {
    let mut at = content.start;
    let header = part(text, 0..at).split_inclusive('\n').rev().find(|line| {
        at -= line.len();
        !is_idle(line)
    });
    let indicator = header.and_then(|line| {
        let signs = line.match_indices(['|', '>']).map(|(position, _)| position + 1);
        signs
            .map(|end| {
                (end, part(line, end..line.len()).trim_start_matches(|c: char| c.is_ascii_digit() || "+-".contains(c)))
            })
            .find(|(_, rest)| is_idle(rest) && !rest.starts_with('#'))
    });
    let Some((after, rest)) = indicator else { return content.clone() };
    let written = part(text, content.clone()).trim_end().len();
    let end = if written > 0 { content.start + written } else { at + header.map_or(0, str::len) - rest.len() };
    at + after - 1..end
}

/// Whether the line is blank or only a comment.
pub(super) fn is_idle(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}
