//! YAML, in and out.

use serde::Serialize;
use serde_json::Value;

/// The documents of a text, without empty ones.
///
/// # Errors
/// The text is not YAML; the message is one line.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.to_string().replace('\n', " "))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// An object as YAML.
///
/// # Errors
/// The object has keys that are no strings.
pub fn write(object: &impl Serialize) -> Result<String, serde_saphyr::SerializeError> {
    serde_saphyr::to_string(object)
}
