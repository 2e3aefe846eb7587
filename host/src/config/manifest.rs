//! Reads `data` and `binaryData` of a ConfigMap, from a manifest or from an object of the API. The size of a manifest is
//! bounded, and with it the memory that reading takes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value};

use super::error::ErrorReport;
use weir_kube::yaml_document;

/// The two maps of a ConfigMap.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) data: BTreeMap<String, String>,
    pub(super) binary_data: BTreeMap<String, Bytes>,
}

/// The API server accepts 1 MiB. The rest is for base64, quoting and indentation.
const MAX_TEXT: usize = 4 << 20;

/// Parses YAML, and thereby JSON. An error is one line without an excerpt of the text, for logs and `/filters`.
pub(super) fn yaml(text: &str) -> Result<Value, String> {
    yaml_document(text).map_err(|error| format!("not YAML: {error}"))
}

impl Manifest {
    /// Parses a manifest.
    pub(super) fn read(text: &str, report: &mut ErrorReport) -> Self {
        let mut manifest = Self::default();
        if text.len() > MAX_TEXT {
            report.add("", format_args!("{} bytes are too many for a ConfigMap: at most {MAX_TEXT}", text.len()));
            return manifest;
        }
        let Some(value) = report.ok("", yaml(text)) else {
            return manifest;
        };
        let Value::Object(mut top) = value else {
            report.add("", "not a ConfigMap manifest: expected a mapping with apiVersion, kind and data");
            return manifest;
        };
        for (key, wanted) in [("apiVersion", "v1"), ("kind", "ConfigMap")] {
            match top.shift_remove(key) {
                Some(Value::String(given)) if given == wanted => {}
                Some(given) => report.add(key, format_args!("must be {wanted}, is {given}")),
                None => report.add(key, format_args!("missing: must be {wanted}")),
            }
        }
        top.shift_remove("metadata");
        top.shift_remove("immutable");
        for (key, text) in strings(&mut top, "data", report) {
            manifest.data.insert(key, text);
        }
        for (key, text) in strings(&mut top, "binaryData", report) {
            // kubectl writes base64 on one line; block scalars of hand-written manifests contain line breaks.
            let text: String = text.split_ascii_whitespace().collect();
            let at = format!("binaryData.{key}");
            if let Some(bytes) = report.ok(at, STANDARD.decode(text).map_err(|error| format!("not base64: {error}"))) {
                manifest.binary_data.insert(key, bytes.into());
            }
        }
        for key in top.keys() {
            report.add(key, "unknown key; a ConfigMap has apiVersion, kind, metadata, immutable, data and binaryData");
        }
        manifest
    }

    /// Copies the maps of an object of the API.
    pub(super) fn of(map: &ConfigMap) -> Self {
        let data = map.data.iter().flatten().map(|(key, text)| (key.clone(), text.clone())).collect();
        let binary = map.binary_data.iter().flatten();
        Self { data, binary_data: binary.map(|(key, bytes)| (key.clone(), Bytes::from(bytes.0.clone()))).collect() }
    }
}

/// Removes `top[key]` and returns its members, which must be strings.
fn strings(top: &mut Map<String, Value>, key: &str, report: &mut ErrorReport) -> Vec<(String, String)> {
    match top.shift_remove(key) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(members)) => members
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::String(text) => Some((name, text)),
                other => {
                    report.add(format!("{key}.{name}"), format_args!("must be a string, is {}", kind(&other)));
                    None
                }
            })
            .collect(),
        Some(other) => {
            report.add(key, format_args!("must be a mapping of strings, is {}", kind(&other)));
            Vec::new()
        }
    }
}

/// The type of a value, for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
