//! A filter for tests that keeps every object.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::chain::DocumentFilter;
use super::outcome::Slot;
use super::version::ChainVersion;
use weir_kube::GroupResource;
use weir_kube::VerbClass;
use weir_spec::{MatchRule, Writes};

/// Clones share the generation.
#[derive(Debug, Clone)]
pub(super) struct TestFilter {
    name: Arc<str>,
    identity: u64,
    rule: MatchRule,
    generation: watch::Sender<u64>,
}

impl TestFilter {
    pub(super) fn new(rule: &str) -> Self {
        Self {
            name: rule.into(),
            identity: ChainVersion::tick(),
            rule: rule.parse().unwrap(),
            generation: watch::Sender::new(ChainVersion::tick()),
        }
    }

    /// Simulates the change of a looked-up value.
    pub(super) fn change(&self) {
        self.generation.send_replace(ChainVersion::tick());
    }
}

impl DocumentFilter for TestFilter {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.rule.matches(component, resource, class)
    }

    fn writes(&self) -> Writes {
        Writes::Pass
    }

    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn filter<'a>(&'a self, _batch: &'a mut [Slot], _guarded: bool) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
