//! The resume points of all clients, with bounds. Of the credential with the most clients, or with the most hidden keys, the
//! least recently used client is removed first: no credential evicts the clients of others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{ClientKey, HiddenKeys};
use weir_runtime::ChainVersion;

/// The most clients, each with what it reads.
pub(super) const CLIENTS: usize = 2048;
/// The most resume points of a client, and the most unfinished paged lists.
pub(super) const POINTS: usize = 4;
/// The most hidden keys of all clients together.
pub(super) const HIDDEN: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct ClientTable {
    pub(super) entries: HashMap<ClientKey, ClientEntry, RandomState>,
    owners: HashMap<[u8; 8], Share, RandomState>,
    /// The number of hidden keys of all entries.
    hidden: usize,
    /// Grows with each use of an entry.
    clock: u64,
}

/// What one credential has.
#[derive(Debug, Default)]
struct Share {
    clients: usize,
    hidden: usize,
}

#[derive(Debug, Default)]
pub(super) struct ClientEntry {
    /// The clock at the last use.
    used: u64,
    /// The ends of lists and watches, newest last.
    pub(super) points: VecDeque<ResumePoint>,
    /// Unfinished paged lists, newest last.
    pub(super) pages: VecDeque<ResumePoint>,
}

#[derive(Debug)]
pub(super) struct ResumePoint {
    pub(super) chain_version: ChainVersion,
    /// The resource version handed out last, or the continue token of a page.
    pub(super) at: Box<str>,
    pub(super) hidden: Arc<HiddenKeys>,
    /// Whether a list ended there. What the client of a watch has received is not known.
    pub(super) listed: bool,
}

impl ClientTable {
    /// Returns the entry of a client, which counts as used.
    pub(super) fn touch(&mut self, key: &ClientKey) -> Option<&mut ClientEntry> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry)
    }

    /// Adds a resume point, and removes what is too many.
    pub(super) fn add(
        &mut self,
        key: ClientKey,
        of: impl FnOnce(&mut ClientEntry) -> &mut VecDeque<ResumePoint>,
        point: ResumePoint,
    ) {
        self.clock += 1;
        let share = self.owners.entry(key.owner()).or_default();
        let entry = self.entries.entry(key).or_insert_with(|| {
            share.clients += 1;
            ClientEntry::default()
        });
        entry.used = self.clock;
        let before = entry.hidden();
        let points = of(entry);
        let same = |old: &ResumePoint| old.chain_version == point.chain_version && old.at == point.at;
        // The list of before is still what the client holds at that version.
        let listed = point.listed || points.iter().any(|old| same(old) && old.listed);
        points.retain(|old| !same(old));
        if points.len() >= POINTS {
            points.pop_front();
        }
        points.push_back(ResumePoint { listed, ..point });
        let after = entry.hidden();
        share.hidden = share.hidden + after - before;
        self.hidden = self.hidden + after - before;
        while let Some(oldest) = self.one_too_many() {
            self.remove(&oldest);
        }
    }

    /// Removes a client.
    pub(super) fn remove(&mut self, key: &ClientKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        let hidden = entry.hidden();
        self.hidden -= hidden;
        if let Some(share) = self.owners.get_mut(&key.owner()) {
            share.clients -= 1;
            share.hidden -= hidden;
            if share.clients == 0 {
                self.owners.remove(&key.owner());
            }
        }
    }

    /// Returns the client to remove, if the table is over a bound.
    fn one_too_many(&self) -> Option<ClientKey> {
        let share: fn(&Share) -> usize = match () {
            () if self.entries.len() > CLIENTS => |share| share.clients,
            () if self.hidden > HIDDEN && self.entries.len() > 1 => |share| share.hidden,
            () => return None,
        };
        let (owner, _) = self.owners.iter().max_by_key(|(_, of)| share(of))?;
        let entries = self.entries.iter().filter(|(key, _)| key.owner() == *owner);
        entries.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key)
    }
}

impl ClientEntry {
    fn hidden(&self) -> usize {
        self.points.iter().chain(&self.pages).map(|point| point.hidden.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(table: &mut ClientTable, owner: u8, read: u64, hidden: &Arc<HiddenKeys>) {
        let hidden = hidden.clone();
        let point = ResumePoint { chain_version: ChainVersion::UNFILTERED, at: "1".into(), hidden, listed: true };
        table.add(ClientKey::test_of(owner, read), |entry| &mut entry.points, point);
    }

    fn has(table: &ClientTable, owner: u8, read: u64) -> bool {
        table.entries.contains_key(&ClientKey::test_of(owner, read))
    }

    fn checked(table: &ClientTable) {
        let (entries, owners) = (&table.entries, table.owners.values());
        let all = owners.fold((0, 0), |(clients, hidden), share| (clients + share.clients, hidden + share.hidden));
        assert_eq!(all, (entries.len(), table.hidden));
        assert_eq!(entries.values().map(ClientEntry::hidden).sum::<usize>(), table.hidden);
    }

    #[test]
    fn of_the_credential_with_the_most_clients_the_least_recently_used_leaves_first() {
        let (mut table, none) = (ClientTable::default(), Arc::default());
        save(&mut table, 1, 0, &none);
        for n in 0..2 * CLIENTS as u64 {
            save(&mut table, 9, n, &none);
        }
        assert!(has(&table, 1, 0) && !has(&table, 9, 0), "another credential stays");
        for n in 1..=CLIENTS as u64 {
            save(&mut table, 1, n, &none);
        }
        assert!(!has(&table, 1, 0), "its own");
        assert_eq!(table.entries.len(), CLIENTS);
        checked(&table);
    }

    #[test]
    fn of_the_credential_with_the_most_hidden_keys_the_least_recently_used_leaves_first() {
        let mut table = ClientTable::default();
        let (none, mut many) = (Arc::default(), HiddenKeys::default());
        (0..HIDDEN / 4).for_each(|n| many.insert(HiddenKeys::key(None, &n.to_string())));
        let many = Arc::new(many);
        for n in 0..100 {
            save(&mut table, 1, n, &none);
        }
        for n in 0..10 {
            save(&mut table, 9, n, &many);
            checked(&table);
        }
        assert!((0..100).all(|n| has(&table, 1, n)), "the credential with the most clients hides nothing");
        assert_eq!((0..10).filter(|n| has(&table, 9, *n)).collect::<Vec<_>>(), [6, 7, 8, 9]);
    }
}
