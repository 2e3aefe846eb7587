//! The API server's answers about credentials and permissions, kept for the time in which no API server can be reached.
//!
//! Three kinds of rows: `accepted/…`, the account of a credential; `issued/…`, a token that a TokenRequest through Weir has
//! issued; `grant/…`, a permission, or that it was denied. Rows exist only for credentials that the API server has accepted, or
//! issued: who sends garbage leaves nothing. They hold for the offline grace, and not beyond the credential; those of node
//! components without end, see [`Outage`]. One owner has at
//! most [`MAX_ROWS`]: who mints tokens does not push out what others have. Those of node components are apart from
//! all others on disk, where they go last.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use moka::Entry;
use moka::future::Cache;
use moka::ops::compute::Op;
use weir_store::disk::{CachedValue, DiskCache};
use weir_upstream::clock;

use crate::outage::Outage;
use weir_process::ledger::Owner;
use weir_process::sync::atomic::{AtomicU64, Ordering};
use weir_process::sync::{Mutex, PoisonError};

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
pub(crate) struct Grants {
    recent: Cache<String, Row>,
    /// How often all was forgotten: what was read before that is of another cluster.
    forgotten: AtomicU64,
    /// When the rows that each owner has added expire.
    added: Mutex<HashMap<Owner, Vec<SystemTime>>>,
    /// Where they outlive the process.
    disk: Option<Arc<DiskCache>>,
    /// How long they hold.
    outage: Arc<Outage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    bytes: Bytes,
    expires: SystemTime,
}

impl Grants {
    /// Without a disk, rows last as long as the process.
    pub(crate) fn new(disk: Option<Arc<DiskCache>>, outage: Arc<Outage>) -> Self {
        let recent = Cache::new(CAPACITY);
        Self { recent, forgotten: AtomicU64::new(0), added: Mutex::default(), disk, outage }
    }

    /// Returns a row that holds now, for a credential that ends then. `is_lasting`: whether it is of a node component, by the
    /// user that it is about, and not by the one that asked for it.
    pub(super) async fn get(
        &self,
        name: &str,
        credential_expires: Option<SystemTime>,
        is_lasting: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Bytes> {
        let row = self.row(name).await?;
        let is_valid = credential_expires.is_none_or(|expires| expires > clock::now());
        (is_valid && (self.outage.holds(row.expires) || is_lasting(&row.bytes))).then_some(row.bytes)
    }

    /// Writes a row that holds until the grace or the credential ends. Flash wears: what is there and lasts is not written again.
    pub(super) async fn put(&self, owner: &Owner, name: &str, bytes: Bytes, credential_expires: Option<SystemTime>) {
        let (now, grace) = (clock::now(), self.outage.grace());
        let expires = credential_expires.map_or(now + grace, |expires| expires.min(now + grace));
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
        let mut waits = false;
        self.change(name, async |_| {
            if let Some(disk) = &self.disk {
                waits = disk.put_later(&on_disk(owner, name), CachedValue { bytes: bytes.to_vec(), expires }, false);
            }
            Op::Put(Row { bytes: bytes.clone(), expires })
        })
        .await;
        self.relieve(waits).await;
    }

    /// How often all was forgotten. Earlier questions are of another cluster, whenever they are answered.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Forgets what is in memory: it may be of another cluster than the one that answers now.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.recent.invalidate_all();
        self.added.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Removes a row, after a read of it that has begun: else that one would put it back. On a disk that hangs, that is two reads of 2 s
    /// where an API server answers, whose 401 is why rows are removed. Each has two minutes if it began while none did.
    pub(super) async fn remove(&self, name: &str) {
        let mut waits = false;
        self.change(name, async |_| {
            if let Some(disk) = &self.disk {
                waits = disk.remove_later(name) | disk.remove_later(&on_disk(&Owner::Node, name));
            }
            Op::Remove
        })
        .await;
        self.relieve(waits).await;
    }

    /// Waits for the disk, if so much `waits` for it. No row is locked meanwhile.
    async fn relieve(&self, waits: bool) {
        if let Some(disk) = self.disk.as_ref().filter(|_| waits) {
            disk.relieve().await;
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
        if self.row(&name).await.is_some() || self.may_add(owner, &name, clock::now() + self.outage.grace()) {
            self.deny(owner, question, credential_expires).await;
        }
    }

    /// What is known of a question: granted, denied, or nothing.
    pub(super) async fn answer(
        &self,
        question: &str,
        credential_expires: Option<SystemTime>,
        is_node: bool,
    ) -> Option<bool> {
        self.get(&grant(question), credential_expires, |_| is_node).await.map(|bytes| bytes == ALLOWED)
    }

    async fn row(&self, name: &str) -> Option<Row> {
        if let Some(row) = self.recent.get(name).await {
            return Some(row);
        }
        loop {
            let forgotten = self.forgotten.load(Ordering::Acquire);
            let fill = async |is_known| match is_known {
                true => Op::Nop,
                false => self.row_on_disk(name).await.map_or(Op::Nop, Op::Put),
            };
            let row = self.change(name, fill).await?;
            // The file may have been exchanged meanwhile: what is in memory alone would never be written to the present one.
            if self.forgotten.load(Ordering::Acquire) == forgotten {
                return Some(row);
            }
            self.recent.invalidate(name).await;
        }
    }

    /// Changes a row, in memory and on disk, after the changes of it that have begun: what is read from disk does not replace what
    /// is newer. `change` gets whether it is in memory. Returns the row. Cancel safe, if `change` waits only to read.
    async fn change(&self, name: &str, change: impl AsyncFnOnce(bool) -> Op<Row>) -> Option<Row> {
        let change = |known: Option<_>| change(known.is_some());
        self.recent.entry_by_ref(name).and_compute_with(change).await.into_entry().map(Entry::into_value)
    }

    async fn row_on_disk(&self, name: &str) -> Option<Row> {
        let disk = self.disk.as_ref()?;
        // Whether it holds is not for the clock alone to say.
        let CachedValue { bytes, expires } = match disk.get_even_expired(name).await {
            Some(value) => value,
            None => disk.get_even_expired(&on_disk(&Owner::Node, name)).await?,
        };
        Some(Row { bytes: bytes.into(), expires })
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
    use std::time::Duration;

    use super::*;
    use crate::outage::tests as outage;

    const GRACE: Duration = Duration::from_secs(3600);
    const OWNER: Owner = Owner::Unaccepted;

    fn grants(disk: Option<Arc<DiskCache>>, grace: Duration) -> Grants {
        Grants::new(disk, outage::online(grace))
    }

    #[tokio::test]
    async fn an_outage_ends_what_clients_have_with_the_grace_and_what_node_components_have_with_their_credential() {
        let folder = tempfile::tempdir().unwrap();
        let config = weir_store::disk::DiskConfig::new(&folder.path().join("cache"), "node");
        let disk = DiskCache::new(config, Arc::default());
        let online = grants(Some(disk.clone()), GRACE);
        online.allow(&Owner::Node, "node", None).await;
        online.allow(&OWNER, "client", None).await;
        let now = clock::now();
        // By the clock, it is a week later.
        let offline = async |running| {
            let rows = Grants::new(Some(disk.clone()), outage::counted(now, running, GRACE).await);
            let past = rows.answer("node", Some(now - GRACE), true).await;
            (rows.answer("node", None, true).await, rows.answer("client", None, false).await, past)
        };
        assert_eq!(offline(GRACE / 2).await, (Some(true), Some(true), None));
        assert_eq!(offline(GRACE).await, (Some(true), None, None));
    }

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
            let rows = grants(None, grace);
            rows.allow(&OWNER, "a", expires).await;
            assert_eq!(rows.answer("a", None, false).await, granted, "{grace:?} {expires:?}");
            assert_eq!(rows.answer("b", None, false).await, None);
        }
    }

    #[tokio::test]
    async fn a_denial_replaces_a_permission_until_it_is_granted_again() {
        let rows = grants(None, GRACE);
        rows.allow(&OWNER, "a", None).await;
        rows.deny(&OWNER, "a", None).await;
        assert_eq!(rows.answer("a", None, false).await, Some(false));
        rows.allow(&OWNER, "a", None).await;
        assert_eq!(rows.answer("a", None, false).await, Some(true));
    }

    #[tokio::test]
    async fn a_shorter_credential_shortens_what_was_granted_before() {
        let rows = grants(None, GRACE);
        rows.put(&OWNER, "a", Bytes::new(), None).await;
        let soon = clock::now() + Duration::from_secs(60);
        rows.put(&OWNER, "a", Bytes::new(), Some(soon)).await;
        assert_eq!(rows.row("a").await.unwrap().expires, soon);
    }

    #[tokio::test]
    async fn one_owner_adds_a_share_of_rows_and_others_keep_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let config = weir_store::disk::DiskConfig::new(&folder.path().join("cache"), "node");
        let rows = grants(Some(DiskCache::new(config, Arc::default())), GRACE);
        rows.allow(&Owner::Node, "node", None).await;
        rows.allow(&Owner::Client("b".into()), "b", None).await;
        let minting = Owner::Client("a".into());
        for n in 0..3 * MAX_ROWS {
            rows.allow(&minting, &n.to_string(), None).await;
        }
        let mut kept = 0;
        for n in 0..3 * MAX_ROWS {
            kept += usize::from(rows.answer(&n.to_string(), None, false).await.is_some());
        }
        assert_eq!(kept, MAX_ROWS);
        rows.allow(&minting, "0", None).await;
        rows.deny(&minting, "other", None).await;
        assert_eq!(rows.answer("other", None, false).await, Some(false), "a denial of what was granted always counts");
        rows.deny_ahead(&minting, "another", None).await;
        assert_eq!(rows.answer("another", None, false).await, None, "one of what was not has a place in the share");
        rows.recent.invalidate_all();
        for name in ["node", "b", "0"] {
            assert_eq!(rows.answer(name, None, false).await, Some(true), "{name} is on disk");
        }
        rows.remove(&grant("node")).await;
        assert_eq!(rows.answer("node", None, false).await, None);
    }
}
