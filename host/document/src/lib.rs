//! Kubernetes objects as the bytes the server sent: read lazily by path, edited by splicing.
//!
//! The crate knows nothing of WebAssembly or HTTP; the daemon, the SDK's native runs and the fuzzers share it.
//! Memory: a [`Document`] holds the object's bytes (shared, never copied to be read) and, once read, a table of its
//! first two levels and, unless it is read-only, marks of half the size of its JSON; an edit holds the old and the new
//! bytes for as long as it runs. No input makes it panic or recurse deeper than a path is long.
//!
//! ```
//! use weir_document::{Document, Path, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut slice = Document::json(r#"{"endpoints": [{"nodeName": "a"}, {"nodeName": "b"}], "x": 1.0}"#.into());
//! let nodes = Path::parse("endpoints[*].nodeName")?;
//! let keep = slice.column(&nodes)?.iter().map(|node| node == Some("b")).collect::<Vec<_>>();
//! assert_eq!(keep, [false, true]);
//! slice.retain(&nodes, &[0b10])?;
//! slice.set(&nodes, &Value::Null)?;
//! assert_eq!(slice.bytes(), r#"{"endpoints": [{"nodeName": null}], "x": 1.0}"#);
//! # Ok(())
//! # }
//! ```
//!
//! How much is checked. What lies on a walked path is validated in full: keys, numbers, strings with their escapes and
//! UTF-8, and the value that is read. What is stepped over is checked structurally only: strings, matching brackets,
//! nesting depth. So a read may succeed on an object whose untouched parts are not JSON; those parts leave as they came.
//!
//! The same holds for protobuf ([`protobuf`]): an object is read and edited by the field numbers of a schema, in the terms
//! of JSON, so that a filter cannot tell which of the two it is given.

mod cached;
mod column;
mod document;
mod error;
pub mod json;
pub mod list;
mod path;
mod protect;
pub mod protobuf;
mod resource;
mod rows;
mod split;
mod string_set;
mod value;

pub use cached::{CachedObject, Selection};
pub use column::Column;
pub use document::{Checkpoint, Document};
pub use error::Error;
pub use path::{Path, PathError};
pub use resource::resource_of;
pub use split::SplitError;
pub use string_set::StringSet;
pub use value::{TypeMeta, Value};

/// The largest object, in bytes: positions are kept in 31 bits.
pub const MAX_OBJECT: usize = i32::MAX as usize;

/// How large an edit may make an object that was smaller before: what a filter can make the host allocate.
pub const MAX_EDITED: usize = 64 << 20;

/// How deep objects and arrays may nest.
pub const MAX_DEPTH: usize = 512;
