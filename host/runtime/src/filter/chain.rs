//! The chain of filters for one component and resource. Get, list and watch run the same chain.

mod write;

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, select_all};
use tokio::sync::watch;
use weir_document::Document;

pub use self::write::{Unwritable, Written};
use super::explanation::FilterExplanation;
use super::outcome::{Outcomes, Slot};
use super::version::{ChainPeriod, ChainVersion};
use weir_kube::GroupResource;
use weir_kube::VerbClass;
use weir_spec::Writes;

/// A filter in a chain: a configured module, or a test double.
pub trait DocumentFilter: Send + Sync + fmt::Debug {
    /// Returns the name in the configuration.
    fn name(&self) -> &Arc<str>;
    /// Returns a number from [`ChainVersion::tick`] that identifies the filter.
    fn identity(&self) -> u64;
    /// Returns whether the filter applies to a request. The comparison of `component` ignores case.
    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool;
    /// Returns the policy for writes of objects that the filter edits or hides.
    fn writes(&self) -> Writes;
    /// Returns a number from [`ChainVersion::tick`]. It grows when a looked-up value changes.
    fn generation(&self) -> u64;
    /// Subscribes to the generation.
    fn subscribe(&self) -> watch::Receiver<u64>;
    /// Filters the documents of a batch that earlier filters have kept. `guarded`: the objects have fields that a
    /// filter may only edit if its configuration names them.
    fn filter<'a>(&'a self, batch: &'a mut [Slot], guarded: bool) -> BoxFuture<'a, ()>;
    /// Explains what the filter makes of one document. Counts nothing.
    fn explain(&self, document: Document, guarded: bool) -> BoxFuture<'_, FilterExplanation> {
        Box::pin(async move {
            let mut batch = [Slot::from(document.clone())];
            self.filter(&mut batch, guarded).await;
            let [made] = batch;
            FilterExplanation::of_outcome(self.name().clone(), &document, made.filtered)
        })
    }
}

/// The filters for one component and resource, in order. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Chain {
    filters: Arc<[Arc<dyn DocumentFilter>]>,
    guarded: bool,
    /// The time of the clock at which a chain of these filters was first created.
    made: u64,
}

impl Chain {
    pub(super) fn new(filters: Arc<[Arc<dyn DocumentFilter>]>, resource: &GroupResource, made: u64) -> Self {
        Self { filters, guarded: resource.group.is_empty() && resource.resource == "pods", made }
    }

    /// Runs the chain on a batch. Returns one outcome per document, in order. Checks out at most one instance per
    /// filter, for the batch only. Dropping the future discards these instances and nothing else.
    pub async fn run(&self, documents: Vec<Document>) -> Outcomes {
        self.run_on(documents.into_iter().map(Slot::from).collect()).await
    }

    /// Runs the chain, as [`Chain::run`] does, on documents that had degraded outcomes: further failures are not counted.
    pub async fn run_again(&self, documents: Vec<Document>) -> Outcomes {
        let again = |document| Slot { is_repeated: true, ..Slot::from(document) };
        self.run_on(documents.into_iter().map(again).collect()).await
    }

    async fn run_on(&self, mut batch: Vec<Slot>) -> Outcomes {
        for filter in self.filters.iter() {
            if !batch.iter().any(Slot::is_kept) {
                break;
            }
            filter.filter(&mut batch, self.guarded).await;
        }
        Outcomes::of(batch)
    }

    /// Explains what the chain makes of a document, filter by filter. It ends with the filter that hides it or fails on it.
    /// Each module runs on an instance of its own, and nothing is replayed or counted.
    pub async fn explain(&self, document: Document) -> Vec<FilterExplanation> {
        let (mut explained, mut next) = (Vec::new(), Some(document));
        for filter in self.filters.iter() {
            let Some(document) = next.take() else { break };
            let explanation = filter.explain(document, self.guarded).await;
            next.clone_from(&explanation.after);
            explained.push(explanation);
        }
        explained
    }

    /// Returns the current version.
    #[must_use]
    pub fn version(&self) -> ChainVersion {
        let clock = self.filters.iter().map(|filter| filter.generation()).fold(self.made, u64::max);
        ChainVersion::new(clock, self.made)
    }

    /// Which filters these are, and since when they are in force.
    pub(super) fn period(&self) -> ChainPeriod {
        ChainPeriod::new(self.filters.iter().map(|filter| filter.identity()).collect(), self.made)
    }

    /// Returns whether two chains have the same filters in the same order. A reload does not change every chain.
    #[must_use]
    pub fn same_filters(&self, other: &Self) -> bool {
        self.filters.len() == other.filters.len()
            && self.filters.iter().zip(other.filters.iter()).all(|(a, b)| a.identity() == b.identity())
    }

    /// Resolves when a value that these filters looked up has changed since a version. Changes are debounced.
    /// Cancel-safe.
    pub async fn changed_since(&self, version: ChainVersion) {
        // Subscribes before it compares versions, so that it misses no change.
        let mut followed: Vec<_> = self.filters.iter().map(|filter| filter.subscribe()).collect();
        while self.version() == version {
            let changes = followed.iter_mut().map(|generation| Box::pin(generation.changed()));
            if select_all(changes).await.0.is_err() {
                return;
            }
        }
    }
}
