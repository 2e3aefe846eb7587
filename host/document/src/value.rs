//! Values that cross to a filter. Numbers keep the server's spelling, and objects and arrays are JSON text.

/// The type of an object, for objects whose bytes do not contain it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TypeMeta {
    /// `v1`, `discovery.k8s.io/v1`.
    pub api_version: String,
    /// `Service`.
    pub kind: String,
}

/// A value of a document, or a value to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number in JSON spelling. A written number is validated and has at most 64 bytes.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// JSON text: an object or array when read, any JSON value when written. A written value is validated completely.
    Json(String),
}
