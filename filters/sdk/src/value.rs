//! Values that cross the contract, and conversions to them. Numbers stay text, so that nothing is rounded.

/// A value in an object. Numbers keep the server's spelling. Objects and arrays are JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// JSON null. A missing member is `None` instead.
    Null,
    /// true or false.
    Boolean(bool),
    /// A JSON number.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An object or array as JSON text. An edit takes any JSON here.
    Json(String),
}

impl Value {
    /// Serializes `value` to JSON text. Use it for whole objects and arrays.
    pub fn json(value: &impl serde::Serialize) -> Result<Self, crate::Error> {
        Ok(Self::Json(serde_json::to_string(value)?))
    }

    /// Returns the text of a string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a number that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {
        $(impl From<$integer> for Value {
            fn from(value: $integer) -> Self {
                Self::Number(value.to_string())
            }
        })*
    };
}

from_integers!(u16 i32 u32 i64 u64);
