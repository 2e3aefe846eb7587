//! The chain of filters of one (component, resource): get, list and watch always run the same one.

mod write;

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use futures_util::future::{BoxFuture, select_all};
use tokio::sync::watch;
use weir_document::Document;
use weir_kube::{GroupResource, VerbClass};

pub use self::write::{Unwritable, Written};
use super::outcome::{Failure, Outcome};
use crate::Writes;

/// A filter as a chain sees it.
pub trait DocumentFilter: Send + Sync + std::fmt::Debug {
    /// As configured.
    fn name(&self) -> &Arc<str>;
    /// What becomes of a write that would put back what the filter alters.
    fn writes(&self) -> Writes;
    /// Whether it applies to a request.
    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool;
    /// A number that no other filter of this process has or had.
    fn identity(&self) -> u64;
    /// Moves when a value that the filter looked up has changed: from then on objects may be judged otherwise.
    fn generation(&self) -> watch::Receiver<u64>;
    /// Judges those of a batch that are kept so far, in order. `guarded`: fields that only filters named for it may edit are
    /// refused.
    fn judge<'a>(&'a self, batch: &'a mut [Judged], guarded: bool) -> BoxFuture<'a, ()>;
}

/// What the filters of a chain have made of one document so far.
#[derive(Debug)]
pub enum Judged {
    /// Shown, with the edits so far.
    Kept(Document),
    /// Not shown.
    Hidden,
    /// A filter with policy `Fail` could not decide.
    Failed(Failure),
}

/// The filters that apply to one component's reads of one resource, in order. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Chain {
    filters: Arc<[Arc<dyn DocumentFilter>]>,
    /// Whether the resource's objects have fields that only filters named for it may edit.
    guarded: bool,
}

/// Says which filters a chain has and what their lookups were when it was taken: while two stamps are equal, the same
/// object has the same outcome. Not ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of no chain at all: what passed unfiltered.
    pub const UNFILTERED: Self = Self(0);

    /// The stamp of this number.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl Chain {
    pub(super) fn new(filters: Arc<[Arc<dyn DocumentFilter>]>, resource: &GroupResource) -> Self {
        Self { filters, guarded: resource.group.is_empty() && resource.resource == "pods" }
    }

    /// Runs the chain over a batch; one outcome per document, in order. An instance per filter is checked out for the
    /// batch only. Dropping the future throws those instances away; nothing else is lost.
    pub async fn run(&self, documents: Vec<Document>) -> Vec<Outcome> {
        let mut batch: Vec<_> = documents.into_iter().map(Judged::Kept).collect();
        for filter in self.filters.iter() {
            if batch.iter().all(|judged| !matches!(judged, Judged::Kept(_))) {
                break;
            }
            filter.judge(&mut batch, self.guarded).await;
        }
        let outcome = |judged| match judged {
            Judged::Kept(document) if document.is_edited() => Outcome::Edited(document.bytes().clone()),
            Judged::Kept(_) => Outcome::Unchanged,
            Judged::Hidden => Outcome::Hidden,
            Judged::Failed(failure) => Outcome::Failed(failure),
        };
        batch.into_iter().map(outcome).collect()
    }

    /// The present stamp.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        for filter in self.filters.iter() {
            filter.identity().hash(&mut hasher);
            filter.generation().borrow().hash(&mut hasher);
        }
        Stamp(hasher.finish() | 1)
    }

    /// Whether two chains are the same filters in the same order (a swap of the set need not change every chain).
    #[must_use]
    pub fn same_filters(&self, other: &Self) -> bool {
        self.filters.len() == other.filters.len()
            && self.filters.iter().zip(other.filters.iter()).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Resolves when something that these filters looked up has changed its value since the stamp was taken
    /// (debounced). Cancel-safe.
    pub async fn changed_since(&self, stamp: Stamp) {
        // Subscribed before the comparison, so that no change falls between.
        let mut followed: Vec<_> = self.filters.iter().map(|filter| filter.generation()).collect();
        while self.stamp() == stamp {
            let changes = followed.iter_mut().map(|generation| Box::pin(generation.changed()));
            if select_all(changes).await.0.is_err() {
                return;
            }
        }
    }
}
