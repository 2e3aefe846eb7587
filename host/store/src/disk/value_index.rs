//! The values on disk by name: what each weighs, and which of them give way when there is no room.
//!
//! Expired values go first, then those of clients, then documents, then permissions of clients, then
//! those of node components; of one class, what expires
//! first. One owner has at most a tenth of the limit. While no API server can be reached, only what was added
//! since gives way: what was there before cannot be fetched again. Memory: some 200 bytes a value; each counts as at least
//! [`MIN_WEIGHT`] bytes, so that their number is bounded, too.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use super::database::Database;
use super::error::DiskError;
use super::value_class::{ValueClass, is_node_permission, owner};
use super::values::{EXPIRY, PendingValue, expiry};
use super::waiting::WaitingValues;

/// What a value weighs at least: its row, its place in this index, and the names of both.
const MIN_WEIGHT: u64 = 1 << 10;

/// The values on disk.
#[derive(Debug, Default)]
pub(super) struct ValueIndex {
    entries: HashMap<String, Entry>,
    /// Counts additions.
    next: u64,
    /// The first addition of the present outage.
    outage: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    weight: u64,
    expires: Option<SystemTime>,
    added: u64,
}

impl ValueIndex {
    /// Reads what is on disk.
    pub(super) fn load(database: &Database) -> Result<Self, DiskError> {
        let mut index = Self { next: 1, ..Self::default() };
        for (name, size, head) in database.values(EXPIRY)? {
            let entry = Entry { weight: weight(&name, size), expires: expiry(&head), added: 0 };
            index.entries.insert(name, entry);
        }
        Ok(index)
    }

    /// Notes whether an API server can be reached.
    pub(super) fn note_outage(&mut self, is_offline: bool) {
        match (is_offline, self.outage) {
            (true, None) => self.outage = Some(self.next),
            (false, Some(_)) => self.outage = None,
            _ => {}
        }
    }

    /// Adds what is about to be written.
    pub(super) fn add(&mut self, values: &WaitingValues) {
        for (name, value) in values.iter() {
            match value {
                Some(PendingValue { value, .. }) => {
                    let weight = weight(name, value.bytes.len() as u64);
                    let entry = Entry { weight, expires: Some(value.expires), added: self.next };
                    self.next += 1;
                    // A value that is renewed is as old as it was: an outage does not end it.
                    let earlier = self.entries.get(name).map(|earlier| earlier.added);
                    self.entries.insert(name.clone(), Entry { added: earlier.unwrap_or(entry.added), ..entry });
                }
                None => {
                    self.entries.remove(name);
                }
            }
        }
    }

    /// Corrects what a value weighs: it may have been compressed.
    pub(super) fn resize(&mut self, name: &str, size: u64) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.weight = weight(name, size);
        }
    }

    /// What all values weigh.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.weight).sum()
    }

    /// The names of all values.
    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &String> {
        self.entries.keys()
    }

    /// Whether there is a value of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Takes out the values that have to go because more was to be removed than fits in memory.
    pub(super) fn take_cleared(&mut self, values: &WaitingValues) -> Vec<String> {
        self.take(|name, _| values.clears(name))
    }

    /// Takes out the values that have expired at this time, with or without permissions.
    pub(super) fn take_expired(&mut self, now: SystemTime, permissions: bool) -> Vec<String> {
        self.take(|name, entry| {
            entry.expires.is_none_or(|expires| expires <= now) && (permissions || !is_permission(name))
        })
    }

    /// Takes out what has to go for the others to fit: what exceeds the share of an owner, then of a class, then the limit.
    pub(super) fn take_superfluous(&mut self, limit: u64) -> Vec<String> {
        let mut totals = Totals::of(&self.entries, limit);
        if !totals.exceeded() {
            return Vec::new();
        }
        let since = self.outage.unwrap_or_default();
        let may_go =
            |(name, entry): &(&String, &Entry)| entry.added >= since && ValueClass::of(name) != ValueClass::Own;
        let mut candidates: Vec<_> = self.entries.iter().filter(may_go).collect();
        // Of equal expiry, the oldest goes.
        candidates.sort_by_key(|(name, entry)| (ValueClass::of(name), entry.expires, entry.added));
        let mut superfluous = Vec::new();
        for is_over in [Totals::owner_is_over, Totals::class_is_over, Totals::is_over] {
            candidates.retain(|(name, entry)| {
                let goes = is_over(&totals, name);
                if goes {
                    totals.subtract(name, entry.weight);
                    superfluous.push((*name).clone());
                }
                !goes
            });
        }
        for name in &superfluous {
            self.entries.remove(name);
        }
        superfluous
    }

    fn take(&mut self, goes: impl Fn(&str, &Entry) -> bool) -> Vec<String> {
        let gone: Vec<_> =
            self.entries.iter().filter(|(name, entry)| goes(name, entry)).map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.entries.remove(name);
        }
        gone
    }
}

/// Whether a value is what the API server has said of a credential.
fn is_permission(name: &str) -> bool {
    ValueClass::of(name) == ValueClass::Grants || is_node_permission(name)
}

/// What the values of each owner, of each class, and all of them weigh.
struct Totals<'a> {
    limit: u64,
    all: u64,
    classes: BTreeMap<ValueClass, u64>,
    owners: HashMap<&'a str, u64>,
}

impl<'a> Totals<'a> {
    fn of(entries: &'a HashMap<String, Entry>, limit: u64) -> Self {
        let mut totals = Self { limit, all: 0, classes: BTreeMap::new(), owners: HashMap::new() };
        for (name, entry) in entries {
            totals.all += entry.weight;
            *totals.classes.entry(ValueClass::of(name)).or_default() += entry.weight;
            *totals.owners.entry(owner(name)).or_default() += entry.weight;
        }
        totals
    }

    fn subtract(&mut self, name: &'a str, weight: u64) {
        self.all -= weight;
        *self.classes.entry(ValueClass::of(name)).or_default() -= weight;
        *self.owners.entry(owner(name)).or_default() -= weight;
    }

    fn exceeded(&self) -> bool {
        let classes = self.classes.iter().any(|(class, bytes)| *bytes > self.most(*class));
        let owners = self.owners.iter().any(|(owner, bytes)| !owner.is_empty() && *bytes > self.limit / 10);
        self.all > self.limit || classes || owners
    }

    fn most(&self, class: ValueClass) -> u64 {
        match class {
            ValueClass::Clients => self.limit / 2,
            ValueClass::Documents | ValueClass::Grants => self.limit / 4,
            ValueClass::Node | ValueClass::Own => self.limit,
        }
    }

    fn owner_is_over(&self, name: &str) -> bool {
        let owner = owner(name);
        !owner.is_empty() && self.owners.get(owner).is_some_and(|bytes| *bytes > self.limit / 10)
    }

    fn class_is_over(&self, name: &str) -> bool {
        let class = ValueClass::of(name);
        self.classes.get(&class).is_some_and(|bytes| *bytes > self.most(class))
    }

    fn is_over(&self, _: &str) -> bool {
        self.all > self.limit
    }
}

fn weight(name: &str, size: u64) -> u64 {
    (size + name.len() as u64).max(MIN_WEIGHT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::disk::CachedValue;

    const KIB: usize = 1 << 10;

    fn add(index: &mut ValueIndex, name: &str, kib: usize, seconds: u64) {
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let value = CachedValue { bytes: vec![1; kib * KIB], expires };
        let mut values = WaitingValues::default();
        values.insert(name.to_owned(), Some(PendingValue { value, confidential: false }));
        index.add(&values);
    }

    fn superfluous(index: &mut ValueIndex, kib: u64) -> Vec<String> {
        let mut gone = index.take_superfluous(kib << 10);
        gone.sort();
        gone
    }

    #[test]
    fn node_components_keep_their_values_whatever_others_add() {
        let mut index = ValueIndex::default();
        add(&mut index, "node/token", 20, 1);
        add(&mut index, "configuration/a", 20, 1);
        for n in 0..100 {
            add(&mut index, &format!("client/{n}/a"), 9, 1000 + n);
        }
        let gone = superfluous(&mut index, 100);
        assert_eq!(gone.len(), 95, "clients have half: five of nine KiB");
        assert!(gone.iter().all(|name| name.starts_with("client/")));
        assert!(!gone.contains(&"client/99/a".to_owned()), "what expires last stays");
        assert_eq!(superfluous(&mut index, 100), Vec::<String>::new());
    }

    #[test]
    fn one_owner_has_a_tenth() {
        let mut index = ValueIndex::default();
        add(&mut index, "client/b/x", 9, 1);
        for n in 0..30 {
            add(&mut index, &format!("client/a/{n}"), 4, 1000);
        }
        let gone = superfluous(&mut index, 100);
        assert_eq!(gone.len(), 28, "{gone:?}");
        assert!(!gone.contains(&"client/b/x".to_owned()));
    }

    #[test]
    fn during_an_outage_only_what_was_added_since_gives_way() {
        let mut index = ValueIndex::default();
        add(&mut index, "client/a/old", 9, 1);
        index.note_outage(true);
        for n in 0..9 {
            add(&mut index, &format!("client/a/{n}"), 9, 1000);
        }
        add(&mut index, "client/a/old", 9, 2);
        let gone = superfluous(&mut index, 100);
        assert_eq!((gone.len(), gone.contains(&"client/a/old".to_owned())), (9, false));
        index.note_outage(false);
        add(&mut index, "client/a/new", 9, 1000);
        assert_eq!(superfluous(&mut index, 100), ["client/a/old"]);
    }

    #[test]
    fn small_values_are_bounded_by_their_number() {
        let mut index = ValueIndex::default();
        for n in 0..1000 {
            add(&mut index, &format!("client/{n}/a"), 0, n);
        }
        index.take_superfluous(100 << 10);
        assert_eq!(index.entries.len(), 50);
    }
}
