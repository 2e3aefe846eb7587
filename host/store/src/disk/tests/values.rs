//! Single values.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::storage::MemoryStorage;
use super::*;
use crate::disk::reading::lock;
use crate::disk::{CachedValue, DiskCache};
use weir_upstream::clock;

fn value(bytes: &[u8], seconds: i64) -> CachedValue {
    let (now, by) = (clock::now(), Duration::from_secs(seconds.unsigned_abs()));
    CachedValue { bytes: bytes.to_vec(), expires: if seconds < 0 { now - by } else { now + by } }
}

#[tokio::test]
async fn a_value_is_returned_until_it_expires_or_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let cache = start();
    cache.put("a", value(b"plain", 100), false).await;
    cache.put("b", value(b"confidential", 100), true).await;
    cache.put("c", value(b"expired", -1), false).await;
    cache.put("d", value(b"removed", 100), false).await;
    cache.flush().await;
    cache.remove("d").await;
    assert_eq!(cache.get("d").await, None, "also before the commit");
    cache.flush().await;
    drop(cache);
    let file = std::fs::read(folder.path().join("cache/watch-cache.redb")).unwrap();
    assert!(!file.windows(12).any(|window| window == b"confidential"));
    let cache = start();
    assert_eq!(cache.get("a").await.unwrap().bytes, b"plain");
    assert_eq!(cache.get("b").await.unwrap().bytes, b"confidential");
    assert_eq!((cache.get("c").await, cache.get("d").await), (None, None));
}

#[tokio::test]
async fn a_confidential_value_needs_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let cache = start();
    cache.put("a", value(b"confidential", 100), true).await;
    cache.put("b", value(b"plain", 100), false).await;
    cache.flush().await;
    drop(cache);
    std::fs::remove_file(folder.path().join("cache.key")).unwrap();
    let cache = start();
    assert_eq!(cache.get("a").await, None);
    assert_eq!(cache.get("b").await.unwrap().bytes, b"plain");
}

#[test]
fn the_values_that_expire_first_make_room_at_each_commit() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = DiskConfig::new(&folder.path().join("cache"), "node");
    config.max_bytes = 40 << 10;
    let mut state = open_with(config);
    for (name, seconds) in [("node/a", 300_i64), ("client/o/b", 500), ("node/c", 200), ("node/d", 400)] {
        let value = CachedValue { bytes: noise(seconds.unsigned_abs(), 4000), ..value(b"", seconds) };
        let pending = crate::disk::values::PendingValue { value, confidential: false };
        lock(&state.reading.waiting).insert(name.into(), Some(pending));
        state.commit(&[], false);
    }
    let names = ["node/a", "client/o/b", "node/c", "node/d"];
    let left: Vec<_> = names.into_iter().filter(|name| state.value(name).flatten().is_some()).collect();
    assert_eq!(left, ["node/a", "node/d"]);
}

/// The disk may be full, or gone: what waits for it must not fill the memory.
#[tokio::test]
async fn values_that_cannot_be_written_are_bounded_in_memory_and_dropped_in_order() {
    let folder = tempfile::tempdir().unwrap();
    // A file stands where the directory should be.
    std::fs::write(folder.path().join("cache"), "").unwrap();
    let cache = DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    for n in 0..200 {
        let value = CachedValue { bytes: vec![7; 1 << 20], ..value(b"", 100) };
        cache.put(&format!("client/o/{n}"), value, false).await;
    }
    cache.put("node/token", value(b"token", 100), false).await;
    let mut kept = 0;
    for n in 0..200 {
        let waits = cache.put_later(&format!("client/o/{n}"), value(b"", 100), false);
        kept += usize::from(waits);
    }
    assert!(kept <= 16, "{kept}");
    std::fs::remove_file(folder.path().join("cache")).unwrap();
    let read = async {
        while cache.read("node/token").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap();
    cache.flush().await;
    assert_eq!(cache.get("node/token").await.unwrap().bytes, b"token");
}

#[tokio::test]
async fn the_last_of_two_values_of_a_name_is_the_one_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let cache = start();
    for n in 0..100 {
        cache.put_later("node/a", value(format!("{n}").as_bytes(), 100), false);
    }
    cache.flush().await;
    drop(cache);
    assert_eq!(start().get("node/a").await.unwrap().bytes, b"99");
}

/// Clients choose what is removed: a token that the API server refuses ends what was kept of it, which is nothing.
#[tokio::test]
async fn the_removal_of_what_was_never_stored_writes_nothing() {
    let storage = MemoryStorage::new(Vec::new());
    let metrics = Arc::<crate::disk::DiskMetrics>::default();
    let cache = DiskCache::new(storage.config(), metrics.clone());
    cache.put("accepted/a", value(b"a", 100), false).await;
    // Before the names on disk are known, too.
    cache.remove_later("accepted/garbage");
    cache.flush().await;
    let before = (metrics.commits(), storage.log.lock().unwrap().len());
    for n in 0..1000 {
        cache.remove(&format!("accepted/{n}")).await;
        cache.remove_later(&format!("node/accepted/{n}"));
        if n % 100 == 0 {
            cache.flush().await;
        }
    }
    cache.remove("accepted/garbage").await;
    cache.flush().await;
    assert_eq!((metrics.commits(), storage.log.lock().unwrap().len()), before);
    for stored in ["accepted/a", "accepted/b"] {
        cache.put_later(stored, value(b"b", 100), false);
        cache.remove_later(stored);
        cache.flush().await;
        assert_eq!(cache.get(stored).await, None);
    }
    assert_eq!(metrics.commits(), before.0 + 1, "the one that never got to disk needs no commit");
}

#[tokio::test(start_paused = true)]
async fn garbage_costs_nobody_anything_while_the_disk_cannot_be_written() {
    let storage = MemoryStorage::new(Vec::new());
    let cache = DiskCache::new(storage.config(), Arc::default());
    for name in ["accepted/a", "client/o/a", "node/accepted/a", "accepted/revoked"] {
        cache.put(name, value(b"kept", 10_000), false).await;
    }
    cache.flush().await;
    storage.capacity.store(0, Ordering::Relaxed);
    let large = CachedValue { bytes: noise(1, 4 << 20), ..value(b"", 10_000) };
    cache.put("client/o/large", large, false).await;
    cache.flush().await;
    assert_eq!(cache.read("accepted/a").await.unwrap().unwrap().bytes, b"kept", "the disk is full, and is read");
    for n in 0..100_000 {
        let name = format!("accepted/{n:0100}");
        cache.remove_later(&name);
        cache.remove_later(&format!("node/{name}"));
    }
    cache.remove_later("accepted/revoked");
    storage.capacity.store(u64::MAX, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(600)).await;
    cache.flush().await;
    for name in ["accepted/a", "client/o/a", "node/accepted/a"] {
        assert_eq!(cache.get(name).await.map(|value| value.bytes), Some(b"kept".to_vec()), "{name}");
    }
    assert_eq!(cache.get("accepted/revoked").await, None);
}
