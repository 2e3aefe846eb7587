//! The responses in memory. Each is charged to its owner, and what an owner has not read for the longest time gives way to
//! what it reads now. Nobody's responses give way to another owner's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Recent;
use crate::ledger::{Charge, Ledger, Owner, Use};

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
        let charge = loop {
            match self.ledger.charge(owner, Use::Answers, bytes) {
                Ok(charge) => break charge,
                Err(_) => match self.oldest(owner) {
                    Some(oldest) => self.remove(&oldest),
                    None => return false,
                },
            }
        };
        let name: Arc<str> = name.into();
        self.next += 1;
        self.by_owner.entry(owner.clone()).or_default().insert(self.next, name.clone());
        self.entries.insert(name, Entry { recent, read: self.next, charge });
        true
    }

    fn oldest(&self, owner: &Owner) -> Option<Arc<str>> {
        self.by_owner.get(owner)?.first_key_value().map(|(_, name)| name.clone())
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
    use std::time::SystemTime;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use tokio::time::Instant;

    use super::super::Answer;
    use super::*;

    fn recent(bytes: usize) -> Recent {
        let (status, headers, body) = (StatusCode::OK, HeaderMap::new(), Bytes::from(vec![0; bytes]));
        let answer = Arc::new(Answer { status, headers, body, expires: SystemTime::UNIX_EPOCH });
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
        assert!(!table.insert(&one, "large", recent(9 << 20)));
        drop(table);
        assert_eq!((ledger.used(&one), ledger.used(&other)), (0, 0));
    }
}
