//! What the API server has said of credentials and permissions, kept for the time in which no API server can be reached.
//!
//! Three kinds of rows: `accepted/…`, the account of a credential; `issued/…`, a token that a TokenRequest through Weir has
//! issued; `grant/…`, a permission, or that it was denied. Rows exist only for credentials that the API server has accepted, or
//! issued: who sends garbage leaves nothing. They hold for the offline grace, and not beyond the credential.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use moka::future::Cache;
use weir_store::disk::{CachedValue, DiskCache};
use weir_upstream::clock;

/// The most rows in memory. Those on disk are read again.
const CAPACITY: u64 = 16 << 10;
/// A permission.
const ALLOWED: &[u8] = b"+";
/// What takes it away again from this credential.
const DENIED: &[u8] = b"-";

/// The rows.
#[derive(Debug)]
pub(in crate::proxy) struct Grants {
    recent: Cache<String, Row>,
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
        Self { recent: recent.build(), disk, grace }
    }

    /// Returns a row that holds now.
    pub(super) async fn get(&self, name: &str) -> Option<Bytes> {
        let row = self.row(name).await?;
        let now = clock::now();
        // One that ends much later was written by a clock that was years ahead.
        (row.expires > now && row.expires <= now + 2 * self.grace).then_some(row.bytes)
    }

    /// Writes a row that holds until the grace or the credential ends. Flash wears: what is there and lasts is not written again.
    pub(super) async fn put(&self, name: &str, bytes: Bytes, credential_expires: Option<SystemTime>) {
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
        if self.row(name).await.as_ref().is_some_and(lasts) {
            return;
        }
        self.recent.insert(name.to_owned(), Row { bytes: bytes.clone(), expires }).await;
        if let Some(disk) = &self.disk {
            disk.put(name, CachedValue { bytes: bytes.to_vec(), expires }, false).await;
        }
    }

    /// Removes a row.
    pub(super) async fn remove(&self, name: &str) {
        self.recent.invalidate(name).await;
        if let Some(disk) = &self.disk {
            disk.remove(name).await;
        }
    }

    /// Grants what a question asks for.
    pub(super) async fn allow(&self, question: &str, credential_expires: Option<SystemTime>) {
        self.put(&grant(question), Bytes::from_static(ALLOWED), credential_expires).await;
    }

    /// Notes that a question was denied: no other permission of the same client answers it.
    pub(super) async fn deny(&self, question: &str, credential_expires: Option<SystemTime>) {
        self.put(&grant(question), Bytes::from_static(DENIED), credential_expires).await;
    }

    /// What is known of a question: granted, denied, or nothing.
    pub(super) async fn answer(&self, question: &str) -> Option<bool> {
        self.get(&grant(question)).await.map(|bytes| bytes == ALLOWED)
    }

    async fn row(&self, name: &str) -> Option<Row> {
        if let Some(row) = self.recent.get(name).await {
            return Some(row);
        }
        let CachedValue { bytes, expires } = self.disk.as_ref()?.get(name).await?;
        let row = Row { bytes: bytes.into(), expires };
        self.recent.insert(name.to_owned(), row.clone()).await;
        Some(row)
    }
}

fn grant(question: &str) -> String {
    format!("grant/{question}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);

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
            grants.allow("a", expires).await;
            assert_eq!(grants.answer("a").await, granted, "{grace:?} {expires:?}");
            assert_eq!(grants.answer("b").await, None);
        }
    }

    #[tokio::test]
    async fn a_denial_replaces_a_permission_until_it_is_granted_again() {
        let grants = Grants::new(None, GRACE);
        grants.allow("a", None).await;
        grants.deny("a", None).await;
        assert_eq!(grants.answer("a").await, Some(false));
        grants.allow("a", None).await;
        assert_eq!(grants.answer("a").await, Some(true));
    }

    #[tokio::test]
    async fn a_shorter_credential_shortens_what_was_granted_before() {
        let grants = Grants::new(None, GRACE);
        grants.put("a", Bytes::new(), None).await;
        let soon = clock::now() + Duration::from_secs(60);
        grants.put("a", Bytes::new(), Some(soon)).await;
        assert_eq!(grants.row("a").await.unwrap().expires, soon);
    }
}
