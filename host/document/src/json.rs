//! JSON: scanning, walking, splicing one object; splitting lists and watch streams into objects.

pub(crate) mod check;
pub(crate) mod edit;
mod equal;
pub mod frame;
mod list;
pub(crate) mod marked;
pub(crate) mod members;
mod object;
pub(crate) mod read;
pub mod scan;
mod seen;
mod spans;
mod splice;
pub(crate) mod string;
mod table;
pub(crate) mod token;
pub(crate) mod walk;

pub use crate::{
    list::{Batch, ListMeta, Outcome, Piece},
    split::SplitError,
};
pub(crate) use equal::equal;
pub use frame::{EventType, Frame, FrameSplitter, event, with_type_meta};
pub use list::{Joiner, ListSplitter};
pub(crate) use object::Object;
pub(crate) use seen::{Scans, Seen};
pub(crate) use string::{unescape, write_string};

/// Checks that a text is one JSON object, every byte of it.
pub(crate) fn validate_object(text: &str) -> Result<(), crate::Error> {
    let at = check::whole(text.as_bytes())?;
    match text.as_bytes().get(at.start) {
        Some(b'{') => Ok(()),
        _ => Err(crate::Error::malformed(at.start, "expected an object")),
    }
}
