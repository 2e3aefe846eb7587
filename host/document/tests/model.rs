//! Compares the engine with a plain model on random documents, paths and sequences of edits. The model is serde_json's
//! value tree.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a test helper fails the test")]

mod model {
    pub(crate) mod edit;
    pub(crate) mod generate;
    pub(crate) mod generate_edit;
    pub(crate) mod read;
}

use bytes::Bytes;
use model::{edit, generate, generate_edit, read};
use proptest::prelude::*;
use serde_json::Value as Tree;
use weir_document::{Document, Error, Path};

fn document(text: &str) -> Document {
    Document::json(Bytes::copy_from_slice(text.as_bytes())).with_rules(&weir_kube::FILTER_EDITS)
}

fn tree(document: &Document) -> Tree {
    serde_json::from_slice(document.bytes()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    /// In any spelling: white space, escapes, numbers.
    #[test]
    fn reads_agree_with_the_model(value in generate::object(), spelling in any::<u64>(), expression in generate::path()) {
        let text = generate::spell(&value, spelling);
        let path = Path::parse(&expression).unwrap();
        let (document, segments) = (document(&text), read::segments(&expression));
        let column = document.column(&path).unwrap();
        let cells: Vec<_> = column.iter().map(|cell| cell.map(str::to_owned)).collect();
        let rows = read::rows(&value, &segments);
        prop_assert_eq!(cells.len(), rows.len());
        for (cell, row) in cells.iter().zip(&rows) {
            prop_assert!(read::is_cell(cell.as_deref(), *row), "{:?} {:?}", cell, row);
        }
        prop_assert_eq!(document.lengths(&path).unwrap(), read::lengths(&value, &segments));
        if path.wildcards() == 0 {
            prop_assert_eq!(document.text(&path).unwrap().map(|text| text.into_owned()), cells[0].clone());
            prop_assert_eq!(document.get(&path).unwrap().is_some(), rows[0].is_some());
            let keys = rows[0].and_then(Tree::as_object).map(|map| map.keys().cloned().collect::<Vec<_>>());
            prop_assert_eq!(document.keys(&path).unwrap(), keys.unwrap_or_default());
        } else {
            let refused = matches!(document.get(&path), Err(Error::Wildcard { .. }));
            prop_assert!(refused);
        }
        prop_assert_eq!(serde_json::from_str::<Tree>(&document.to_json().unwrap()).unwrap(), value);
    }

    /// Equal values have equal fingerprints in any spelling, and different columns have different ones.
    #[test]
    fn fingerprints_agree_with_columns(a in generate::object(), b in generate::object(), expression in generate::path()) {
        let path = Path::parse(&expression).unwrap();
        let (a, b) = (document(&a.to_string()), document(&b.to_string()));
        let same = a.column(&path).unwrap() == b.column(&path).unwrap();
        let (x, y) = (a.fingerprint(&path).unwrap(), b.fingerprint(&path).unwrap());
        // A column does not distinguish null from missing, or "1" from 1. A fingerprint may.
        prop_assert!(same || x != y);
        prop_assert_eq!(x, a.clone().fingerprint(&path).unwrap());
    }

    /// A sequence of edits. Reads after each edit equal those of the model.
    #[test]
    fn edits_agree_with_the_model(
        value in generate::object(),
        spelling in any::<u64>(),
        edits in prop::collection::vec(generate_edit::edit(), 1..6),
    ) {
        let mut document = document(&generate::spell(&value, spelling));
        let mut model = value;
        for one in &edits {
            let before = (document.bytes().clone(), document.is_edited());
            let expected = edit::apply(&mut model, one);
            let found = edit::run(&mut document, one);
            match (&expected, &found) {
                (Ok(count), Ok(found)) => prop_assert_eq!(count, found, "{:?}", one),
                (Err(()), Err(_)) => {}
                _ => prop_assert!(false, "{:?}: {:?} {:?}", one, expected, found),
            }
            prop_assert_eq!(tree(&document), model.clone(), "{:?}", one);
            if tree(&document) == serde_json::from_slice::<Tree>(&before.0).unwrap() {
                prop_assert_eq!(document.bytes(), &before.0, "{:?}", one);
                prop_assert_eq!(document.is_edited(), before.1);
            } else {
                prop_assert!(document.is_edited());
            }
        }
    }

    /// Unedited members around an edited one keep their spelling.
    #[test]
    fn edits_keep_the_spelling_of_the_rest(value in generate::object(), spelling in any::<u64>()) {
        let text = generate::spell(&value, spelling);
        let mut document = document(&text);
        document.set(&Path::parse("['an edit']").unwrap(), &weir_document::Value::Null).unwrap();
        document.remove(&Path::parse("['an edit']").unwrap()).unwrap();
        prop_assert_eq!(document.bytes(), &text);
    }

    /// Malformed JSON gives errors and never panics. A failed edit changes nothing.
    #[test]
    fn bad_bytes_never_panic(
        value in generate::object(),
        spelling in any::<u64>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), generate::bad_byte()), 1..4),
        edits in prop::collection::vec(generate_edit::edit(), 1..3),
    ) {
        let mut bytes = generate::spell(&value, spelling).into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            match byte {
                Some(byte) => bytes[at] = byte,
                None => bytes.truncate(at.max(1)),
            }
        }
        let mut document = Document::json(bytes.into());
        for one in &edits {
            let before = document.bytes().clone();
            if edit::run(&mut document, one).is_err() {
                prop_assert_eq!(document.bytes(), &before);
            }
            let _ = document.column(one.path());
            let _ = document.to_json();
        }
    }
}
