//! One change of a view.

use std::fmt::Debug;
use std::sync::Arc;

use weir_store::StoreKey;

/// An object with what the chain made of it.
pub(crate) trait Object: Debug {
    /// What is kept beside an event for all watches that send it, such as its encoded forms.
    type Memo: Debug;

    /// The resourceVersion that the API server gave the object.
    fn version(&self) -> u64;

    /// Whether clients see it.
    fn is_shown(&self) -> bool;

    /// Whether there is no outcome: a filter whose failure hides nothing and shows nothing has failed.
    fn has_failed(&self) -> bool;

    /// Whether the outcome is that of an earlier state: the last good one stands in for a failure.
    fn stands_in(&self) -> bool;

    /// Whether clients see the same of both.
    fn shows_the_same(&self, other: &Self) -> bool;

    /// The bytes that an event alone keeps alive if this is the object before.
    fn size(&self) -> usize;
}

/// What a watch selects of a view.
pub(crate) trait Selector<O: Object> {
    /// Whether an object is selected, shown or not.
    fn matches(&self, object: &O) -> bool;

    /// The same of the object before and the object after an event.
    fn of_event(&self, event: &Event<O>) -> (bool, bool) {
        let matches = |object: &Option<Arc<O>>| object.as_ref().is_some_and(|object| self.matches(object));
        (matches(&event.old), matches(&event.new))
    }
}

/// Why a view changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An event of the API server.
    Upstream,
    /// The outcome is another one at the same version.
    Change,
    /// The store was listed, and the object has changed: clients that do not see it any more get its deletion. All of these
    /// come first, at the former version. The events in between are unknown.
    Left,
    /// The store was listed: the object as it is now, for those who see it.
    Listed,
}

/// One change of one object of a view, or of the view's version alone.
#[derive(Debug)]
pub(crate) struct Event<O: Object> {
    /// The version that the view has reached with this event.
    pub(crate) version: u64,
    /// Why.
    pub(crate) cause: Cause,
    /// The key of the object; `None` if only the version moved.
    pub(crate) key: Option<StoreKey>,
    /// The object before; `None` if it did not exist.
    pub(crate) old: Option<Arc<O>>,
    /// The object after; `None` if it does not exist.
    pub(crate) new: Option<Arc<O>>,
    /// What is kept for the watches that send it.
    pub(crate) memo: O::Memo,
}

impl<O: Object> Event<O> {
    /// Whether the object has another outcome at the resourceVersion that clients hold.
    #[must_use]
    pub(crate) fn keeps_version(&self) -> bool {
        let version = |object: &Option<Arc<O>>| object.as_ref().map(|object| object.version());
        self.cause == Cause::Change && version(&self.old) == version(&self.new)
    }

    /// The bytes that the event alone keeps alive: those of the object before. The object after is the present one, or the one
    /// before of a later event.
    pub(crate) fn size(&self) -> usize {
        self.old.as_ref().map_or(0, |old| old.size()) + size_of::<Self>() + 64
    }
}
