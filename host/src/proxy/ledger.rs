//! What each client was shown last: which objects it does not know of because a filter hid them, and under which
//! filters that was.
//!
//! A watch goes on from a state that its client got before. Whether that state was filtered as the watch would be, and
//! which objects it lacks, can be known only by remembering the list or watch it came from. So per client and
//! collection there are a few records, one for each version handed out last. To forget is always safe: it makes one
//! more list. Bounds: [`CLIENTS`] entries of [`RECORDS`] records and [`RECORDS`] unfinished paged lists, and
//! [`HIDDEN`] hidden keys over all; the entry that was not used for longest goes first.

mod listing;
mod subject;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use foldhash::fast::RandomState;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use weir_document::Document;

pub(super) use self::listing::Listing;
use weir_kube::{Query, ResourceRequest};
use weir_runtime::Stamp;
use weir_upstream::Identity;

const CLIENTS: usize = 1024;
const RECORDS: usize = 4;
const HIDDEN: usize = 1 << 20;
/// Hidden keys of one client and collection; what does not fit is forgotten, which costs lists, not correctness.
const HIDDEN_EACH: usize = 1 << 18;

/// Objects hidden from one client in one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Hashes instead of names: 8 bytes each. Keyed with a secret of this process, so that nobody can make two names meet.
    keys: HashSet<u64, RandomState>,
}

/// Which client, and what it reads: credential, User-Agent, collection, selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 16]);

/// All records; one per proxy.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    clients: HashMap<Key, Entry, RandomState>,
    hidden: usize,
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    used: u64,
    /// Newest last.
    records: VecDeque<Record>,
    /// Paged lists under way: the token of the next page.
    pages: VecDeque<Record>,
}

#[derive(Debug)]
struct Record {
    stamp: Stamp,
    /// The resource version handed out last; of a page, the continue token.
    at: Box<str>,
    hidden: Arc<Hidden>,
}

impl Hidden {
    /// The key of an object by its names.
    #[must_use]
    pub(super) fn key(namespace: Option<&str>, name: &str) -> u64 {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        SECRET.hash_one((namespace.unwrap_or_default(), name))
    }

    /// The key of an object.
    ///
    /// # Errors
    /// Its name cannot be read.
    pub(super) fn key_of(document: &Document) -> Result<u64, weir_document::Error> {
        Ok(Self::key(document.namespace()?.as_deref(), &document.name()?))
    }

    /// Notes that an object is hidden.
    pub(super) fn insert(&mut self, key: u64) {
        if self.keys.len() < HIDDEN_EACH {
            self.keys.insert(key);
        }
    }

    /// Notes that an object is not, or no longer, hidden; tells whether it was.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        self.keys.remove(&key)
    }

    /// Whether nothing is known to be hidden.
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

impl Key {
    /// Of a request. `headers` are the client's, before identity is applied.
    #[must_use]
    pub(super) fn of(headers: &HeaderMap, identity: Identity, resource: &ResourceRequest, query: &Query) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(&[identity as u8]);
        // With the node credential these are stripped, so that they say nothing about the client.
        if identity != Identity::Node {
            for (name, value) in headers {
                if *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-") {
                    part(name.as_str().as_bytes());
                    let subject = (*name == header::AUTHORIZATION).then(|| subject::subject(value)).flatten();
                    part(subject.as_deref().map_or(value.as_bytes(), str::as_bytes));
                }
            }
        }
        part(headers.get(header::USER_AGENT).map(|value| value.as_bytes()).unwrap_or_default());
        part(resource.collection.as_bytes());
        part(resource.name.as_deref().unwrap_or_default().as_bytes());
        part(query.first("labelSelector").unwrap_or_default().as_bytes());
        part(query.first("fieldSelector").unwrap_or_default().as_bytes());
        let mut key = [0; 16];
        key.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Self(key)
    }
}

#[cfg(test)]
impl Key {
    /// Any key.
    pub(super) fn test(n: u8) -> Self {
        Self([n; 16])
    }
}

impl Ledger {
    /// Whether nothing is recorded of anyone.
    pub(super) fn is_empty(&self) -> bool {
        self.locked(|state| state.clients.is_empty())
    }

    /// Notes the end of a list (its version), or of a watch (the last version delivered), that began under `stamp`.
    pub(super) fn ended(&self, key: Key, stamp: Stamp, version: &str, hidden: Arc<Hidden>) {
        self.locked(|state| state.add(key, |entry| &mut entry.records, Record { stamp, at: version.into(), hidden }));
    }

    /// Notes a page of a list that began under `stamp`: `token` asks for the next one, `hidden` is that of all pages so
    /// far.
    pub(super) fn page(&self, key: Key, stamp: Stamp, token: &str, hidden: Arc<Hidden>) {
        self.locked(|state| state.add(key, |entry| &mut entry.pages, Record { stamp, at: token.into(), hidden }));
    }

    /// What is known of the pages before the one that `token` asks for.
    pub(super) fn pages_before(&self, key: &Key, token: &str) -> Option<(Stamp, Arc<Hidden>)> {
        self.locked(|state| {
            let page = state.touch(key)?.pages.iter().rev().find(|page| *page.at == *token)?;
            Some((page.stamp, page.hidden.clone()))
        })
    }

    /// What a watch that goes on from `version` under `stamp` may take as hidden from its client; none: nothing says
    /// that the client's state was made under that stamp, so it must list again.
    pub(super) fn resume(&self, key: &Key, stamp: Stamp, version: &str) -> Option<Arc<Hidden>> {
        self.locked(|state| {
            let records = &state.touch(key)?.records;
            let mut same = records.iter().rev().filter(|record| record.stamp == stamp).peekable();
            same.peek()?;
            // With another version the empty set stands in: it costs an event or a list too many, never one too few.
            Some(same.find(|record| *record.at == *version).map(|record| record.hidden.clone()).unwrap_or_default())
        })
    }

    /// Whether the client's state was made by filters, as far as is known.
    pub(super) fn knows(&self, key: &Key) -> bool {
        self.locked(|state| state.clients.contains_key(key))
    }

    /// Forgets a client.
    pub(super) fn forget(&self, key: &Key) {
        self.locked(|state| state.remove(key));
    }

    fn locked<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn touch(&mut self, key: &Key) -> Option<&mut Entry> {
        self.clock += 1;
        let entry = self.clients.get_mut(key)?;
        entry.used = self.clock;
        Some(entry)
    }

    fn add(&mut self, key: Key, of: impl FnOnce(&mut Entry) -> &mut VecDeque<Record>, record: Record) {
        self.clock += 1;
        let entry = self.clients.entry(key).or_default();
        entry.used = self.clock;
        let records = of(entry);
        let before: usize = records.iter().map(|record| record.hidden.keys.len()).sum();
        records.retain(|old| old.stamp != record.stamp || old.at != record.at);
        if records.len() >= RECORDS {
            records.pop_front();
        }
        records.push_back(record);
        let after: usize = records.iter().map(|record| record.hidden.keys.len()).sum();
        self.hidden = self.hidden + after - before;
        while self.clients.len() > CLIENTS || (self.hidden > HIDDEN && self.clients.len() > 1) {
            let Some(oldest) = self.clients.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.clients.remove(key) else { return };
        let freed: usize = entry.records.iter().chain(&entry.pages).map(|record| record.hidden.keys.len()).sum();
        self.hidden -= freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::test(n)
    }

    fn hidden(names: &[&str]) -> Arc<Hidden> {
        let mut hidden = Hidden::default();
        names.iter().for_each(|name| hidden.insert(Hidden::key(None, name)));
        Arc::new(hidden)
    }

    #[test]
    fn a_watch_without_a_record_under_its_stamp_must_list_again() {
        let ledger = Ledger::default();
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "5"), None);
        ledger.ended(key(1), Stamp::from_number(1), "5", hidden(&["a"]));
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(2), "5"), None);
        assert_eq!(ledger.resume(&key(2), Stamp::from_number(1), "5"), None);
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "5"), Some(hidden(&["a"])));
    }

    #[test]
    fn another_version_takes_the_empty_set() {
        let ledger = Ledger::default();
        ledger.ended(key(1), Stamp::from_number(1), "5", hidden(&["a"]));
        ledger.ended(key(1), Stamp::from_number(1), "7", hidden(&["b"]));
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "6"), Some(hidden(&[])));
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "5"), Some(hidden(&["a"])));
    }

    #[test]
    fn pages_of_a_list_belong_together() {
        let ledger = Ledger::default();
        ledger.page(key(1), Stamp::from_number(1), "next", hidden(&["a"]));
        assert_eq!(ledger.pages_before(&key(1), "next"), Some((Stamp::from_number(1), hidden(&["a"]))));
        assert_eq!(ledger.pages_before(&key(1), "other"), None);
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "next"), None, "a page is not the end of a list");
    }

    #[test]
    fn a_client_is_known_until_it_is_forgotten() {
        let ledger = Ledger::default();
        ledger.ended(key(1), Stamp::from_number(1), "5", hidden(&["a"]));
        assert!(ledger.knows(&key(1)) && !ledger.knows(&key(2)));
        ledger.forget(&key(1));
        assert!(!ledger.knows(&key(1)));
        assert!(ledger.is_empty());
    }

    #[test]
    fn records_are_bounded_and_the_longest_unused_goes_first() {
        let ledger = Ledger::default();
        for version in 0..10 {
            ledger.ended(key(1), Stamp::from_number(1), &version.to_string(), hidden(&["a"]));
        }
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "5"), Some(hidden(&[])));
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "6"), Some(hidden(&["a"])));
        for n in 0..CLIENTS as u64 {
            let mut other = [9; 16];
            other[..8].copy_from_slice(&n.to_le_bytes());
            ledger.ended(Key(other), Stamp::from_number(1), "1", hidden(&[]));
        }
        assert_eq!(ledger.resume(&key(1), Stamp::from_number(1), "9"), None);
        assert_eq!(ledger.locked(|state| (state.clients.len(), state.hidden)), (CLIENTS, 0));
    }

    #[test]
    fn a_client_is_its_credential_its_agent_and_its_question() {
        let resource = |path: &str| {
            let parsed = weir_kube::RequestInfo::parse(&http::Method::GET, &path.parse().unwrap()).unwrap();
            (parsed.resource().unwrap().clone(), parsed.query)
        };
        let headers = |token: &str| HeaderMap::from_iter([(header::AUTHORIZATION, token.parse().unwrap())]);
        let of = |token, identity, path| {
            let (resource, query) = resource(path);
            Key::of(&headers(token), identity, &resource, &query)
        };
        let list = of("a", Identity::Own, "/api/v1/services?labelSelector=x&limit=5");
        assert_eq!(list, of("a", Identity::Own, "/api/v1/services?watch=1&resourceVersion=7&labelSelector=x"));
        assert_eq!(list, of("a", Identity::Own, "/api/v1/watch/services?labelSelector=x"));
        assert_ne!(list, of("b", Identity::Own, "/api/v1/services?labelSelector=x"));
        assert_ne!(list, of("a", Identity::Own, "/api/v1/services"));
        assert_ne!(list, of("a", Identity::Own, "/api/v1/namespaces/a/services?labelSelector=x"));
        assert_eq!(of("a", Identity::Node, "/api/v1/pods"), of("b", Identity::Node, "/api/v1/pods"));
    }
}
