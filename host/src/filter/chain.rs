//! The chain of filters of one (component, resource): get, list and watch always run the same one.

mod write;

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use futures_util::future::select_all;
use weir_document::Document;

pub use self::write::{Unwritable, Written};
use super::filter::{Filter, Judged};
use super::outcome::Outcome;
use crate::resource::GroupResource;

/// The filters that apply to one component's reads of one resource, in order. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Chain {
    filters: Arc<[Arc<Filter>]>,
    /// Whether the resource's objects have fields that only filters named for it may edit.
    guarded: bool,
    /// Stands in for the filters in the proxy's tests.
    #[cfg(test)]
    script: Option<super::script::Script>,
}

/// Says which filters a chain has and what their lookups were when it was taken: while two stamps are equal, the same
/// object has the same outcome. Not ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of no chain at all: what passed unfiltered.
    pub const UNFILTERED: Self = Self(0);
}

#[cfg(test)]
impl Stamp {
    /// Any stamp.
    pub(crate) fn test(n: u64) -> Self {
        Self(n)
    }
}

impl Chain {
    pub(super) fn new(filters: Arc<[Arc<Filter>]>, resource: &GroupResource) -> Self {
        Self {
            filters,
            guarded: resource.group.is_empty() && resource.resource == "pods",
            #[cfg(test)]
            script: None,
        }
    }

    #[cfg(test)]
    pub(super) fn scripted(script: super::script::Script) -> Self {
        Self { filters: Arc::new([]), guarded: false, script: Some(script) }
    }

    /// Runs the chain over a batch; one outcome per document, in order. An instance per filter is checked out for the
    /// batch only. Dropping the future throws those instances away; nothing else is lost.
    pub async fn run(&self, documents: Vec<Document>) -> Vec<Outcome> {
        #[cfg(test)]
        if let Some(script) = &self.script {
            return script.run(&documents);
        }
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
        #[cfg(test)]
        if let Some(script) = &self.script {
            return script.stamp();
        }
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        for filter in self.filters.iter() {
            filter.identity().hash(&mut hasher);
            filter.reads_generation().hash(&mut hasher);
        }
        Stamp(hasher.finish() | 1)
    }

    /// Whether two chains are the same filters in the same order (a swap of the set need not change every chain).
    #[must_use]
    pub fn same_filters(&self, other: &Self) -> bool {
        #[cfg(test)]
        if let (Some(script), Some(other)) = (&self.script, &other.script) {
            return script.same(other);
        }
        self.filters.len() == other.filters.len()
            && self.filters.iter().zip(other.filters.iter()).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Resolves when something that these filters looked up has changed its value since the stamp was taken
    /// (debounced). Cancel-safe.
    pub async fn changed_since(&self, stamp: Stamp) {
        #[cfg(test)]
        if let Some(script) = &self.script {
            return script.changed_since(stamp).await;
        }
        // Subscribed before the comparison, so that no change falls between.
        let mut followed: Vec<_> = self.filters.iter().map(|filter| filter.follow_reads()).collect();
        while self.stamp() == stamp {
            let changes = followed.iter_mut().map(|generation| Box::pin(generation.changed()));
            if select_all(changes).await.0.is_err() {
                return;
            }
        }
    }
}
