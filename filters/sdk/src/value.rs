//! Values that cross the contract, and the ways to make one. Numbers stay text: nothing is rounded on the way.

/// A value of an object. Numbers keep the server's spelling, objects and arrays are JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// JSON null, which is not the same as a member that is missing.
    Null,
    /// true or false.
    Boolean(bool),
    /// A JSON number.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An object or array as JSON text; in an edit, any JSON.
    Json(String),
}

impl Value {
    /// The JSON text that `value` serialises to, for whole objects and arrays.
    pub fn json(value: &impl serde::Serialize) -> Result<Self, crate::Error> {
        Ok(Self::Json(serde_json::to_string(value)?))
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// The boolean, if it is one.
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
