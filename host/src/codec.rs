//! Codecs: they turn the bytes of lists, objects and watch events into documents, and filter outcomes back into bytes.
//!
//! A decoder cuts bytes into documents that share them. An encoder writes what filters left, in the shape that the client
//! asked for. Codecs do no I/O and know no connection: their callers push bytes and take bytes, so that an answer may
//! come from the API server or from memory. Each codec's documentation states its memory bound.

mod error;
pub(crate) mod list;
pub(crate) mod object;
mod object_type;
pub(crate) mod table;
pub(crate) mod table_list;
pub(crate) mod watch;

pub(crate) use self::error::{CodecError, EncodeError};
pub(crate) use self::object_type::ObjectType;
