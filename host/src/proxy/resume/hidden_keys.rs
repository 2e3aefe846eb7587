//! The objects that one client does not have because filters hid them.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use weir_document::Document;

/// The most hidden keys of one client and collection. Further ones are dropped, which costs lists, not correctness.
const CAPACITY: usize = 1 << 18;

/// The keys of objects that are hidden from one client in one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::proxy) struct HiddenKeys {
    /// Hashes of names, 8 bytes each. The hash uses a secret of this process, so that nobody can choose colliding names.
    keys: HashSet<u64, RandomState>,
}

impl HiddenKeys {
    /// Returns the key of an object by its names.
    #[must_use]
    pub(in crate::proxy) fn key(namespace: Option<&str>, name: &str) -> u64 {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        SECRET.hash_one((namespace.unwrap_or_default(), name))
    }

    /// Returns the key of an object. Objects whose name or namespace is malformed share one: no API server has them, and one
    /// must not break the response of all.
    pub(in crate::proxy) fn key_of(document: &Document) -> u64 {
        let names = document.namespace().and_then(|namespace| Ok((namespace, document.name()?)));
        names.map_or_else(|_| Self::key(None, ""), |(namespace, name)| Self::key(namespace.as_deref(), &name))
    }

    /// Adds an object that is hidden.
    pub(in crate::proxy) fn insert(&mut self, key: u64) {
        if self.keys.len() < CAPACITY {
            self.keys.insert(key);
        }
    }

    /// Removes an object that is not hidden any more; returns whether it was.
    pub(in crate::proxy) fn remove(&mut self, key: u64) -> bool {
        self.keys.remove(&key)
    }

    /// Whether no object is known to be hidden.
    #[must_use]
    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of objects that are known to be hidden.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether an object is known to be hidden.
    #[must_use]
    pub(in crate::proxy) fn contains(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }
}
