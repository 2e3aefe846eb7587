//! Codecs: bytes of an answer to documents, and what filters made of them back to bytes.
//!
//! A codec does no I/O and does not know where its bytes come from.

pub(crate) mod list;
pub(crate) mod object;
mod object_type;
pub(crate) mod watch;

pub(crate) use self::object_type::{ObjectType, ObjectTypeError};
