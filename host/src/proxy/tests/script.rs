//! A filter that is a function. The tests decide the outcome of each object, and when a looked-up value changes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use tokio::sync::watch;
use weir_document::Document;
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{ChainVersion, DocumentFilter, FilterSet, Filtered, Outcome, Slot};
use weir_spec::{MatchRule, Writes};

type Decide = dyn Fn(&Document) -> Outcome + Send + Sync;

/// The test double of a filter.
#[derive(Clone)]
pub(crate) struct Script {
    name: Arc<str>,
    identity: u64,
    rule: Option<MatchRule>,
    decide: Arc<Decide>,
    ignores: bool,
    generation: watch::Sender<u64>,
}

impl Script {
    /// Creates a filter that returns the outcomes of a function. The function must not edit.
    pub(crate) fn new(decide: impl Fn(&Document) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            name: "script".into(),
            identity: ChainVersion::tick(),
            rule: None,
            decide: Arc::new(decide),
            ignores: false,
            generation: watch::Sender::new(ChainVersion::tick()),
        }
    }

    /// Returns the filter with the failure policy `Ignore`; without, it has `Fail`.
    pub(crate) fn ignoring_failures(self) -> Self {
        Self { ignores: true, ..self }
    }

    /// Returns a set with this filter only, which has this match rule.
    pub(crate) fn set(&self, rule: &str) -> FilterSet {
        FilterSet::of(vec![self.matching(rule)])
    }

    /// Returns the filter with a match rule.
    pub(crate) fn matching(&self, rule: &str) -> Arc<dyn DocumentFilter> {
        Arc::new(Self { rule: Some(rule.parse().unwrap()), ..self.clone() })
    }

    /// Simulates the change of a looked-up value.
    pub(crate) fn change(&self) {
        self.generation.send_replace(ChainVersion::tick());
    }
}

impl DocumentFilter for Script {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn writes(&self) -> Writes {
        Writes::Refuse
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.matches(component, resource, class))
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn filter<'a>(&'a self, batch: &'a mut [Slot], _guarded: bool) -> BoxFuture<'a, ()> {
        for slot in batch {
            let Filtered::Kept(document) = &slot.filtered else { continue };
            slot.filtered = match (self.decide)(document) {
                Outcome::Unchanged => continue,
                Outcome::Hidden => Filtered::Hidden,
                Outcome::Failed(failure) => {
                    slot.is_degraded = true;
                    if self.ignores {
                        continue;
                    }
                    Filtered::Failed(failure)
                }
                Outcome::Edited(_) => panic!("a script does not edit"),
            };
        }
        ready(()).boxed()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}
