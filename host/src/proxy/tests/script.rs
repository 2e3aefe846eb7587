//! A filter that is a function: lets the proxy's tests say what becomes of each object, and when what it looked up changed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use tokio::sync::watch;
use weir_document::Document;
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{DocumentFilter, FilterSet, Judged, MatchRule, Outcome, Writes};

type Judge = dyn Fn(&Document) -> Outcome + Send + Sync;

/// What stands in for filters in a test.
#[derive(Clone)]
pub(crate) struct Script {
    name: Arc<str>,
    identity: u64,
    rule: Option<MatchRule>,
    judge: Arc<Judge>,
    generation: watch::Sender<u64>,
}

impl Script {
    /// Judges objects by a function; it never edits.
    pub(crate) fn new(judge: impl Fn(&Document) -> Outcome + Send + Sync + 'static) -> Self {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        Self {
            name: "script".into(),
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            rule: None,
            judge: Arc::new(judge),
            generation: watch::Sender::new(0),
        }
    }

    /// A set whose only filter this is, for what a rule names.
    pub(crate) fn set(&self, rule: &str) -> Arc<FilterSet> {
        let filter = Self { rule: Some(rule.parse().unwrap()), ..self.clone() };
        Arc::new(FilterSet::of(vec![Arc::new(filter)]))
    }

    /// As if something that it looked up had changed.
    pub(crate) fn change(&self) {
        self.generation.send_modify(|generation| *generation += 1);
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

    fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn judge<'a>(&'a self, batch: &'a mut [Judged], _guarded: bool) -> BoxFuture<'a, ()> {
        for slot in batch {
            let Judged::Kept(document) = &*slot else { continue };
            *slot = match (self.judge)(document) {
                Outcome::Unchanged => continue,
                Outcome::Hidden => Judged::Hidden,
                Outcome::Failed(failure) => Judged::Failed(failure),
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
