//! Values that a filter may keep between objects. Each derives from something that the filter read, and its fingerprint
//! is the key. The number of entries is bounded: a new entry evicts the least recently used one.

use std::cell::RefCell;

/// A bounded cache of derived values, keyed by the fingerprints of what they derive from.
///
/// A value must depend only on what its key is a fingerprint of, and on the settings, because the host discards and reuses
/// instances at any time. `get` clones the value, so use an `Rc` for a large one.
///
/// ```
/// # use std::{collections::HashSet, rc::Rc};
/// # use weir_filter::{Memo, Object, Path};
/// static NODES: Path = Path::new("status.nodes[*]");
///
/// struct Members(Memo<u64, Rc<HashSet<String>>>);
///
/// impl Members {
///     fn of(&self, pool: &Object) -> Rc<HashSet<String>> {
///         self.0.get(pool.fingerprint(&NODES), || {
///             Rc::new(pool.column(&NODES).iter().flatten().map(str::to_owned).collect())
///         })
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Memo<K, T> {
    /// Most recently used first.
    entries: RefCell<Vec<(K, T)>>,
    capacity: usize,
}

impl<K: PartialEq, T: Clone> Memo<K, T> {
    /// Creates a cache of one value, that of the last key.
    pub fn new() -> Self {
        Self::keeping(1)
    }

    /// Creates a cache of this many values. `get` searches them one by one, so use some dozens at most.
    pub fn keeping(capacity: usize) -> Self {
        Self { entries: RefCell::new(Vec::new()), capacity: capacity.max(1) }
    }

    /// Returns the value of this key. Creates it if it is not cached.
    pub fn get(&self, key: K, make: impl FnOnce() -> T) -> T {
        if let Some(value) = self.find(&key) {
            return value;
        }
        let value = make();
        let mut entries = self.entries.borrow_mut();
        entries.truncate(self.capacity - 1);
        entries.insert(0, (key, value.clone()));
        value
    }

    fn find(&self, key: &K) -> Option<T> {
        let mut entries = self.entries.borrow_mut();
        let place = entries.iter().position(|(entry, _)| entry == key)?;
        if place > 0 {
            let used = entries.remove(place);
            entries.insert(0, used);
        }
        entries.first().map(|(_, value)| value.clone())
    }
}

impl<K: PartialEq, T: Clone> Default for Memo<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Memo;

    #[test]
    fn a_value_is_computed_once_per_key() {
        let memo = Memo::new();
        assert_eq!(memo.get(1, || "one"), "one");
        assert_eq!(memo.get(1, || "never"), "one");
        assert_eq!(memo.get(2, || "two"), "two");
        assert_eq!(memo.get(1, || "again"), "again");
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let memo = Memo::keeping(2);
        memo.get(1, || 1);
        memo.get(2, || 2);
        memo.get(1, || 0);
        memo.get(3, || 3);
        assert_eq!((memo.get(1, || 10), memo.get(2, || 20)), (1, 20));
    }
}
