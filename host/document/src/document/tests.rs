//! The rules of reads and edits, one by one. `tests/model.rs` tests random combinations.

use super::Document;
use crate::{Error, Path, Rows, TypeMeta, Value, rules::IDENTITY};
use bytes::Bytes;
use std::sync::Arc;

mod edits;
mod reads;

fn document(json: &str) -> Document {
    Document::json(Bytes::copy_from_slice(json.as_bytes())).with_rules(&IDENTITY)
}

fn path(expression: &str) -> Path {
    Path::parse(expression).unwrap()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn json(document: &Document) -> String {
    String::from_utf8(document.bytes().to_vec()).unwrap()
}

fn cells(document: &Document, expression: &str) -> Vec<Option<String>> {
    document.column(&path(expression)).unwrap().iter().map(|cell| cell.map(str::to_owned)).collect()
}

fn some(cells: &[&str]) -> Vec<Option<String>> {
    cells.iter().map(|cell| Some((*cell).to_owned())).collect()
}

fn service() -> TypeMeta {
    TypeMeta { api_version: "v1".into(), kind: "Service".into() }
}
