//! Since when each chain has been in force.
//!
//! A chain may leave and come back: a filter is added, and removed a moment later. Its version must not come back with it. In
//! between, clients may have read through another chain, and a watch that continues from there must not pass for one of this
//! chain.

use std::collections::HashMap;

use weir_kube::{GroupResource, VerbClass};

/// The most kinds of requests. Forgetting one is safe: it costs its clients a list.
const REQUESTS: usize = 1024;

/// What determines the chain of a request: the client component in lower case, the resource and the verb class.
pub(super) type RequestKind = (String, GroupResource, VerbClass);

/// The chain of each kind of requests, as of the last request. The sets that replace each other share it.
#[derive(Debug, Default, Clone)]
pub(super) struct InForce {
    chains: HashMap<RequestKind, Period>,
    /// Grows with each use.
    clock: u64,
    /// Whether a kind was forgotten.
    has_forgotten: bool,
}

/// One chain without interruption.
#[derive(Debug, Clone)]
struct Period {
    /// The identities of the filters.
    filters: Box<[u64]>,
    since: u64,
    used: u64,
    /// Whether a chain of before had filters.
    was_filtered: bool,
}

impl InForce {
    /// Returns since when a chain of these filters has been in force. `begin` returns it if another chain was before it, or if
    /// none is known.
    pub(super) fn since(&mut self, kind: &RequestKind, filters: Box<[u64]>, begin: impl FnOnce() -> u64) -> u64 {
        self.clock += 1;
        if let Some(period) = self.chains.get_mut(kind).filter(|period| period.filters == filters) {
            period.used = self.clock;
            return period.since;
        }
        let since = begin();
        let was_filtered = self.was_filtered(kind);
        self.chains.insert(kind.clone(), Period { filters, since, used: self.clock, was_filtered });
        if self.chains.len() > REQUESTS {
            let oldest = self.chains.iter().min_by_key(|(_, period)| period.used).map(|(kind, _)| kind.clone());
            oldest.and_then(|oldest| self.chains.remove(&oldest));
            self.has_forgotten = true;
        }
        since
    }

    /// Notes a further request of a kind, so that those that are rare are forgotten.
    pub(super) fn note_use(&mut self, kind: &RequestKind) {
        self.clock += 1;
        if let Some(period) = self.chains.get_mut(kind) {
            period.used = self.clock;
        }
    }

    /// Since when the chain of a kind has been in force, if that is known.
    pub(super) fn begun(&self, kind: &RequestKind) -> Option<u64> {
        self.chains.get(kind).map(|period| period.since)
    }

    /// Whether a chain with filters is, or may have been, in force for a kind.
    pub(super) fn was_filtered(&self, kind: &RequestKind) -> bool {
        let period = self.chains.get(kind);
        period.map_or(self.has_forgotten, |period| period.was_filtered || !period.filters.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(component: &str) -> RequestKind {
        (component.to_owned(), GroupResource::new("services", ""), VerbClass::Read)
    }

    #[test]
    fn a_chain_that_comes_back_begins_again() {
        let (mut chains, mut clock) = (InForce::default(), 0);
        let mut since = |component: &str, filters: &[u64]| {
            chains.since(&kind(component), filters.into(), || {
                clock += 1;
                clock
            })
        };
        assert_eq!([since("a", &[7]), since("a", &[7]), since("b", &[7])], [1, 1, 2]);
        assert_eq!([since("a", &[7, 8]), since("a", &[7]), since("a", &[7])], [3, 4, 4]);
        assert_eq!([since("a", &[]), since("a", &[7])], [5, 6], "no chain is one, too");
        assert_eq!(since("b", &[7]), 2, "for others it has not changed");
        since("a", &[]);
        since("c", &[]);
        assert_eq!(["a", "b", "c"].map(|name| chains.was_filtered(&kind(name))), [true, true, false]);
    }

    #[test]
    fn the_kind_that_was_not_used_for_the_longest_time_is_forgotten() {
        let mut chains = InForce::default();
        for n in 0..REQUESTS {
            chains.since(&kind(&n.to_string()), [7].into(), || 1);
        }
        chains.note_use(&kind("2"));
        assert_eq!(chains.since(&kind("0"), [7].into(), || 2), 1);
        chains.since(&kind("one more"), [7].into(), || 2);
        assert_eq!(chains.chains.len(), REQUESTS);
        assert_eq!(chains.since(&kind("0"), [7].into(), || 3), 1);
        assert_eq!(chains.since(&kind("1"), [7].into(), || 3), 3);
        assert_eq!((chains.begun(&kind("2")), chains.begun(&kind("3"))), (Some(1), None));
    }
}
