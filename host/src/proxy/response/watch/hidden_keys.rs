//! The objects that the client of a watch does not have because filters hid them.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use weir_document::Document;

/// The most hidden keys of all watches. Further ones are dropped, which costs lists, not correctness.
const CAPACITY: usize = 1 << 20;
/// Those of all open watches.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The keys of objects that are hidden from the client of one watch.
#[derive(Debug, Default)]
pub(super) struct HiddenKeys {
    /// Hashes of names, 8 bytes each. The hash uses a secret of this process, so that nobody can choose colliding names.
    keys: HashSet<u64, RandomState>,
}

impl HiddenKeys {
    /// Returns the key of an object by its names.
    #[must_use]
    pub(super) fn key(namespace: Option<&str>, name: &str) -> u64 {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        SECRET.hash_one((namespace.unwrap_or_default(), name))
    }

    /// Returns the key of an object. Objects whose name or namespace is malformed share one: no API server has them, and one
    /// must not break the response of all.
    pub(super) fn key_of(document: &Document) -> u64 {
        let names = document.namespace().and_then(|namespace| Ok((namespace, document.name()?)));
        names.map_or_else(|_| Self::key(None, ""), |(namespace, name)| Self::key(namespace.as_deref(), &name))
    }

    /// Adds an object that is hidden.
    pub(super) fn insert(&mut self, key: u64) {
        if HELD.load(Ordering::Relaxed) < CAPACITY && self.keys.insert(key) {
            HELD.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes an object that is not hidden any more.
    pub(super) fn remove(&mut self, key: u64) {
        if self.keys.remove(&key) {
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether no object is known to be hidden.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether an object is known to be hidden.
    #[must_use]
    pub(super) fn contains(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }
}

impl Drop for HiddenKeys {
    fn drop(&mut self) {
        HELD.fetch_sub(self.keys.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_keys_count_while_their_watch_is_open() {
        let held = || HELD.load(Ordering::Relaxed);
        let before = held();
        let mut keys = HiddenKeys::default();
        let [one, other] = ["a", "b"].map(|name| HiddenKeys::key(Some("default"), name));
        [one, other, one].into_iter().for_each(|key| keys.insert(key));
        assert!(held() >= before.min(CAPACITY - 2) && keys.contains(one) && keys.contains(other));
        keys.remove(one);
        assert!(!keys.contains(one) && keys.contains(other) && !keys.is_empty());
        keys.remove(other);
        assert!(keys.is_empty());
    }
}
