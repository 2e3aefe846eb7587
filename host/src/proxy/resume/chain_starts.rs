//! When each chain version came into force, in resource versions of the API server.
//!
//! A client may continue from a version that it did not get from a list: that of its own write, of a get, of another list.
//! Whatever it was shown since a chain version came into force, that version has shown it. So its watch may start at each
//! version that the API server has made since. Weir learns such a version from what is new at that time: the list of the
//! latest state, and a created object.
//!
//! Losing an entry is safe: it costs lists. Bound: [`ENTRIES`]; those of the oldest chain versions leave first.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weir_kube::GroupResource;
use weir_runtime::ChainVersion;

/// The most chain versions and resources.
const ENTRIES: usize = 4096;

/// The start of each chain version; one per proxy.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ChainStarts {
    /// The chain version was in force when the API server made any version above this one.
    after: Mutex<BTreeMap<(ChainVersion, GroupResource), u64>>,
}

impl ChainStarts {
    /// Notes that `chain_version` was in force when the API server made any version above `version`.
    pub(in crate::proxy) fn note(&self, chain_version: ChainVersion, resource: &GroupResource, version: u64) {
        self.locked(|after| {
            let start = after.entry((chain_version, resource.clone())).or_insert(version);
            *start = version.min(*start);
            while after.len() > ENTRIES {
                after.pop_first();
            }
        });
    }

    /// Whether the start is known.
    pub(in crate::proxy) fn knows(&self, chain_version: ChainVersion, resource: &GroupResource) -> bool {
        self.locked(|after| after.contains_key(&(chain_version, resource.clone())))
    }

    /// Whether `chain_version` was in force when the API server made this version. False if that is not known.
    pub(in crate::proxy) fn covers(
        &self,
        chain_version: ChainVersion,
        resource: &GroupResource,
        version: &str,
    ) -> bool {
        let start = self.locked(|after| after.get(&(chain_version, resource.clone())).copied());
        start.zip(version.parse().ok()).is_some_and(|(start, version): (u64, u64)| version > start)
    }

    fn locked<T>(&self, act: impl FnOnce(&mut BTreeMap<(ChainVersion, GroupResource), u64>) -> T) -> T {
        act(&mut self.after.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> GroupResource {
        GroupResource::new(name, "")
    }

    #[test]
    fn a_chain_version_covers_the_versions_made_since_it_is_known_to_be_in_force() {
        let starts = ChainStarts::default();
        let (one, two) = (ChainVersion::new(1, 1), ChainVersion::new(2, 1));
        assert!(!starts.covers(one, &resource("pods"), "9") && !starts.knows(one, &resource("pods")));
        starts.note(one, &resource("pods"), 7);
        starts.note(one, &resource("pods"), 9);
        assert!(starts.covers(one, &resource("pods"), "8") && starts.knows(one, &resource("pods")));
        assert!(!starts.covers(one, &resource("pods"), "7"), "an earlier chain version may have shown it");
        assert!(!starts.covers(one, &resource("pods"), "x"));
        assert!(!starts.covers(two, &resource("pods"), "8"));
        assert!(!starts.covers(one, &resource("nodes"), "8"));
    }

    #[test]
    fn the_oldest_chain_versions_leave_first() {
        let starts = ChainStarts::default();
        for clock in 0..=ENTRIES as u64 {
            starts.note(ChainVersion::new(clock, 0), &resource("pods"), 1);
        }
        assert!(!starts.knows(ChainVersion::new(0, 0), &resource("pods")));
        assert!(starts.knows(ChainVersion::new(1, 0), &resource("pods")));
    }
}
