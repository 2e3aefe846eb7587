//! Deserializes settings from JSON text to the filter's own type. Errors begin with the key. The host bounds the text,
//! and this reader bounds the depth at 64.
//!
//! serde_json is not used, for two reasons: its errors do not name the key of a value of the wrong type, and it would
//! add 40 KB of float formatting to every module.

mod reader;
mod values;

use std::fmt::{self, Display, Formatter};

use serde::de::{self, DeserializeOwned, Expected, Unexpected};

use crate::Error;
use reader::Reader;

/// Deserializes the settings. The error names the invalid key and the reason.
pub(crate) fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    let mut reader = Reader::new(json);
    let read = match reader.peek() {
        // serde would deserialize a struct from an array, field by field.
        Some(b'[') => Err(SettingsError("invalid type: a list, expected an object".to_owned())),
        _ => T::deserialize(&mut reader).and_then(|settings| reader.end().map(|()| settings)),
    };
    read.map_err(|refusal| {
        let key = reader.key();
        Error::setting(if key.is_empty() { "settings" } else { &key }, refusal)
    })
}

/// The reason why a value is invalid.
#[derive(Debug)]
pub(crate) struct SettingsError(String);

impl Display for SettingsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

impl de::Error for SettingsError {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }

    // The provided methods would link float formatting.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid type: {}, expected {}", spelt(found), in_words(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid value: {}, expected {}", spelt(found), in_words(expected)))
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let mut text = format!("unknown value `{found}`, expected");
        for (place, known) in known.iter().enumerate() {
            text.push_str(if place == 0 { " `" } else { " or `" });
            text.push_str(known);
            text.push('`');
        }
        Self(text)
    }
}

/// Translates serde's names of Rust types for authors of settings.
fn in_words(expected: &dyn Expected) -> String {
    let mut text = expected.to_string();
    let words = match text.as_bytes() {
        b"u16" => "a whole number from 0 to 65535",
        [b'u' | b'i', b'0'..=b'9', ..] | b"usize" | b"isize" => "a whole number",
        b"a boolean" => "true or false",
        b"a sequence" => "a list",
        b"a map" => "an object",
        _ => return text,
    };
    text.clear();
    text.push_str(words);
    text
}

fn spelt(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("boolean `{value}`"),
        Unexpected::Unsigned(value) => format!("integer `{value}`"),
        Unexpected::Signed(value) => format!("integer `{value}`"),
        Unexpected::Float(_) => "a fraction".to_owned(),
        Unexpected::Str(text) => format!("string `{text}`"),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        Unexpected::Other(what) => what.to_owned(),
        _ => "a value".to_owned(),
    }
}

#[cfg(test)]
mod tests;
