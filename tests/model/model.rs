//! Compares the engine with an independent model: random Services, EndpointSlices, Endpoints, Pods and ConfigMaps, with
//! random edits. An edit in JSON, in protobuf and of the typed object must give the same result.
//!
//! k8s-openapi's types read the JSON. prost reads and writes the protobuf by Kubernetes' published `.proto` files
//! (`proto/`, written by `make schema`), whereas the engine's table comes from reflection over Go types. The model
//! edits a value tree. It uses one fact from the engine's table: which fields are pointers, so that a zero value is
//! kept. No published schema contains this, but the fixtures that Go encoded check it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic in a test helper fails the test"
)]

mod model {
    #[path = "../../../host/document/tests/model/edit.rs"]
    pub(crate) mod edit;
    pub(crate) mod generate;
    #[path = "../../../host/document/tests/model/read.rs"]
    pub(crate) mod read;
    pub(crate) mod typed;
    pub(crate) mod types;
    pub(crate) mod wire;
}

use bytes::Bytes;
use model::{
    edit::{self, Edit, Kind},
    generate::{self, Random},
    read,
    typed::{self, KINDS, Root},
    types::{difference, normal},
    wire,
};
use proptest::prelude::*;
use serde_json::Value as Tree;
use weir_document::{Document, Path};

fn json(text: &str) -> Document {
    Document::json(Bytes::copy_from_slice(text.as_bytes())).with_rules(&weir_kube::FILTER_EDITS)
}

/// Encodes the object with prost.
fn protobuf(root: &Root, object: &Tree) -> Document {
    let document = Document::protobuf(wire::encode(root, object), root.type_meta.clone()).unwrap();
    document.with_rules(&weir_kube::FILTER_EDITS)
}

/// Decodes a protobuf document with prost and the typed object. Checks that neither loses anything.
fn read_protobuf(root: &Root, document: &Document) -> Tree {
    let tree = wire::decode(root, document.bytes());
    let found = normal(root.message(), &typed::through(root, &tree).unwrap());
    assert_eq!(difference(&found, &normal(root.message(), &tree)), None);
    found
}

/// Decodes a JSON document with the typed object.
fn read_json(root: &Root, document: &Document) -> Tree {
    let tree = serde_json::from_slice(document.bytes()).unwrap();
    normal(root.message(), &typed::through(root, &tree).unwrap())
}

/// Returns the typed object after an edit of its tree, or the reason why it cannot represent the tree.
fn held(root: &Root, edited: &Tree) -> Result<Tree, String> {
    let held = normal(root.message(), &typed::through(root, edited).map_err(|error| error.to_string())?);
    difference(&held, &normal(root.message(), edited)).map_or(Ok(held), Err)
}

/// Compares the reads of a document with the tree.
fn check_reads(document: &Document, tree: &Tree, one: &Edit) {
    let segments = read::segments(&one.expression);
    let column = document.column(one.path()).unwrap();
    let rows = read::rows(tree, &segments);
    assert_eq!(column.len(), rows.len(), "{} {tree}", one.expression);
    for (cell, row) in column.iter().zip(rows) {
        assert!(read::is_cell(cell, row), "{} {cell:?} {row:?}", one.expression);
    }
    assert_eq!(document.lengths(one.path()).unwrap(), read::lengths(tree, &segments), "{} {tree}", one.expression);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn the_engine_and_prost_read_the_same_object(seed in 1u64.., kind in 0..KINDS.len()) {
        let root = &KINDS[kind];
        let object = generate::object(&mut Random(seed), root);
        let expected = normal(root.message(), &object);
        let text = object.to_string();
        let ours = weir_document::protobuf::from_json(&root.type_meta, &text).unwrap();
        let ours = normal(root.message(), &wire::decode(root, &ours));
        prop_assert_eq!(difference(&ours, &expected), None);
        let document = protobuf(root, &object);
        let decoded = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        prop_assert_eq!(difference(&normal(root.message(), &decoded), &expected), None);
        prop_assert_eq!(difference(&read_json(root, &json(&text)), &expected), None);
    }

    /// A sequence of edits. Each edit starts with the JSON that the API server would send for the protobuf object.
    #[test]
    fn an_edit_is_the_same_in_json_in_protobuf_and_in_the_typed_object(seed in 1u64.., kind in 0..KINDS.len()) {
        let root = &KINDS[kind];
        let mut random = Random(seed);
        let mut protobuf = protobuf(root, &generate::object(&mut random, root));
        for _ in 0..6 {
            let text = protobuf.to_json().unwrap();
            let one = generate::edit(&mut random, root);
            let mut model: Tree = serde_json::from_str(&text).unwrap();
            let mut json = json(&text);
            check_reads(&json, &model, &one);
            check_reads(&protobuf, &model, &one);
            let before = protobuf.bytes().clone();
            let expected = edit::apply(&mut model, &one);
            let of_json = edit::run(&mut json, &one);
            let of_protobuf = edit::run(&mut protobuf, &one);
            prop_assert_eq!(of_json.is_ok(), expected.is_ok(), "{:?}", one);
            if of_protobuf.is_err() {
                prop_assert!(protobuf.bytes() == &before, "{:?}", one);
            }
            let Ok(count) = expected else {
                prop_assert!(of_protobuf.is_err(), "{:?}", one);
                continue;
            };
            let held = match held(root, &model) {
                Ok(held) => held,
                Err(reason) => {
                    prop_assert!(of_protobuf.is_err(), "{:?} {}", one, reason);
                    continue;
                }
            };
            prop_assert_eq!(of_json, Ok(count), "{:?}", one);
            prop_assert_eq!(of_protobuf, Ok(count), "{:?}", one);
            prop_assert_eq!(difference(&read_json(root, &json), &held), None, "{:?}", one);
            prop_assert_eq!(difference(&read_protobuf(root, &protobuf), &held), None, "{:?}", one);
            // The removed value may be a zero value that JSON contains all the same.
            let sets = matches!(one.kind, Kind::Set | Kind::SetRows);
            if sets && normal(root.message(), &serde_json::from_str(&text).unwrap()) == held {
                prop_assert!(protobuf.bytes() == &before, "{:?}", one);
            }
        }
    }

    /// Protected fields keep the values of the old object.
    #[test]
    fn a_replacement_is_the_same_in_json_and_in_protobuf(seed in 1u64.., kind in 0..KINDS.len()) {
        let root = &KINDS[kind];
        let mut random = Random(seed);
        let mut protobuf = protobuf(root, &generate::object(&mut random, root));
        let old = protobuf.to_json().unwrap();
        let mut new = generate::object(&mut random, root);
        new["metadata"] = serde_json::from_str::<Tree>(&old).unwrap()["metadata"].take();
        let mut json = json(&old);
        json.replace(&new.to_string()).unwrap();
        protobuf.replace(&new.to_string()).unwrap();
        let held = held(root, &new).unwrap();
        prop_assert_eq!(difference(&read_json(root, &json), &held), None);
        prop_assert_eq!(difference(&read_protobuf(root, &protobuf), &held), None);
    }
}

/// The generator covers edits that succeed, edits that fail, and edits whose result no typed object can represent.
#[test]
fn edits_of_every_kind_and_outcome_are_generated() {
    let mut met = std::collections::BTreeMap::new();
    for seed in 1..4000 {
        let root = &KINDS[seed as usize % KINDS.len()];
        let mut random = Random(seed << 20 | 1);
        let mut model = generate::object(&mut random, root);
        let one = generate::edit(&mut random, root);
        let before = model.clone();
        let done = edit::apply(&mut model, &one).is_ok();
        let outcome = match held(root, &model) {
            _ if !done => "refused",
            Err(_) => "not held",
            Ok(_) if model == before => "nothing",
            Ok(_) => "done",
        };
        *met.entry((format!("{:?}", one.kind), outcome)).or_insert(0) += 1;
        assert!(Path::parse(&one.expression).is_ok());
    }
    for kind in ["Set", "SetRows", "Remove", "RemoveRows", "Retain", "Append"] {
        assert!(met.get(&(kind.to_owned(), "done")).is_some_and(|count| *count > 30), "{kind}: {met:?}");
    }
    assert!(met.keys().any(|(_, outcome)| *outcome == "refused"), "{met:?}");
    assert!(met.keys().any(|(_, outcome)| *outcome == "not held"), "{met:?}");
}
