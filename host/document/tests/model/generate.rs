//! Random documents with few names, so that paths match them. Random spellings and paths.

use proptest::prelude::*;
use serde_json::{Map, Value as Tree};

const NAMES: [&str; 8] = ["a", "b", "c", "metadata", "name", "x.io/y", "ü", "\"\\\n"];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(&NAMES[..3]), 1 => prop::sample::select(&NAMES[..])].prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::from),
        // Exact in binary, because the model rounds numbers.
        any::<i32>().prop_map(|quarters| Tree::from(f64::from(quarters) / 4.0)),
        "[a-c]{0,3}".prop_map(Tree::from),
        ".{0,12}".prop_map(Tree::from),
        any::<String>().prop_map(Tree::from),
    ]
}

/// Generates one value.
pub(crate) fn value() -> impl Strategy<Value = Tree> {
    leaf().prop_recursive(5, 80, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::from),
            members(inner.clone()).prop_map(Tree::Object),
            // Arrays of objects, as in Kubernetes.
            prop::collection::vec(members(inner).prop_map(Tree::Object), 0..5).prop_map(Tree::from),
        ]
    })
}

fn members(value: impl Strategy<Value = Tree>) -> impl Strategy<Value = Map<String, Tree>> {
    prop::collection::vec((name(), value), 0..5).prop_map(|members| members.into_iter().collect())
}

/// Generates a whole document.
pub(crate) fn object() -> impl Strategy<Value = Tree> {
    members(value()).prop_map(Tree::Object)
}

/// Generates an expression without a leading `$`, with at least one segment.
pub(crate) fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        5 => name().prop_map(|name| {
            let escaped = name.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            format!("['{escaped}']")
        }),
        1 => (0..3usize).prop_map(|index| format!("[{index}]")),
        3 => Just("[*]".to_owned()),
    ];
    (name(), prop::collection::vec(segment, 0..5)).prop_map(|(first, rest)| {
        let escaped = first.replace('\\', "\\\\").replace('\n', "\\n");
        format!("['{escaped}']{}", rest.concat())
    })
}

/// Generates a byte to overwrite another, or none to truncate there.
pub(crate) fn bad_byte() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![
        prop::sample::select(b"\"\\{}[]:, 0-.eu\n\xff\x00".as_slice()).prop_map(Some),
        any::<u8>().prop_map(Some),
        Just(None),
    ]
}

/// Writes a value with random white space and escapes.
pub(crate) fn spell(value: &Tree, seed: u64) -> String {
    let mut speller = Speller { state: seed | 1, plain: seed.is_multiple_of(4), out: String::new() };
    speller.value(value);
    speller.out
}

struct Speller {
    state: u64,
    plain: bool,
    out: String,
}

impl Speller {
    fn draw(&mut self, of: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        if self.plain { of - 1 } else { self.state % of }
    }

    fn space(&mut self) {
        let space = match self.draw(8) {
            0 => " ",
            1 => "\n  ",
            2 => "\t\r\n",
            _ => "",
        };
        self.out.push_str(space);
    }

    fn value(&mut self, value: &Tree) {
        match value {
            Tree::Object(members) => {
                self.out.push('{');
                self.space();
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        self.out.push(',');
                        self.space();
                    }
                    self.text(name);
                    self.space();
                    self.out.push(':');
                    self.space();
                    self.value(value);
                    self.space();
                }
                self.out.push('}');
            }
            Tree::Array(elements) => {
                self.out.push('[');
                self.space();
                for (i, value) in elements.iter().enumerate() {
                    if i > 0 {
                        self.out.push(',');
                        self.space();
                    }
                    self.value(value);
                    self.space();
                }
                self.out.push(']');
            }
            Tree::String(text) => self.text(text),
            other => self.out.push_str(&other.to_string()),
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\' | '\u{0}'..='\u{1f}') || self.draw(10) == 0 {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.out.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                self.out.push(c);
            }
        }
        self.out.push('"');
    }
}
