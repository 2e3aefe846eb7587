//! Objects, and what chains make of them.

use crate::machine::{Object, Selector};
use weir_store::StoreKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    Hidden,
    Same,
    Edited,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Obj {
    pub(crate) version: u64,
    pub(crate) content: u64,
    pub(crate) out: Out,
    /// The version of the state that clients see.
    pub(crate) shown: u64,
}

impl Object for Obj {
    type Memo = ();

    fn version(&self) -> u64 {
        self.version
    }

    fn is_shown(&self) -> bool {
        matches!(self.out, Out::Same | Out::Edited)
    }

    fn has_failed(&self) -> bool {
        self.out == Out::Failed
    }

    fn stands_in(&self) -> bool {
        self.shown != self.version
    }

    fn shows_the_same(&self, other: &Self) -> bool {
        match (self.is_shown(), other.is_shown()) {
            (true, true) => (self.shown, self.out) == (other.shown, other.out),
            _ => self.out == other.out,
        }
    }

    fn size(&self) -> usize {
        1
    }
}

/// Bit 1 of the content is the label of the selector.
pub(crate) struct Label(pub(super) bool);

impl Selector<Obj> for Label {
    fn matches(&self, object: &Obj) -> bool {
        is_selected(self.0, object.content)
    }
}

pub(crate) fn is_selected(selects: bool, content: u64) -> bool {
    !selects || content & 2 != 0
}

/// The chain hides by bit 0 of the content, or edits key 0 and hides key 1, or lets all pass.
pub(crate) fn outcome(chain: u64, key: u64, content: u64) -> Out {
    match (chain % 3, key) {
        (0, _) if content & 1 == 1 => Out::Hidden,
        (1, 0) => Out::Edited,
        (1, 1) => Out::Hidden,
        _ => Out::Same,
    }
}

pub(crate) fn name(key: u64) -> StoreKey {
    StoreKey::new("", &key.to_string())
}
