//! The stamps of chains: since which resource version of the API server each has been in force, with what it looks up.
//!
//! What a client was shown of a later version by this daemon, this chain version has shown it, whichever client it is, and wherever
//! it has the version from: a view, a list or a watch from the API server, which all end or take the new filters before they send
//! more. At the stamp or below, nothing is known of it. A stamp is the version of a consistent read that began after the chain
//! version came into force; a view that is behind shows nothing that was made later. Once the cluster's history was found to be
//! another one, versions come again, and views read stamps of their own.
//!
//! Losing an entry is safe: clients get again what they hold. Bound: [`ENTRIES`]; the least recently used one leaves first.

use std::collections::HashMap;

use weir_kube::GroupResource;
use weir_process::sync::{Mutex, MutexGuard, PoisonError};
use weir_runtime::ChainVersion;

/// The most chains and resources.
const ENTRIES: usize = 4096;

/// The stamp of each chain and resource; one of the daemon.
#[derive(Debug, Default)]
pub struct ChainStamps {
    stamps: Mutex<Stamps>,
}

#[derive(Debug, Default)]
struct Stamps {
    /// By chain and resource.
    newest: HashMap<(u64, GroupResource), Stamp>,
    /// Grows with each use.
    clock: u64,
    /// Whether the cluster's history was found to be another one: versions of before may come again, with another content.
    is_rewritten: bool,
}

/// The stamp of the newest version of a chain.
#[derive(Debug)]
struct Stamp {
    of: ChainVersion,
    /// Since when it has been in force; `None` until that is known.
    version: Option<u64>,
    /// Up to which version failure policies decided what some clients were shown.
    degraded: u64,
    used: u64,
}

impl ChainStamps {
    /// Notes that `chain_version` was in force when the API server made any version above `version`. The lowest one counts.
    pub fn note(&self, chain_version: ChainVersion, resource: &GroupResource, version: u64) {
        self.change(chain_version, resource, |stamp| {
            if stamp.of == chain_version {
                stamp.version = Some(stamp.version.map_or(version, |known| known.min(version)));
            }
        });
    }

    /// Notes that failure policies decided on some of what a client was shown up to `version`: nothing is known of it, whenever
    /// the filters came into force. A later version of the chain does not change that.
    pub fn degrade(&self, chain_version: ChainVersion, resource: &GroupResource, version: u64) {
        self.change(chain_version, resource, |stamp| stamp.degraded = stamp.degraded.max(version));
    }

    /// Changes the stamp of a chain version, or of a later one of the same chain.
    fn change(&self, chain_version: ChainVersion, resource: &GroupResource, change: impl FnOnce(&mut Stamp)) {
        if chain_version == ChainVersion::UNFILTERED {
            return;
        }
        let mut stamps = self.stamps();
        stamps.clock += 1;
        let new = || Stamp { of: chain_version, version: None, degraded: 0, used: 0 };
        let used = stamps.clock;
        let known = stamps.newest.entry((chain_version.chain(), resource.clone())).or_insert_with(new);
        known.used = used;
        if known.of < chain_version {
            *known = Stamp { used, degraded: known.degraded, ..new() };
        }
        change(known);
        if stamps.newest.len() > ENTRIES {
            let oldest = stamps.newest.iter().min_by_key(|(_, stamp)| stamp.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| stamps.newest.remove(&oldest));
        }
    }

    /// Whether the stamp is known, or cannot be.
    pub fn knows(&self, chain_version: ChainVersion, resource: &GroupResource) -> bool {
        chain_version == ChainVersion::UNFILTERED || self.of(chain_version, resource).is_some()
    }

    /// Whether `chain_version` was in force when the API server made this version. False if that is not known.
    pub fn covers(&self, chain_version: ChainVersion, resource: &GroupResource, version: &str) -> bool {
        let stamp = self.of(chain_version, resource);
        stamp.zip(version.parse().ok()).is_some_and(|(stamp, version): (u64, u64)| version > stamp)
    }

    /// Forgets all: the API server is that of another cluster, or was restored from a backup.
    pub fn forget(&self) {
        let mut stamps = self.stamps();
        stamps.newest.clear();
        stamps.is_rewritten = true;
    }

    /// The stamp of a view that begins; `None` until it is known, and after another history.
    pub(crate) fn of_view(&self, chain_version: ChainVersion, resource: &GroupResource) -> Option<u64> {
        // One lock: a stamp of the history that comes next is none of this one.
        let mut stamps = self.stamps();
        stamps.of(chain_version, resource).filter(|_| !stamps.is_rewritten)
    }

    fn of(&self, chain_version: ChainVersion, resource: &GroupResource) -> Option<u64> {
        self.stamps().of(chain_version, resource)
    }

    fn stamps(&self) -> MutexGuard<'_, Stamps> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stamps {
    fn of(&mut self, chain_version: ChainVersion, resource: &GroupResource) -> Option<u64> {
        self.clock += 1;
        let known = self.newest.get_mut(&(chain_version.chain(), resource.clone()))?;
        known.used = self.clock;
        let version = known.version.filter(|_| known.of == chain_version)?;
        Some(version.max(known.degraded))
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
        let stamps = ChainStamps::default();
        let (one, two) = (ChainVersion::new(1, 1), ChainVersion::new(2, 2));
        assert!(!stamps.covers(one, &resource("pods"), "9") && !stamps.knows(one, &resource("pods")));
        stamps.note(one, &resource("pods"), 7);
        stamps.note(one, &resource("pods"), 9);
        assert!(stamps.covers(one, &resource("pods"), "8") && stamps.knows(one, &resource("pods")));
        assert!(!stamps.covers(one, &resource("pods"), "7"), "an earlier chain version may have shown it");
        assert!(!stamps.covers(one, &resource("pods"), "x"));
        assert!(!stamps.covers(two, &resource("pods"), "8"));
        assert!(!stamps.covers(one, &resource("nodes"), "8"));
        assert_eq!(stamps.of_view(one, &resource("pods")), Some(7));
        stamps.forget();
        assert!(!stamps.covers(one, &resource("pods"), "8"));
        stamps.note(one, &resource("pods"), 3);
        assert_eq!(stamps.of_view(one, &resource("pods")), None, "versions of before come again");
    }

    #[test]
    fn a_later_version_of_a_chain_has_a_stamp_of_its_own() {
        let stamps = ChainStamps::default();
        let (before, after) = (ChainVersion::new(1, 1), ChainVersion::new(2, 1));
        stamps.note(before, &resource("pods"), 7);
        assert!(!stamps.covers(after, &resource("pods"), "9"));
        stamps.note(after, &resource("pods"), 8);
        stamps.note(before, &resource("pods"), 3);
        assert!(stamps.covers(after, &resource("pods"), "9") && !stamps.covers(after, &resource("pods"), "8"));
        assert!(!stamps.covers(before, &resource("pods"), "9"));
    }

    #[test]
    fn what_failure_policies_decided_is_not_covered_whenever_the_stamp_is_known() {
        let stamps = ChainStamps::default();
        let (before, after) = (ChainVersion::new(1, 1), ChainVersion::new(2, 1));
        stamps.degrade(before, &resource("pods"), 7);
        assert!(!stamps.knows(before, &resource("pods")), "it is still asked for");
        stamps.note(before, &resource("pods"), 4);
        assert!(!stamps.covers(before, &resource("pods"), "7") && stamps.covers(before, &resource("pods"), "8"));
        stamps.degrade(before, &resource("pods"), 9);
        stamps.degrade(before, &resource("pods"), 8);
        assert!(!stamps.covers(before, &resource("pods"), "9") && stamps.covers(before, &resource("pods"), "10"));
        stamps.note(after, &resource("pods"), 5);
        stamps.degrade(before, &resource("pods"), 99);
        assert!(!stamps.covers(after, &resource("pods"), "99"), "a view that was behind has shown it");
        assert!(stamps.covers(after, &resource("pods"), "100"));
    }

    #[test]
    fn nothing_is_known_where_it_is_not_known_since_when_nothing_is_filtered() {
        let stamps = ChainStamps::default();
        stamps.note(ChainVersion::UNFILTERED, &resource("pods"), 1);
        assert!(!stamps.covers(ChainVersion::UNFILTERED, &resource("pods"), "9"));
        assert!(stamps.knows(ChainVersion::UNFILTERED, &resource("pods")), "it is not asked for");
    }

    #[test]
    fn the_least_recently_used_one_leaves_first() {
        let stamps = ChainStamps::default();
        let chain = |n: u64| ChainVersion::new(n + 1, n + 1);
        for n in 0..=ENTRIES as u64 {
            stamps.note(chain(n), &resource("pods"), 1);
            assert!(stamps.covers(chain(0), &resource("pods"), "2"), "{n}");
        }
        assert!(!stamps.knows(chain(1), &resource("pods")) && stamps.knows(chain(2), &resource("pods")));
    }
}
