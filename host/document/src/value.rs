//! Values as they cross the border to a filter: numbers keep the server's spelling, containers travel as JSON text.

/// What an object is: answered for objects whose bytes do not say it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TypeMeta {
    /// `v1`, `discovery.k8s.io/v1`.
    pub api_version: String,
    /// `Service`.
    pub kind: String,
}

/// One value of a document, or one to be written into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number in JSON spelling. Written ones are checked, and at most 64 bytes long.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// JSON text: an object or array when read, any JSON value when written, where it is validated in full.
    Json(String),
}
