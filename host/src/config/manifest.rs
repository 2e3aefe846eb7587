//! A ConfigMap as text or as the API gives it → its `data` and `binaryData`, unread. Memory: what the text holds; the text
//! is bounded.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value};

use super::problem::Problems;

/// The two maps of a ConfigMap.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) data: BTreeMap<String, String>,
    pub(super) binary_data: BTreeMap<String, Bytes>,
}

/// The API server takes 1 MiB; base64, quoting and a margin on top.
const MAX_TEXT: usize = 4 << 20;

/// Reads YAML; JSON is YAML. One line for an error, without an excerpt: it goes to logs and statuses.
pub(super) fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("not YAML: {}", error.to_string().replace(['\n', '\r'], " ")))
}

impl Manifest {
    /// From the text of a manifest.
    pub(super) fn read(text: &str, problems: &mut Problems) -> Self {
        let mut manifest = Self::default();
        if text.len() > MAX_TEXT {
            problems.add("", format_args!("{} bytes are too many for a ConfigMap: at most {MAX_TEXT}", text.len()));
            return manifest;
        }
        let Some(value) = problems.keep("", yaml(text)) else {
            return manifest;
        };
        let Value::Object(mut top) = value else {
            problems.add("", "not a ConfigMap manifest: expected a mapping with apiVersion, kind and data");
            return manifest;
        };
        for (key, wanted) in [("apiVersion", "v1"), ("kind", "ConfigMap")] {
            match top.shift_remove(key) {
                Some(Value::String(given)) if given == wanted => {}
                Some(given) => problems.add(key, format_args!("must be {wanted}, is {given}")),
                None => problems.add(key, format_args!("missing: must be {wanted}")),
            }
        }
        top.shift_remove("metadata");
        top.shift_remove("immutable");
        for (key, text) in strings(&mut top, "data", problems) {
            manifest.data.insert(key, text);
        }
        for (key, text) in strings(&mut top, "binaryData", problems) {
            // Block scalars fold lines into the text; kubectl writes none, people do.
            let text: String = text.split_ascii_whitespace().collect();
            let at = format!("binaryData.{key}");
            if let Some(bytes) =
                problems.keep(at, STANDARD.decode(text).map_err(|error| format!("not base64: {error}")))
            {
                manifest.binary_data.insert(key, bytes.into());
            }
        }
        for key in top.keys() {
            problems
                .add(key, "unknown key: a ConfigMap has apiVersion, kind, metadata, immutable, data and binaryData");
        }
        manifest
    }

    /// From the API's object.
    pub(super) fn of(map: &ConfigMap) -> Self {
        let data = map.data.iter().flatten().map(|(key, text)| (key.clone(), text.clone())).collect();
        let binary = map.binary_data.iter().flatten();
        Self { data, binary_data: binary.map(|(key, bytes)| (key.clone(), Bytes::from(bytes.0.clone()))).collect() }
    }
}

/// The members of `top[key]`, which must be strings.
fn strings(top: &mut Map<String, Value>, key: &str, problems: &mut Problems) -> Vec<(String, String)> {
    match top.shift_remove(key) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(members)) => members
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::String(text) => Some((name, text)),
                other => {
                    problems.add(format!("{key}.{name}"), format_args!("must be a string, is {}", kind(&other)));
                    None
                }
            })
            .collect(),
        Some(other) => {
            problems.add(key, format_args!("must be a mapping of strings, is {}", kind(&other)));
            Vec::new()
        }
    }
}

/// What a value is, for messages.
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
