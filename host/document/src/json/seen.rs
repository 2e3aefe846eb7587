//! What a split has seen of an object's bytes, handed on with them. Cheap to clone: the objects of a batch share it.

use super::scan::{self, Block, Marks};
use std::{fmt, sync::Arc};

/// The marks of objects that were split off together, each found by its number.
#[derive(Clone, Default)]
pub(crate) struct Scans {
    marks: Arc<Marks>,
    /// The first block of each.
    firsts: Vec<usize>,
}

/// Nothing, or the marks of an object's bytes among others.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    marks: Option<Arc<Marks>>,
    first: usize,
}

impl Scans {
    pub(super) fn new(marks: Marks, firsts: Vec<usize>) -> Self {
        Scans { marks: Arc::new(marks), firsts }
    }

    pub(crate) fn of(&self, index: usize) -> Seen {
        match self.firsts.get(index) {
            Some(first) => Seen { marks: Some(self.marks.clone()), first: *first },
            None => Seen::default(),
        }
    }
}

impl Seen {
    /// Of the only object.
    pub(super) fn new(marks: Marks) -> Self {
        Seen { marks: Some(Arc::new(marks)), first: 0 }
    }

    /// The blocks of the object, which is so long.
    pub(super) fn blocks(&self, length: usize) -> Option<&[Block]> {
        self.marks.as_ref()?.blocks.get(self.first..self.first + scan::blocks(length))
    }
}

/// Equal bytes are equal, whatever was seen of them.
impl PartialEq for Scans {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Scans {}

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl fmt::Debug for Scans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scans").field(&self.firsts.len()).finish()
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seen").field(&self.marks.is_some()).finish()
    }
}
