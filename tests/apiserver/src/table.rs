//! Objects as `meta.k8s.io/v1` Tables, which `kubectl get` prints.
//!
//! Built per request. A table holds its rows' values until it is sent.

use serde_json::{Map, Value, json};

use crate::catalog::Resource;
use crate::store::StoredObject;

mod columns;

/// The content of `rows[].object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// The metadata; the default.
    Metadata,
    /// The complete object.
    Object,
}

/// One column: its name, its format, whether only `-o wide` shows it, and the function for a cell.
struct TableColumn {
    name: &'static str,
    wide: bool,
    cell: fn(&StoredObject) -> Value,
}

// === impl Include ===

impl Include {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "None" => Self::None,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

// === impl TableColumn ===

impl TableColumn {
    const fn new(name: &'static str, cell: fn(&StoredObject) -> Value) -> Self {
        Self { name, wide: false, cell }
    }

    const fn wide(name: &'static str, cell: fn(&StoredObject) -> Value) -> Self {
        Self { name, wide: true, cell }
    }
}

/// A table of objects. `header` says whether it defines its columns: in a watch only the first table does.
pub(crate) fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a StoredObject>,
    include: Include,
    metadata: Map<String, Value>,
    header: bool,
) -> Value {
    let columns = columns::of(resource);
    let rows: Vec<Value> = objects.map(|object| row(resource, columns, object, include)).collect();
    let definitions = header.then(|| definitions(columns));
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// The metadata of an object in place of the object.
pub(crate) fn partial(object: &StoredObject) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.metadata(),
    })
}

fn definitions(columns: &[TableColumn]) -> Value {
    columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": "string",
                "format": if column.name == "Name" { "name" } else { "" },
                "description": "",
                "priority": i32::from(column.wide),
            })
        })
        .collect()
}

fn row(resource: &Resource, columns: &[TableColumn], object: &StoredObject, include: Include) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(object)).collect();
    // A RawExtension without an object is null and never omitted.
    let carried = match include {
        Include::None => Value::Null,
        Include::Metadata => partial(object),
        Include::Object => Value::Object(object.value(resource)),
    };
    json!({"cells": cells, "object": carried})
}
