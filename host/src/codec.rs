//! Codecs: they decode lists, objects and watch events to documents, and encode the filtered documents.
//!
//! A decoder cuts bytes into documents that share them. An encoder writes the filtered documents in the form that the
//! client requested. Codecs do no I/O: their callers push and take bytes, so a response may come from the API server or
//! from memory. The documentation of each codec states its memory bound.

mod error;
pub(crate) mod list;
pub(crate) mod object;
mod object_type;
pub(crate) mod table;
pub(crate) mod table_list;
pub(crate) mod watch;

pub(crate) use self::error::{CodecError, EncodeError};
pub(crate) use self::object_type::ObjectType;
