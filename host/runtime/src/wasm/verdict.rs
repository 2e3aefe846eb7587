//! The verdict of one filter on one object.

use weir_document::Document;

/// The verdict of a filter on an object.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The client may see the object as it is. The caller goes on with its own document.
    Keep,
    /// The client may see the object with these edits.
    Edit(Document),
    /// The client may not see the object.
    Hide,
}

impl Verdict {
    /// Returns the verdict of a call that left `object` where it got `before`. An edit that leaves the same bytes is none.
    pub(crate) fn of_call(keep: bool, object: Document, before: &[u8]) -> Self {
        match keep {
            false => Self::Hide,
            true if same(object.bytes(), before) => Self::Keep,
            true => Self::Edit(object),
        }
    }

    /// Returns whether a client sees the same after both verdicts.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Keep, Self::Keep) | (Self::Hide, Self::Hide) => true,
            (Self::Edit(a), Self::Edit(b)) => same(a.bytes(), b.bytes()),
            _ => false,
        }
    }
}

/// Returns whether two documents have the same bytes. Usually they share them.
fn same(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}
