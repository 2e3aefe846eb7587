//! A filter that is a function: the proxy's tests decide what becomes of each object, and when the chain has changed.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use weir_document::Document;

use crate::config::{Class, MatchRule, Writes};
use crate::filter::{ChainFilter, FilterSet, Filtered, Outcome, tick};
use crate::resource::GroupResource;

type Decide = dyn Fn(&Document) -> Outcome + Send + Sync;

/// What stands in for filters in a test. Clones share the generation.
#[derive(Clone)]
pub(super) struct Script {
    decide: Arc<Decide>,
    identity: u64,
    generation: watch::Sender<u64>,
}

/// A script with the rule that names its requests.
struct Ruled {
    name: Arc<str>,
    rule: MatchRule,
    script: Script,
}

impl Script {
    /// Decides by a function.
    pub(super) fn new(decide: impl Fn(&Document) -> Outcome + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), identity: tick(), generation: watch::Sender::new(tick()) }
    }

    /// As if something that it looked up had changed.
    pub(super) fn change(&self) {
        self.generation.send_replace(tick());
    }

    /// A set whose only filter it is.
    pub(super) fn set(&self, rule: &str) -> Arc<FilterSet> {
        let ruled = Ruled { name: "script".into(), rule: rule.parse().unwrap(), script: self.clone() };
        Arc::new(FilterSet::of_links(vec![Arc::new(ruled)]))
    }
}

impl ChainFilter for Ruled {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn identity(&self) -> u64 {
        self.script.identity
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: Class) -> bool {
        self.rule.matches(component, resource, class)
    }

    fn writes(&self) -> Writes {
        Writes::Refuse
    }

    fn generation(&self) -> u64 {
        *self.script.generation.borrow()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.script.generation.subscribe()
    }

    fn filter<'a>(&'a self, batch: &'a mut [Filtered], _guarded: bool) -> BoxFuture<'a, ()> {
        for slot in batch {
            let Filtered::Kept(document) = slot else { continue };
            match (self.script.decide)(document) {
                Outcome::Unchanged => {}
                Outcome::Edited(json) => document.replace(std::str::from_utf8(&json).unwrap()).unwrap(),
                Outcome::Hidden => *slot = Filtered::Hidden,
                Outcome::Failed(failure) => *slot = Filtered::Failed(failure),
            }
        }
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ruled").field("name", &self.name).finish_non_exhaustive()
    }
}
