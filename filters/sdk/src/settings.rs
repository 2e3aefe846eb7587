//! Settings: JSON text to the filter's own type, with refusals that begin with the key. Bounded by the text, which the
//! host bounds, and by a depth of 64.
//!
//! Its own reader and not serde_json: that one names no key for a value of the wrong type, and would bring 40 KB of
//! float formatting into every module.

mod reader;
mod values;

use std::fmt::{self, Display, Formatter};

use serde::de::{self, DeserializeOwned, Expected, Unexpected};

use crate::Error;
use reader::Reader;

/// Reads the settings, or says which key is wrong and why.
pub(crate) fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    let mut reader = Reader::new(json);
    let read = match reader.peek() {
        // serde would take an array for a struct, field by field.
        Some(b'[') => Err(Refusal("invalid type: sequence, expected an object".to_owned())),
        _ => T::deserialize(&mut reader).and_then(|settings| reader.end().map(|()| settings)),
    };
    read.map_err(|refusal| {
        let key = reader.key();
        Error::setting(if key.is_empty() { "settings" } else { &key }, refusal)
    })
}

/// Why a value will not do.
#[derive(Debug)]
pub(crate) struct Refusal(String);

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }

    // The provided methods would do, but for the float formatting that they link.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid type: {}, expected {expected}", spelt(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid value: {}, expected {expected}", spelt(found)))
    }
}

fn spelt(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("boolean `{value}`"),
        Unexpected::Unsigned(value) => format!("integer `{value}`"),
        Unexpected::Signed(value) => format!("integer `{value}`"),
        Unexpected::Float(_) => "a fraction".to_owned(),
        Unexpected::Str(text) => format!("string `{text}`"),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "sequence".to_owned(),
        Unexpected::Map => "map".to_owned(),
        Unexpected::Other(what) => what.to_owned(),
        _ => "a value".to_owned(),
    }
}

#[cfg(test)]
mod tests;
