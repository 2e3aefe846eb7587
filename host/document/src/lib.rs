//! Kubernetes objects as the bytes that the server sent: read lazily at paths, and edited by splicing.
//!
//! The crate does not depend on WebAssembly or HTTP. The daemon, the SDK's native runs and the fuzz targets use it.
//!
//! Memory: a [`Document`] shares the object's bytes and never copies them for reading. The first read adds a table of the
//! first two levels and, unless the document is read-only, marks of five eighths of the size of its JSON. An edit holds the old and
//! the new bytes while it runs. No input causes a panic, or a recursion deeper than the length of a path.
//!
//! ```
//! use weir_document::{Document, Path, Value, path};
//!
//! static NODES: Path = path!("endpoints[*].nodeName");
//!
//! # fn main() -> Result<(), weir_document::Error> {
//! let mut slice = Document::json(r#"{"endpoints": [{"nodeName": "a"}, {"nodeName": "b"}], "x": 1.0}"#.into());
//! let on_b = slice.column(&NODES)?.rows(|node| node == Some("b"));
//! slice.retain(&NODES, &on_b)?;
//! slice.set(&NODES, &Value::Null)?;
//! assert_eq!(slice.bytes(), r#"{"endpoints": [{"nodeName": null}], "x": 1.0}"#);
//! # Ok(())
//! # }
//! ```
//!
//! Validation: everything on the path of a read is validated completely, which includes keys, numbers, UTF-8, escapes and
//! the returned value. The remaining bytes are only checked structurally: strings, matching brackets and depth. A read may
//! therefore succeed on an object that is not valid JSON elsewhere. The invalid parts keep their bytes.
//!
//! Protobuf ([`protobuf`]): objects are read and edited through a schema of field numbers, with the names and types of
//! JSON. A filter cannot distinguish the two encodings.

#[cfg(test)]
// The fuzz target of the scanner names the crate as others do.
extern crate self as weir_document;

#[cfg(doctest)]
// The example of the README is compiled and run.
#[doc = include_str!("../README.md")]
struct Readme;

mod column;
mod document;
mod error;
mod escape;
pub mod json;
pub mod list;
#[cfg_attr(not(feature = "scan"), allow(unreachable_pub, reason = "the feature `scan` exports it, for the fuzzer"))]
mod marks;
mod path;
pub mod protobuf;
mod rows;
mod rules;
mod split;
mod string_set;
mod value;

pub use column::Column;
pub use document::{Checkpoint, Document};
pub use error::Error;
pub use path::{Path, PathError, StaticPath};
pub use rows::Rows;
pub use rules::EditRules;
pub use split::SplitError;
pub use string_set::StringSet;
pub use value::{TypeMeta, Value};

/// The largest object in bytes. Offsets have 31 bits.
pub const MAX_OBJECT: usize = i32::MAX as usize;

/// The maximum depth of nested objects and arrays.
pub const MAX_DEPTH: usize = 512;
