//! What passes between clients and the API server: bodies and headers.
//!
//! Codecs decode lists, objects and watch events to documents, and encode the filtered documents.
//! A decoder cuts bytes into documents that share them. An encoder writes the filtered documents in the form that the
//! client requested. Codecs do no I/O: their callers push and take bytes, so a response may come from the API server or
//! from memory. The documentation of each codec states its memory bound.

mod error;
pub mod headers;
pub mod list;
pub mod named_host;
pub mod object;
mod object_type;
mod table;
pub mod table_list;
pub mod watch;

pub use self::error::{CodecError, EncodeError};
pub use self::object_type::{ObjectType, partial, partial_list};
