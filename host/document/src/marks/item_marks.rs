//! The structural marks from splitting, passed on with the bytes of each object. Clones are cheap, because all objects
//! of a batch share the marks.

use super::{Block, Marks, blocks};
use std::{fmt, sync::Arc};

/// The marks of the objects in a batch, by index.
#[derive(Clone, Default)]
pub(crate) struct BatchMarks {
    marks: Arc<Marks>,
    /// The first block of each object.
    firsts: Vec<usize>,
}

/// The marks of one object among others, or nothing.
#[derive(Clone, Default)]
pub(crate) struct ItemMarks {
    marks: Option<Arc<Marks>>,
    first: usize,
}

impl BatchMarks {
    pub(crate) fn new(marks: Marks, firsts: Vec<usize>) -> Self {
        BatchMarks { marks: Arc::new(marks), firsts }
    }

    pub(crate) fn of(&self, index: usize) -> ItemMarks {
        match self.firsts.get(index) {
            Some(first) => ItemMarks { marks: Some(self.marks.clone()), first: *first },
            None => ItemMarks::default(),
        }
    }
}

impl ItemMarks {
    /// Creates the marks of a single object.
    pub(crate) fn new(marks: Marks) -> Self {
        ItemMarks { marks: Some(Arc::new(marks)), first: 0 }
    }

    /// Returns the blocks of the object, which has this length.
    pub(crate) fn blocks(&self, length: usize) -> Option<&[Block]> {
        self.marks.as_ref()?.blocks.get(self.first..self.first + blocks(length))
    }
}

/// Marks do not affect equality. Equal bytes are equal with any marks.
impl PartialEq for BatchMarks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for BatchMarks {}

impl PartialEq for ItemMarks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ItemMarks {}

impl fmt::Debug for BatchMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchMarks").field(&self.firsts.len()).finish()
    }
}

impl fmt::Debug for ItemMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ItemMarks").field(&self.marks.is_some()).finish()
    }
}
