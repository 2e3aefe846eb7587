//! What the API server has said of credentials and permissions, kept for the time in which no API server can be reached.
//!
//! Three kinds of rows: `accepted/…`, the account of a credential; `issued/…`, a token that a TokenRequest through Weir has
//! issued; `grant/…`, a permission, or that it was denied. Rows exist only for credentials that the API server has accepted, or
//! issued: who sends garbage leaves nothing. They hold for the offline grace, and not beyond the credential. One owner has at
//! most [`MAX_ROWS`]: who mints tokens does not push out what others have. Those of node components are apart from
//! all others on disk, where they go last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use moka::future::Cache;
use weir_store::disk::{CachedValue, DiskCache};
use weir_upstream::clock;

use crate::ledger::Owner;

/// The most rows in memory. Those on disk are read again.
const CAPACITY: u64 = 16 << 10;
/// The most rows of one owner.
const MAX_ROWS: usize = 1024;
/// The most credentials of one owner beyond that.
const MAX_CREDENTIALS: usize = 128;
/// The most owners whose rows are counted. Further ones add none.
const MAX_OWNERS: usize = 4096;
/// A permission.
const ALLOWED: &[u8] = b"+";
/// What takes it away again from this credential.
const DENIED: &[u8] = b"-";

/// The rows.
#[derive(Debug)]
pub(in crate::proxy) struct Grants {
    recent: Cache<String, Row>,
    /// When the rows that each owner has added expire.
    added: Mutex<HashMap<Owner, Vec<SystemTime>>>,
    /// Where they outlive the process.
    disk: Option<Arc<DiskCache>>,
    /// The longest time that they hold.
    grace: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    bytes: Bytes,
    expires: SystemTime,
}

impl Grants {
    /// Without a disk, rows last as long as the process.
    pub(in crate::proxy) fn new(disk: Option<Arc<DiskCache>>, grace: Duration) -> Self {
        let recent = Cache::builder().max_capacity(CAPACITY).time_to_live(grace.max(Duration::from_secs(1)));
        Self { recent: recent.build(), added: Mutex::default(), disk, grace }
    }

    /// Returns a row that holds now.
    pub(super) async fn get(&self, name: &str) -> Option<Bytes> {
        let row = self.row(name).await?;
        let now = clock::now();
        // One that ends much later was written by a clock that was years ahead.
        (row.expires > now && row.expires <= now + 2 * self.grace).then_some(row.bytes)
    }

    /// Writes a row that holds until the grace or the credential ends. Flash wears: what is there and lasts is not written again.
    pub(super) async fn put(&self, owner: &Owner, name: &str, bytes: Bytes, credential_expires: Option<SystemTime>) {
        let now = clock::now();
        let expires = credential_expires.map_or(now + self.grace, |expires| expires.min(now + self.grace));
        if expires <= now {
            return;
        }
        let left = |row: &Row| row.expires.duration_since(now).unwrap_or_default();
        let lasts = |row: &Row| {
            row.bytes == bytes
                && row.expires <= expires
                && 2 * left(row) > expires.duration_since(now).unwrap_or_default()
        };
        let known = self.row(name).await;
        if known.as_ref().is_some_and(lasts) {
            return;
        }
        // A denial only takes away.
        if known.is_none() && bytes != DENIED && !self.may_add(owner, name, expires) {
            return;
        }
        self.recent.insert(name.to_owned(), Row { bytes: bytes.clone(), expires }).await;
        if let Some(disk) = &self.disk {
            disk.put(&on_disk(owner, name), CachedValue { bytes: bytes.to_vec(), expires }, false).await;
        }
    }

    /// Removes a row.
    pub(super) async fn remove(&self, name: &str) {
        self.recent.invalidate(name).await;
        if let Some(disk) = &self.disk {
            disk.remove(name).await;
            disk.remove(&on_disk(&Owner::Node, name)).await;
        }
    }

    /// Counts a row that an owner adds. False: it has its share. Whose credential it is counts for more than what it may read.
    fn may_add(&self, owner: &Owner, name: &str, expires: SystemTime) -> bool {
        if owner.is_reserved() {
            return true;
        }
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if added.len() >= MAX_OWNERS && !added.contains_key(owner) {
            added.retain(|_, rows| rows.iter().any(|end| *end > clock::now()));
            if added.len() >= MAX_OWNERS {
                return false;
            }
        }
        let rows = added.entry(owner.clone()).or_default();
        let most = if name.starts_with("grant/") { MAX_ROWS } else { MAX_ROWS + MAX_CREDENTIALS };
        if rows.len() >= most {
            rows.retain(|end| *end > clock::now());
        }
        let has_room = rows.len() < most;
        if has_room {
            rows.push(expires);
        }
        has_room
    }

    /// Grants what a question asks for.
    pub(super) async fn allow(&self, owner: &Owner, question: &str, credential_expires: Option<SystemTime>) {
        self.put(owner, &grant(question), Bytes::from_static(ALLOWED), credential_expires).await;
    }

    /// Notes that a question was denied: no other permission of the same client answers it.
    pub(super) async fn deny(&self, owner: &Owner, question: &str, credential_expires: Option<SystemTime>) {
        self.put(owner, &grant(question), Bytes::from_static(DENIED), credential_expires).await;
    }

    /// Notes a denial of what nothing grants yet, within the owner's share: a wider permission that comes later does not answer
    /// it either.
    pub(super) async fn deny_ahead(&self, owner: &Owner, question: &str, credential_expires: Option<SystemTime>) {
        let name = grant(question);
        if self.row(&name).await.is_some() || self.may_add(owner, &name, clock::now() + self.grace) {
            self.deny(owner, question, credential_expires).await;
        }
    }

    /// What is known of a question: granted, denied, or nothing.
    pub(super) async fn answer(&self, question: &str) -> Option<bool> {
        self.get(&grant(question)).await.map(|bytes| bytes == ALLOWED)
    }

    async fn row(&self, name: &str) -> Option<Row> {
        if let Some(row) = self.recent.get(name).await {
            return Some(row);
        }
        let disk = self.disk.as_ref()?;
        let CachedValue { bytes, expires } = match disk.get(name).await {
            Some(value) => value,
            None => disk.get(&on_disk(&Owner::Node, name)).await?,
        };
        let row = Row { bytes: bytes.into(), expires };
        self.recent.insert(name.to_owned(), row.clone()).await;
        Some(row)
    }
}

/// The name of a row on disk.
fn on_disk(owner: &Owner, name: &str) -> String {
    match owner {
        Owner::Node | Owner::Daemon => format!("node/{name}"),
        Owner::Client(_) | Owner::Unaccepted => name.to_owned(),
    }
}

fn grant(question: &str) -> String {
    format!("grant/{question}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);
    const OWNER: Owner = Owner::Unaccepted;

    #[tokio::test]
    async fn a_permission_outlasts_neither_the_grace_period_nor_its_credential() {
        let now = clock::now();
        let (past, soon) = (now - Duration::from_secs(1), now + Duration::from_secs(60));
        for (grace, expires, granted) in [
            (GRACE, None, Some(true)),
            (GRACE, Some(soon), Some(true)),
            (GRACE, Some(past), None),
            (Duration::ZERO, None, None),
            (Duration::ZERO, Some(soon), None),
        ] {
            let grants = Grants::new(None, grace);
            grants.allow(&OWNER, "a", expires).await;
            assert_eq!(grants.answer("a").await, granted, "{grace:?} {expires:?}");
            assert_eq!(grants.answer("b").await, None);
        }
    }

    #[tokio::test]
    async fn a_denial_replaces_a_permission_until_it_is_granted_again() {
        let grants = Grants::new(None, GRACE);
        grants.allow(&OWNER, "a", None).await;
        grants.deny(&OWNER, "a", None).await;
        assert_eq!(grants.answer("a").await, Some(false));
        grants.allow(&OWNER, "a", None).await;
        assert_eq!(grants.answer("a").await, Some(true));
    }

    #[tokio::test]
    async fn a_shorter_credential_shortens_what_was_granted_before() {
        let grants = Grants::new(None, GRACE);
        grants.put(&OWNER, "a", Bytes::new(), None).await;
        let soon = clock::now() + Duration::from_secs(60);
        grants.put(&OWNER, "a", Bytes::new(), Some(soon)).await;
        assert_eq!(grants.row("a").await.unwrap().expires, soon);
    }

    #[tokio::test]
    async fn one_owner_adds_a_share_of_rows_and_others_keep_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let config = weir_store::disk::DiskConfig::new(&folder.path().join("cache"), "node");
        let grants = Grants::new(Some(DiskCache::new(config, Arc::default())), GRACE);
        grants.allow(&Owner::Node, "node", None).await;
        grants.allow(&Owner::Client("b".into()), "b", None).await;
        let minting = Owner::Client("a".into());
        for n in 0..3 * MAX_ROWS {
            grants.allow(&minting, &n.to_string(), None).await;
        }
        let mut kept = 0;
        for n in 0..3 * MAX_ROWS {
            kept += usize::from(grants.answer(&n.to_string()).await.is_some());
        }
        assert_eq!(kept, MAX_ROWS);
        grants.allow(&minting, "0", None).await;
        grants.deny(&minting, "other", None).await;
        assert_eq!(grants.answer("other").await, Some(false), "a denial of what was granted always counts");
        grants.deny_ahead(&minting, "another", None).await;
        assert_eq!(grants.answer("another").await, None, "one of what was not has a place in the share");
        grants.recent.invalidate_all();
        for name in ["node", "b", "0"] {
            assert_eq!(grants.answer(name).await, Some(true), "{name} is on disk");
        }
        grants.remove(&grant("node")).await;
        assert_eq!(grants.answer("node").await, None);
    }
}
