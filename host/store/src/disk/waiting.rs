//! The values that wait for a commit. Where the disk cannot be written, they wait long, so they are bounded in bytes.
//!
//! What the daemon itself keeps (the last good configuration, for example) always waits: there is one of each, and a newer
//! one replaces it. What serves node components takes the place of what serves others. A removal of what may exist is never
//! dropped, since a permission that is revoked must not come back: where removals exceed the bound, the next commit removes
//! all that was kept for clients, or all permissions of node components.

use std::collections::HashMap;
use std::collections::hash_map::IntoIter;

use super::known_names::KnownNames;
use super::value_class::{ValueClass, is_node_permission};
use super::values::PendingValue;

/// The most bytes that wait.
pub(super) const MAX_WAITING: usize = 16 << 20;
/// What an entry takes beside its name and its bytes.
const ENTRY: usize = 160;

/// Values by name; `None` removes one.
#[derive(Debug, Default)]
pub(super) struct WaitingValues {
    values: HashMap<String, Option<PendingValue>>,
    bytes: usize,
    /// What was dropped because there was no room.
    dropped: u64,
    /// More was to be removed than fits: all that was kept for clients goes.
    clears_clients: bool,
    /// The same for the permissions of node components.
    clears_node_permissions: bool,
    /// The names of what a removal may be for.
    names: KnownNames,
}

impl WaitingValues {
    /// Whether a removal of this name may remove anything.
    pub(super) fn may_exist(&self, name: &str) -> bool {
        self.names.may_exist(name)
    }

    /// Notes the names on disk, and those that a commit is about to write.
    pub(super) fn note_names<'a>(&'a mut self, on_disk: impl ExactSizeIterator<Item = &'a String>, writing: &'a Self) {
        let Self { names, values, .. } = self;
        let number = on_disk.len() + writing.values.len() + values.len();
        names.gather(number, on_disk.chain(writing.values.keys()).chain(values.keys()));
    }

    /// Takes out all values.
    pub(super) fn take(&mut self) -> Self {
        let names = std::mem::take(&mut self.names);
        std::mem::replace(self, Self { names, ..Self::default() })
    }

    /// Drops the removals of what is not there.
    pub(super) fn retain_removals(&mut self, is_there: impl Fn(&str) -> bool) {
        let idle = |(name, value): &(&String, &Option<PendingValue>)| value.is_none() && !is_there(name);
        let idle: Vec<_> = self.values.iter().filter(idle).map(|(name, _)| name.clone()).collect();
        idle.iter().for_each(|name| self.remove(name));
    }

    /// Adds a value, in place of an earlier one of its name. Returns whether there was room for it.
    pub(super) fn insert(&mut self, name: String, value: Option<PendingValue>) -> bool {
        if let Some(earlier) = self.values.remove(&name) {
            self.bytes -= cost(&name, earlier.as_ref());
        }
        let more = cost(&name, value.as_ref());
        let class = ValueClass::of(&name);
        // The other values of node components are few, and their names are not for clients to choose.
        let always =
            class == ValueClass::Own || (value.is_none() && !class.is_of_client() && !is_node_permission(&name));
        if !self.make_room(more, class) && !always {
            match value {
                Some(_) => self.dropped += 1,
                None if is_node_permission(&name) => self.clears_node_permissions = true,
                None => self.clears_clients = true,
            }
            // The value on disk is older than the one that is dropped.
            return false;
        }
        self.bytes += more;
        if value.is_some() {
            self.names.add(&name);
        }
        self.values.insert(name, value);
        true
    }

    /// Removes what gives way to a class until there is room for so many bytes.
    fn make_room(&mut self, more: usize, class: ValueClass) -> bool {
        if self.bytes + more <= MAX_WAITING {
            return true;
        }
        if class == ValueClass::Node {
            for name in self.names_of(|found| ValueClass::of(found) < ValueClass::Node) {
                if self.bytes + more <= MAX_WAITING {
                    break;
                }
                self.clears_clients |= self.values.get(&name).is_some_and(Option::is_none);
                self.dropped += 1;
                self.remove(&name);
            }
        }
        self.bytes + more <= MAX_WAITING
    }

    fn names_of(&self, gives_way: impl Fn(&str) -> bool) -> Vec<String> {
        self.values.keys().filter(|name| gives_way(name)).cloned().collect()
    }

    /// Adds later values.
    pub(super) fn append(&mut self, later: Self) {
        self.dropped += later.dropped;
        self.clears_clients |= later.clears_clients;
        self.clears_node_permissions |= later.clears_node_permissions;
        let is_cleared = |name: &str| later.clears(name);
        self.names_of(is_cleared).iter().for_each(|name| self.remove(name));
        for (name, value) in later.values {
            self.insert(name, value);
        }
    }

    /// Whether a value has to go because more was to be removed than fits.
    pub(super) fn clears(&self, name: &str) -> bool {
        (self.clears_clients && ValueClass::of(name).is_of_client())
            || (self.clears_node_permissions && is_node_permission(name))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Option<PendingValue>> {
        self.values.get(name)
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(value) = self.values.remove(name) {
            self.bytes -= cost(name, value.as_ref());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Option<PendingValue>)> {
        self.values.iter()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops what the daemon keeps for itself, which may be of an earlier process.
    pub(super) fn retain_reported(&mut self) {
        self.names_of(|name| ValueClass::of(name) == ValueClass::Own).iter().for_each(|name| self.remove(name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && !self.clears_clients && !self.clears_node_permissions
    }

    /// Whether a commit should not wait for more.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes > MAX_WAITING / 2
    }

    /// How many values were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

impl IntoIterator for WaitingValues {
    type Item = (String, Option<PendingValue>);
    type IntoIter = IntoIter<String, Option<PendingValue>>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

fn cost(name: &str, value: Option<&PendingValue>) -> usize {
    ENTRY + name.len() + value.map_or(0, |value| value.value.bytes.len())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::disk::CachedValue;

    fn value(bytes: usize) -> Option<PendingValue> {
        let value = CachedValue { bytes: vec![1; bytes], expires: SystemTime::UNIX_EPOCH };
        Some(PendingValue { value, confidential: false })
    }

    #[test]
    fn what_waits_is_bounded_and_node_components_go_before_others() {
        let mut waiting = WaitingValues::default();
        let kept = (0..100).filter(|n| waiting.insert(format!("client/a/{n}"), value(1 << 20))).count();
        assert_eq!(kept, 15, "16 MiB with what entries take beside their bytes");
        assert!(!waiting.insert("document/x".to_owned(), value(1 << 20)));
        assert_eq!(waiting.take_dropped(), 86);
        assert!(waiting.insert("node/a".to_owned(), value(4 << 20)));
        assert!(waiting.insert("configuration".to_owned(), value(1 << 20)));
        assert!(waiting.bytes <= MAX_WAITING + (2 << 20) && waiting.get("node/a").is_some());
        let bytes: usize = waiting.iter().map(|(name, value)| cost(name, value.as_ref())).sum();
        assert_eq!(bytes, waiting.bytes);
        assert!(waiting.insert("node/a".to_owned(), value(1)), "it replaces the earlier one");
        waiting.clear();
        assert_eq!(waiting.bytes, 0);
    }

    #[test]
    fn a_removal_is_never_lost() {
        let mut waiting = WaitingValues::default();
        let name = |n: usize| format!("client/a/{n}/{}", "x".repeat(1 << 20));
        let kept = (0..20).filter(|n| waiting.insert(name(*n), None)).count();
        assert!(kept < 20 && waiting.clears("client/b/1") && !waiting.clears("node/accepted/a"));
        let mut earlier = WaitingValues::default();
        earlier.insert("client/b/1".to_owned(), value(1));
        earlier.append(waiting);
        assert!(earlier.clears("client/b/1") && earlier.get("client/b/1").is_none());
    }

    #[test]
    fn removals_of_what_may_exist_for_node_components_are_bounded_too() {
        let mut waiting = WaitingValues::default();
        let name = |n: usize| format!("node/accepted/{n}/{}", "x".repeat(1 << 20));
        let kept = (0..20).filter(|n| waiting.insert(name(*n), None)).count();
        assert!(kept < 20 && waiting.bytes <= MAX_WAITING && waiting.insert("node/object".to_owned(), None));
        assert!(waiting.clears("node/grant/a") && !waiting.clears("node/object") && !waiting.clears("client/a/1"));
        let mut earlier = WaitingValues::default();
        earlier.insert("node/grant/b".to_owned(), value(1));
        earlier.append(waiting);
        assert!(earlier.clears("node/grant/b") && earlier.get("node/grant/b").is_none());
    }
}
