//! The responses in memory. Each is charged to its owner, and what an owner has not read for the longest time gives way to
//! what it reads now. Nobody's responses give way to another owner's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use weir_upstream::clock;

use super::Recent;
use weir_process::ledger::{Charge, Ledger, OverShare, Owner, Use};

/// What an entry takes beside its name and its body.
const ENTRY: usize = 1 << 10;

/// Responses by name.
#[derive(Debug)]
pub(super) struct AnswerTable {
    ledger: Ledger,
    entries: HashMap<Arc<str>, Entry>,
    /// The names of each owner, in the order in which they were read.
    by_owner: HashMap<Owner, BTreeMap<u64, Arc<str>>>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    recent: Recent,
    read: u64,
    charge: Charge,
}

impl Entry {
    fn ends_by(&self, time: SystemTime) -> bool {
        self.recent.answer.expires <= time
    }
}

impl AnswerTable {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { ledger, entries: HashMap::new(), by_owner: HashMap::new(), next: 0 }
    }

    /// Returns a response, and notes that it was read.
    pub(super) fn get(&mut self, name: &str) -> Option<Recent> {
        let entry = self.entries.get_mut(name)?;
        let names = self.by_owner.entry(entry.charge.owner().clone()).or_default();
        self.next += 1;
        if let Some(name) = names.remove(&entry.read) {
            names.insert(self.next, name);
        }
        entry.read = self.next;
        Some(entry.recent.clone())
    }

    /// Adds a response, in place of an earlier one of its name. Returns whether its owner's share has room for it.
    pub(super) fn insert(&mut self, owner: &Owner, name: &str, recent: Recent) -> bool {
        self.remove(name);
        let bytes = (2 * name.len() + recent.answer.body.len() + ENTRY) as u64;
        let ledger = self.ledger.clone();
        let charge = self.with_room(owner, name, bytes, || ledger.charge(owner, Use::Answers, bytes));
        let Some(charge) = charge else { return false };
        let name: Arc<str> = name.into();
        self.next += 1;
        self.by_owner.entry(owner.clone()).or_default().insert(self.next, name.clone());
        self.entries.insert(name, Entry { recent, read: self.next, charge });
        true
    }

    /// Charges an owner for something of so many bytes in all. Other entries of the owner are evicted until there is room.
    /// `None`: it never fits.
    pub(super) fn with_room<T>(
        &mut self,
        owner: &Owner,
        name: &str,
        bytes: u64,
        charge: impl Fn() -> Result<T, OverShare>,
    ) -> Option<T> {
        if bytes > self.ledger.share_of_answers(owner) {
            return None;
        }
        loop {
            match charge() {
                Ok(charged) => return Some(charged),
                Err(_) if self.give_way(owner, name) => {}
                Err(_) => return None,
            }
        }
    }

    /// Removes what has expired of an owner, or else what it has not read for the longest time; what is kept under this name
    /// goes last, since it is about to be replaced. Returns false if nothing is left.
    fn give_way(&mut self, owner: &Owner, name: &str) -> bool {
        let Some(names) = self.by_owner.get(owner) else { return false };
        let now = clock::now();
        let is_expired = |name: &&Arc<str>| self.entries.get(*name).is_some_and(|entry| entry.ends_by(now));
        let mut gone: Vec<_> = names.values().filter(is_expired).cloned().collect();
        if gone.is_empty() {
            let oldest = names.values().find(|known| ***known != *name).or_else(|| names.values().next());
            gone.extend(oldest.cloned());
        }
        gone.iter().for_each(|name| self.remove(name));
        !gone.is_empty()
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(Entry { read, charge, .. }) = self.entries.remove(name) else { return };
        if let Some(names) = self.by_owner.get_mut(charge.owner()) {
            names.remove(&read);
            if names.is_empty() {
                self.by_owner.remove(charge.owner());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use tokio::time::Instant;

    use super::super::Answer;
    use super::*;

    fn recent(bytes: usize) -> Recent {
        let (status, headers, body) = (StatusCode::OK, HeaderMap::new(), Bytes::from(vec![0; bytes]));
        let answer = Arc::new(Answer { status, headers, body, expires: clock::now() + Duration::from_secs(60) });
        Recent { answer, written: Instant::now(), is_written: true }
    }

    #[test]
    fn what_an_owner_has_not_read_gives_way_to_what_it_reads() {
        let ledger = Ledger::new(320 << 20);
        let mut table = AnswerTable::new(ledger.clone());
        let (one, other) = (Owner::Client("a".into()), Owner::Client("b".into()));
        assert!(table.insert(&other, "other", recent(1 << 20)));
        for n in 0..100 {
            assert!(table.insert(&one, &n.to_string(), recent(1 << 20)));
            assert!(table.get("0").is_some(), "it is read again and again");
        }
        assert!(table.get("other").is_some() && table.get("1").is_none() && table.get("99").is_some());
        assert_eq!(table.entries.len(), 8, "a quarter of the share of 32 MiB, and the other owner's");
        assert!(ledger.used(&one) <= 8 << 20);
        assert!(
            !table.insert(&one, "large", recent(9 << 20)) && table.get("99").is_some(),
            "nothing makes room for it"
        );
        drop(table);
        assert_eq!((ledger.used(&one), ledger.used(&other)), (0, 0));
    }

    #[test]
    fn what_has_expired_gives_way_first_though_it_was_read_last() {
        let ledger = Ledger::new(320 << 20);
        let mut table = AnswerTable::new(ledger);
        let owner = Owner::Client("a".into());
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        for name in names {
            let mut recent = recent(1 << 20);
            if matches!(name, "f" | "g") {
                Arc::make_mut(&mut recent.answer).expires = SystemTime::UNIX_EPOCH;
            }
            assert!(table.insert(&owner, name, recent));
        }
        assert!(table.insert(&owner, "h", recent(1 << 20)));
        assert!(["a", "b", "c", "d", "e", "h"].iter().all(|name| table.get(name).is_some()));
        assert!(table.get("f").is_none() && table.get("g").is_none());
    }
}
