//! The chain of filters of one (component, resource): get, list and watch always run the same one.

mod write;

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, select_all};
use tokio::sync::watch;
use weir_document::Document;

pub use self::write::{Unwritable, Written};
use super::outcome::{Filtered, Outcome};
use super::version::ChainVersion;
use crate::Writes;
use weir_kube::GroupResource;
use weir_kube::VerbClass;

/// One filter as a chain runs it: a configured module, or a test double.
pub trait DocumentFilter: Send + Sync + fmt::Debug {
    /// As configured.
    fn name(&self) -> &Arc<str>;
    /// A number of [`tick`](super::tick) that no other filter has.
    fn identity(&self) -> u64;
    /// Whether it applies to a request. `component` is compared without regard to case.
    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool;
    /// What becomes of writes of objects that it edits or hides.
    fn writes(&self) -> Writes;
    /// A number of [`tick`](super::tick) that grows when a value changes that the filter looked up.
    fn generation(&self) -> u64;
    /// The generation as a channel.
    fn subscribe(&self) -> watch::Receiver<u64>;
    /// Filters those documents of a batch that are kept so far. `guarded`: the objects have fields that only filters named
    /// for them may edit.
    fn filter<'a>(&'a self, batch: &'a mut [Filtered], guarded: bool) -> BoxFuture<'a, ()>;
}

/// The filters that apply to one component's reads of one resource, in order. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Chain {
    filters: Arc<[Arc<dyn DocumentFilter>]>,
    guarded: bool,
    /// When a chain of these filters was made first, by the clock.
    made: u64,
}

impl Chain {
    pub(super) fn new(filters: Arc<[Arc<dyn DocumentFilter>]>, resource: &GroupResource, made: u64) -> Self {
        Self { filters, guarded: resource.group.is_empty() && resource.resource == "pods", made }
    }

    /// Runs the chain over a batch; one outcome per document, in order. An instance per filter is checked out for the
    /// batch only. Dropping the future discards those instances; nothing else is lost.
    pub async fn run(&self, documents: Vec<Document>) -> Vec<Outcome> {
        let mut batch: Vec<_> = documents.into_iter().map(Filtered::Kept).collect();
        for filter in self.filters.iter() {
            if batch.iter().all(|filtered| !matches!(filtered, Filtered::Kept(_))) {
                break;
            }
            filter.filter(&mut batch, self.guarded).await;
        }
        batch.into_iter().map(Outcome::from).collect()
    }

    /// The version at this moment.
    #[must_use]
    pub fn version(&self) -> ChainVersion {
        let clock = self.filters.iter().map(|filter| filter.generation()).fold(self.made, u64::max);
        ChainVersion::new(clock, self.made)
    }

    /// Whether two chains are the same filters in the same order (a swap of the set need not change every chain).
    #[must_use]
    pub fn same_filters(&self, other: &Self) -> bool {
        self.filters.len() == other.filters.len()
            && self.filters.iter().zip(other.filters.iter()).all(|(a, b)| a.identity() == b.identity())
    }

    /// Resolves when something that these filters looked up has changed its value since a version (debounced).
    /// Cancel-safe.
    pub async fn changed_since(&self, version: ChainVersion) {
        // Subscribed before the comparison, so that no change falls between.
        let mut followed: Vec<_> = self.filters.iter().map(|filter| filter.subscribe()).collect();
        while self.version() == version {
            let changes = followed.iter_mut().map(|generation| Box::pin(generation.changed()));
            if select_all(changes).await.0.is_err() {
                return;
            }
        }
    }
}
