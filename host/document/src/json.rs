//! JSON: scanning, walking and splicing objects, and splitting lists and watch streams into objects.

pub(crate) mod check;
pub(crate) mod edit;
mod equal;
mod frame;
mod list;
pub(crate) mod marked;
pub(crate) mod members;
mod object;
pub(crate) mod read;
#[cfg(feature = "scan")]
pub mod scan;
#[cfg(not(feature = "scan"))]
#[allow(unreachable_pub, reason = "the feature `scan` exports it, for the fuzzer")]
pub(crate) mod scan;
mod spans;
mod splice;
pub(crate) mod string;
mod table;
pub(crate) mod token;
pub(crate) mod walk;

pub(crate) use equal::equal;
pub(crate) use frame::with_type_meta;
pub use frame::{EventType, Frame, FrameSplitter, event};
pub use list::{Joiner, ListSplitter};
pub(crate) use object::Object;
pub(crate) use string::write_string;

/// Validates that a text is one JSON object.
pub(crate) fn validate_object(text: &str) -> Result<(), crate::Error> {
    let at = check::whole(text.as_bytes())?;
    match text.as_bytes().get(at.start) {
        Some(b'{') => Ok(()),
        _ => Err(crate::Error::malformed(at.start, "expected an object")),
    }
}
