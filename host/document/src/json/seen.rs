//! What a split has seen of an object's bytes, handed on with them. Cheap to clone.

use super::scan::Marks;
use std::{fmt, sync::Arc};

/// Nothing, or the marks of an object's bytes.
#[derive(Clone, Default)]
pub(crate) struct Seen(Option<Arc<Marks>>);

impl Seen {
    /// Of the bytes that were scanned.
    pub(crate) fn new(marks: Option<Marks>) -> Self {
        Seen(marks.map(Arc::new))
    }

    pub(super) fn marks(self) -> Option<Arc<Marks>> {
        self.0
    }
}

/// Equal bytes are equal, whatever was seen of them.
impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seen").field(&self.0.is_some()).finish()
    }
}
