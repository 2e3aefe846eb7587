//! Per-client resume state: hidden keys and chain version.
//!
//! A watch continues from a state that its client received before. Weir must know the chain version of that state, and the
//! objects that its filters hid. So Weir keeps, per client and collection, a few resume points: the resource versions that it
//! sent last, with the chain version and the hidden keys of each.
//!
//! [`ChainStarts`] tells from which versions on any client may continue.
//!
//! Losing a resume point is always safe: it costs the client one more list.

mod chain_starts;
mod client_key;
mod client_table;
mod hidden_keys;
mod list_progress;
mod open_watches;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

pub(super) use self::chain_starts::ChainStarts;
pub(super) use self::client_key::ClientKey;
use self::client_table::{ClientEntry, ClientTable, ResumePoint};
pub(super) use self::hidden_keys::HiddenKeys;
pub(super) use self::list_progress::ListProgress;
pub(super) use self::open_watches::Delivered;
use self::open_watches::OpenWatches;
use crate::proxy::credential::hash_text;
use weir_runtime::ChainVersion;

/// The longest version or continue token that is kept as it is. Of longer ones the hash is kept.
const AT: usize = 64;

/// The resume states of all clients; one per proxy.
#[derive(Debug, Default)]
pub(super) struct ResumeState {
    state: Mutex<ClientTable>,
    open: OpenWatches,
}

/// What is kept of a version or continue token. No version of an API server is longer than [`AT`].
fn kept(at: &str) -> Cow<'_, str> {
    if at.len() <= AT {
        return at.into();
    }
    hash_text(Sha256::new_with_prefix(at)).into()
}

impl ResumeState {
    /// Whether no client has a resume state.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.locked(|clients| clients.entries.is_empty())
    }

    /// A watch begins that continues from `start`.
    pub(super) fn begin_watch(&self, key: ClientKey, start: &str) -> Arc<Delivered> {
        self.open.begin(key, start)
    }

    /// Saves the end of a watch, however it ended: its client may hold what it has delivered, also if it was told to list again and
    /// did not get that.
    pub(super) fn end_watch(
        &self,
        key: ClientKey,
        chain_version: ChainVersion,
        delivered: &Arc<Delivered>,
        hidden: Arc<HiddenKeys>,
    ) {
        self.save(key, chain_version, &delivered.version(), hidden);
        self.open.end(&key, delivered);
    }

    /// Saves the end of a watch that began with `chain_version`: the last resource version that it delivered.
    pub(super) fn save(&self, key: ClientKey, chain_version: ChainVersion, version: &str, hidden: Arc<HiddenKeys>) {
        self.add_end(key, ResumePoint { chain_version, at: kept(version).into(), hidden, listed: false });
    }

    /// Saves the end of a list that began with `chain_version`: its resource version.
    pub(super) fn save_list(
        &self,
        key: ClientKey,
        chain_version: ChainVersion,
        version: &str,
        hidden: Arc<HiddenKeys>,
    ) {
        self.add_end(key, ResumePoint { chain_version, at: kept(version).into(), hidden, listed: true });
    }

    /// Saves a page of a list that began with `chain_version`. `token` requests the next page; `hidden` are the keys of all
    /// pages so far.
    pub(super) fn save_page(&self, key: ClientKey, chain_version: ChainVersion, token: &str, hidden: Arc<HiddenKeys>) {
        let page = ResumePoint { chain_version, at: kept(token).into(), hidden, listed: false };
        self.locked(|clients| clients.add(key, |entry| &mut entry.pages, page));
    }

    /// Returns the chain version and the hidden keys of the pages before the one that `token` requests.
    pub(super) fn pages_before(&self, key: &ClientKey, token: &str) -> Option<(ChainVersion, Arc<HiddenKeys>)> {
        let token = kept(token);
        self.locked(|clients| {
            let page = clients.touch(key)?.pages.iter().rev().find(|page| *page.at == *token)?;
            Some((page.chain_version, page.hidden.clone()))
        })
    }

    /// Returns the keys that are hidden from a client whose watch continues from `version` with `chain_version`. None: this
    /// chain version did not make any state that the client is known to have, and the client must list again.
    pub(super) fn hidden_keys(
        &self,
        key: &ClientKey,
        chain_version: ChainVersion,
        version: &str,
    ) -> Option<Arc<HiddenKeys>> {
        let version = kept(version);
        self.locked(|clients| {
            let points = &clients.touch(key)?.points;
            let mut same = points.iter().rev().filter(|point| point.chain_version == chain_version).peekable();
            same.peek()?;
            // For an unknown resource version the empty set is safe: it costs an event or a list too many, never one too few.
            Some(same.find(|point| *point.at == *version).map(|point| point.hidden.clone()).unwrap_or_default())
        })
    }

    /// Returns the keys that were hidden from a client by a list at exactly `version`. Unlike
    /// [`ResumeState::hidden_keys`], it does not take another version of the same client.
    pub(super) fn hidden_keys_at(
        &self,
        key: &ClientKey,
        chain_version: ChainVersion,
        version: &str,
    ) -> Option<Arc<HiddenKeys>> {
        let version = kept(version);
        self.locked(|clients| {
            let mut points = clients.touch(key)?.points.iter().rev();
            let point = points.find(|point| point.chain_version == chain_version && *point.at == *version)?;
            Some(point.hidden.clone())
        })
    }

    /// Whether a list or watch of this client ended at `version` or later, or an open one has got there, as far as that can be
    /// compared. The client may then hold what filters made.
    pub(super) fn reached(&self, key: &ClientKey, version: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let version = number(version);
        let reaches = |at: &str| number(at).zip(version).is_none_or(|(at, version)| at >= version);
        let ended = self.locked(|clients| {
            let points = clients.entries.get(key).into_iter().flat_map(|entry| &entry.points);
            points.filter(|point| point.chain_version != ChainVersion::UNFILTERED).any(|point| reaches(&point.at))
        });
        ended || self.open.versions(key).iter().any(|at| reaches(at))
    }

    /// Whether a list or watch of this client ended at exactly this version.
    pub(super) fn ended_at(&self, key: &ClientKey, version: &str) -> bool {
        let version = kept(version);
        self.locked(|clients| {
            clients.entries.get(key).is_some_and(|entry| entry.points.iter().any(|point| *point.at == *version))
        })
    }

    /// Saves that the client has listed without filters. The version is in the response, which is forwarded unread.
    pub(super) fn save_unfiltered(&self, key: ClientKey) {
        self.save_list(key, ChainVersion::UNFILTERED, "", Arc::default());
    }

    /// Whether a list of `chain_version` made the state that the client holds at `version`. A watch proves nothing: changes of
    /// outcomes without a version of their own may not have reached its client.
    pub(super) fn was_made_by(&self, key: &ClientKey, chain_version: ChainVersion, version: &str) -> bool {
        let version = kept(version);
        self.locked(|clients| {
            let Some(ClientEntry { points, .. }) = clients.touch(key) else { return false };
            let exact = points.iter().rev().find(|point| *point.at == *version);
            let last = points.back().filter(|point| point.at.is_empty());
            exact.or(last).is_some_and(|point| point.listed && point.chain_version == chain_version)
        })
    }

    /// Whether the client has a resume state, that is, whether this process made the state that it holds.
    pub(super) fn contains(&self, key: &ClientKey) -> bool {
        self.locked(|clients| clients.entries.contains_key(key))
    }

    /// Forgets a client.
    pub(super) fn remove(&self, key: &ClientKey) {
        self.locked(|clients| clients.remove(key));
    }

    fn add_end(&self, key: ClientKey, point: ResumePoint) {
        self.locked(|clients| clients.add(key, |entry| &mut entry.points, point));
    }

    fn locked<T>(&self, act: impl FnOnce(&mut ClientTable) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ClientKey {
        ClientKey::test(n)
    }

    fn version(n: u64) -> ChainVersion {
        ChainVersion::new(n, 0)
    }

    fn hidden(names: &[&str]) -> Arc<HiddenKeys> {
        let mut hidden = HiddenKeys::default();
        names.iter().for_each(|name| hidden.insert(HiddenKeys::key(None, name)));
        Arc::new(hidden)
    }

    #[test]
    fn a_watch_without_a_resume_point_of_its_chain_version_must_list_again() {
        let state = ResumeState::default();
        assert_eq!(state.hidden_keys(&key(1), version(1), "5"), None);
        state.save(key(1), version(1), "5", hidden(&["a"]));
        assert_eq!(state.hidden_keys(&key(1), version(2), "5"), None);
        assert_eq!(state.hidden_keys(&key(2), version(1), "5"), None);
        assert_eq!(state.hidden_keys(&key(1), version(1), "5"), Some(hidden(&["a"])));
    }

    #[test]
    fn a_list_tells_what_a_client_holds_and_a_watch_does_not() {
        let state = ResumeState::default();
        state.save_list(key(1), version(1), "5", Arc::default());
        assert!(state.was_made_by(&key(1), version(1), "5"));
        assert!(!state.was_made_by(&key(1), version(2), "5") && !state.was_made_by(&key(1), version(1), "6"));
        state.save(key(1), version(1), "5", Arc::default());
        assert!(state.was_made_by(&key(1), version(1), "5"), "nothing has changed since the list");
        state.save(key(1), version(2), "5", Arc::default());
        assert!(!state.was_made_by(&key(1), version(2), "5"), "what the second version changed may be on its way");
        state.save_unfiltered(key(2));
        assert!(state.was_made_by(&key(2), ChainVersion::UNFILTERED, "9"));
    }

    #[test]
    fn an_unknown_resource_version_gets_the_empty_set() {
        let state = ResumeState::default();
        state.save(key(1), version(1), "5", hidden(&["a"]));
        state.save(key(1), version(1), "7", hidden(&["b"]));
        assert_eq!(state.hidden_keys(&key(1), version(1), "6"), Some(hidden(&[])));
        assert_eq!(state.hidden_keys(&key(1), version(1), "5"), Some(hidden(&["a"])));
    }

    #[test]
    fn the_end_of_a_list_is_told_from_later_versions() {
        let state = ResumeState::default();
        assert!(!state.reached(&key(1), "5") && !state.ended_at(&key(1), "5"));
        state.save(key(1), version(1), "5", hidden(&["a"]));
        assert!(state.reached(&key(1), "4") && state.reached(&key(1), "5"));
        assert!(!state.reached(&key(1), "6") && !state.reached(&key(2), "5"));
        assert!(state.reached(&key(1), "x"), "such versions cannot be compared");
        assert!(state.ended_at(&key(1), "5") && !state.ended_at(&key(1), "4"));
        assert_eq!(state.hidden_keys_at(&key(1), version(1), "5"), Some(hidden(&["a"])));
        assert_eq!(state.hidden_keys_at(&key(1), version(1), "6"), None);
        assert_eq!(state.hidden_keys_at(&key(1), version(2), "5"), None);
    }

    #[test]
    fn pages_of_a_list_belong_together() {
        let state = ResumeState::default();
        state.save_page(key(1), version(1), "next", hidden(&["a"]));
        assert_eq!(state.pages_before(&key(1), "next"), Some((version(1), hidden(&["a"]))));
        assert_eq!(state.pages_before(&key(1), "other"), None);
        assert_eq!(state.hidden_keys(&key(1), version(1), "next"), None, "a page is not the end of a list");
    }

    #[test]
    fn a_client_is_known_until_it_is_forgotten() {
        let state = ResumeState::default();
        state.save(key(1), version(1), "5", hidden(&["a"]));
        assert!(state.contains(&key(1)) && !state.contains(&key(2)));
        state.remove(&key(1));
        assert!(!state.contains(&key(1)));
        assert!(state.is_empty());
    }

    #[test]
    fn the_resume_points_of_a_client_are_bounded() {
        let state = ResumeState::default();
        for n in 0..10 {
            state.save(key(1), version(1), &n.to_string(), hidden(&["a"]));
        }
        assert_eq!(state.hidden_keys(&key(1), version(1), "5"), Some(hidden(&[])));
        assert_eq!(state.hidden_keys(&key(1), version(1), "6"), Some(hidden(&["a"])));
    }

    #[test]
    fn a_long_version_is_kept_as_its_hash() {
        let state = ResumeState::default();
        let long = |last: char| format!("{}{last}", "1".repeat(100_000));
        state.save_page(key(1), version(1), &long('a'), hidden(&["a"]));
        state.save_list(key(1), version(1), &long('b'), hidden(&["b"]));
        assert_eq!(state.pages_before(&key(1), &long('a')), Some((version(1), hidden(&["a"]))));
        assert_eq!(state.pages_before(&key(1), &long('b')), None);
        assert_eq!(state.hidden_keys_at(&key(1), version(1), &long('b')), Some(hidden(&["b"])));
        assert!(state.ended_at(&key(1), &long('b')) && !state.ended_at(&key(1), &long('a')));
        assert!(state.was_made_by(&key(1), version(1), &long('b')));
        let longest = state.locked(|state| {
            let entries = state.entries.values().flat_map(|entry| entry.points.iter().chain(&entry.pages));
            entries.map(|point| point.at.len()).max()
        });
        assert_eq!(longest, Some(AT));
    }
}
