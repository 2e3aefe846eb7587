//! Random objects of the kinds that filters handle. All reads of the JSON and the protobuf document return the same,
//! and the same edits give the same object.

use super::*;
use crate::{
    Error, Path, Rows, StringSet, Value,
    protobuf::schema::{Cardinality, Field, Message, ValueType},
};
use proptest::prelude::*;
use serde_json::{Map, Value as Tree, json};

const KINDS: [(&str, &str); 7] = [
    ("v1", "Service"),
    ("v1", "Endpoints"),
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Node"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("apps/v1", "StatefulSet"),
];

const KEYS: [&str; 3] = ["a", "x.io/y", "zone"];

/// Makes choices from a number. proptest provides the seed, and need not shrink the content of an object.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    fn object(&mut self, message: &Message, full: usize) -> Tree {
        let mut out = Map::new();
        for field in &message.fields {
            let wanted = field.name == "metadata" || field.name == "spec" || self.below(10) < full;
            if wanted {
                out.insert(field.name.into(), self.field(field, full));
            }
        }
        Tree::Object(out)
    }

    fn field(&mut self, field: &Field, full: usize) -> Tree {
        let less = full.saturating_sub(1).max(1);
        match field.cardinality {
            Cardinality::One => self.value(field.kind, less),
            Cardinality::List => (0..self.below(4)).map(|_| self.value(field.kind, less)).collect(),
            Cardinality::Map => {
                let count = self.below(4);
                Tree::Object(KEYS[..count].iter().map(|key| ((*key).into(), self.value(field.kind, less))).collect())
            }
        }
    }

    fn value(&mut self, kind: ValueType, full: usize) -> Tree {
        match kind {
            ValueType::Bool => json!(self.below(2) == 0),
            ValueType::Int32 => self.of(&[json!(0), json!(80), json!(-1), json!(i32::MIN)]),
            ValueType::Int64 => self.of(&[json!(0), json!(1), json!(i64::MIN), json!(i64::MAX)]),
            ValueType::Text => self.of(&[json!(""), json!("a"), json!("10.0.0.1"), json!("ü\"\n")]),
            ValueType::Bytes => self.of(&[json!(""), json!("AAECAw==")]),
            ValueType::Strings => json!(["a"]),
            ValueType::Time => self.of(&[json!("2024-02-29T01:02:03Z"), json!("1969-12-31T23:59:59Z")]),
            ValueType::MicroTime => json!("2024-02-29T01:02:03.000405Z"),
            ValueType::Quantity => self.of(&[json!("0"), json!("250m"), json!("1Gi")]),
            ValueType::IntOrString => self.of(&[json!(0), json!(8080), json!("http"), json!("")]),
            ValueType::Raw => json!({"f:spec": {"x": [1, "a", null]}}),
            ValueType::Message(number) => self.object(schema::message(number), full),
        }
    }

    /// Returns a path by the schema and a value that an edit may write there. Some paths lead nowhere.
    fn path(&mut self, message: &'static Message) -> (String, Option<(&'static Field, bool)>) {
        let mut path = String::from("$");
        let mut message = message;
        loop {
            let field = &message.fields[self.below(message.fields.len())];
            path += &format!(".{}", field.name);
            let stop = self.below(5) == 0;
            let mut whole = true;
            match field.cardinality {
                Cardinality::One => {}
                _ if stop => return (path, Some((field, true))),
                Cardinality::List => {
                    path += self.of(&["[*]", "[*]", "[*]", "[0]", "[1]"]);
                    whole = false;
                }
                Cardinality::Map => {
                    path += &format!("['{}']", self.of(&KEYS));
                    whole = false;
                }
            }
            match field.kind {
                ValueType::Message(number) if !stop => message = schema::message(number),
                ValueType::Strings => return (path, None),
                ValueType::Raw if !stop => return (path + "['f:spec'].x[*]", None),
                _ if self.below(12) == 0 => return (path + self.of(&[".nothing", "[*]", "[0].x"]), None),
                _ => return (path, Some((field, whole))),
            }
        }
    }
}

/// Returns the results of all reads as text, including errors without their positions.
fn reads(document: &Document, path: &Path) -> Vec<String> {
    let column = document.column(path).unwrap();
    let one = path.wildcards() == 0;
    let mut keys = if one { document.keys(path).unwrap() } else { Vec::new() };
    keys.sort();
    vec![
        format!("{:?}", column.iter().collect::<Vec<_>>()),
        format!("{:?}", document.lengths(path).unwrap()),
        format!("{keys:?}"),
        format!("{:?}", document.fingerprint(path).unwrap()),
        format!("{:?}", if one { document.get(path).unwrap() } else { None }),
        format!("{:?}", if one { document.text(path).unwrap() } else { None }),
        format!("{:?}", (document.name().unwrap(), document.namespace().unwrap(), document.kind().unwrap())),
        format!("{:?}", (document.label("a").unwrap(), document.annotation("x.io/y").unwrap())),
    ]
}

fn written(value: &Tree) -> Value {
    match value {
        Tree::Null => Value::Null,
        Tree::Bool(value) => Value::Boolean(*value),
        Tree::Number(number) => Value::Number(number.to_string()),
        Tree::String(text) => Value::Text(text.clone()),
        other => Value::Json(other.to_string()),
    }
}

fn edit(document: &mut Document, kind: usize, path: &Path, bits: &[u8], value: &Value) -> Result<u32, Error> {
    match kind {
        0 => document.set(path, value).map(|()| 0),
        1 => document.set_rows(path, &Rows::from_bits(bits), value).map(|()| 0),
        2 => document.remove(path),
        3 => document.remove_rows(path, &Rows::from_bits(bits)),
        4 => document.retain(path, &Rows::from_bits(bits)).map(|()| 0),
        _ => document.append(path, value).map(|()| 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn reads_of_both_forms_agree(seed in 1u64.., kind in 0..KINDS.len()) {
        let mut random = Random(seed);
        let type_meta = type_meta(KINDS[kind].0, KINDS[kind].1);
        let message = schema::find(&type_meta).unwrap();
        let model = normal::object(&type_meta, &random.object(message, 6));
        let text = model.to_string();
        let (protobuf, json) = (document(&type_meta, &text), Document::json(text.clone().into()).with_rules(&IDENTITY));
        prop_assert_eq!(&protobuf.to_json().unwrap(), &text);
        for _ in 0..40 {
            let expression = random.path(message).0;
            let path = Path::parse(&expression).unwrap();
            prop_assert_eq!(reads(&protobuf, &path), reads(&json, &path), "{} {}", expression, text);
        }
    }

    #[test]
    fn retain_in_equals_column_and_retain_in_both_encodings(seed in 1u64.., kind in 0..KINDS.len()) {
        let mut random = Random(seed);
        let type_meta = type_meta(KINDS[kind].0, KINDS[kind].1);
        let message = schema::find(&type_meta).unwrap();
        let text = normal::object(&type_meta, &random.object(message, 6)).to_string();
        for _ in 0..20 {
            let path = Path::parse(&random.path(message).0).unwrap();
            for form in [document(&type_meta, &text), Document::json(text.clone().into()).with_rules(&IDENTITY)] {
                let column = form.column(&path).unwrap();
                let texts: StringSet = column.iter().flatten().filter(|_| random.below(2) == 0).collect();
                let keep = column.rows(|cell| cell.is_some_and(|cell| texts.contains(cell)));
                let (mut one, mut other) = (form.clone(), form);
                prop_assert_eq!(one.retain_in(&path, &texts), other.retain(&path, &keep), "{} {}", path.text(), text);
                prop_assert_eq!(one.bytes(), other.bytes());
                prop_assert_eq!(one.is_edited(), other.is_edited());
            }
        }
    }

    #[test]
    fn edits_of_both_forms_agree(seed in 1u64.., kind in 0..KINDS.len()) {
        let mut random = Random(seed);
        let type_meta = type_meta(KINDS[kind].0, KINDS[kind].1);
        let message = schema::find(&type_meta).unwrap();
        let mut text = normal::object(&type_meta, &random.object(message, 6)).to_string();
        let mut protobuf = document(&type_meta, &text);
        for _ in 0..8 {
            let (expression, target) = random.path(message);
            let path = Path::parse(&expression).unwrap();
            let mut json = Document::json(text.clone().into()).with_rules(&IDENTITY);
            let rows = json.column(&path).unwrap().len();
            let bits: Vec<u8> = (0..rows.div_ceil(8)).map(|_| random.below(256) as u8).collect();
            let which = random.below(6);
            let appends = which == 5;
            let value = match target {
                _ if !appends && random.below(8) == 0 => Tree::Null,
                Some((field, true)) if !appends => random.field(field, 4),
                Some((field, _)) => random.value(field.kind, 4),
                None => json!("a"),
            };
            let fits = target.is_some_and(|(field, whole)| !appends || whole && field.cardinality == Cardinality::List);
            let before = (protobuf.bytes().clone(), protobuf.is_edited());
            let of_json = edit(&mut json, which, &path, &bits, &written(&value));
            let of_protobuf = edit(&mut protobuf, which, &path, &bits, &written(&value));
            match (&of_json, &of_protobuf) {
                (Ok(count), Ok(found)) => {
                    prop_assert_eq!(count, found, "{} {} {}", which, expression, text);
                    let edited: Tree = serde_json::from_str(&json.to_json().unwrap()).unwrap();
                    let expected = normal::object(&type_meta, &edited);
                    let found: Tree = serde_json::from_str(&protobuf.to_json().unwrap()).unwrap();
                    prop_assert_eq!(&found, &expected, "{} {} {} {}", which, expression, value, text);
                    if found == serde_json::from_str::<Tree>(&text).unwrap() && which < 2 {
                        prop_assert_eq!(protobuf.is_edited(), before.1, "{} {} {} {}", which, expression, value, text);
                    }
                    text = expected.to_string();
                }
                (Err(_), Err(_)) => prop_assert_eq!(protobuf.bytes(), &before.0),
                // Protobuf cannot encode the edit.
                (Ok(_), Err(error)) => {
                    prop_assert!(!fits, "{} {} {}: {:?}", which, expression, value, error);
                    prop_assert_eq!(protobuf.bytes(), &before.0);
                }
                (Err(error), Ok(_)) => prop_assert!(false, "{} {}: {:?} in JSON alone", which, expression, error),
            }
        }
    }
}
