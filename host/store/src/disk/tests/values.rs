//! Single values.

use std::time::Duration;

use super::*;
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
fn the_values_that_expire_first_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = DiskConfig::new(&folder.path().join("cache"), "node");
    config.max_bytes = 300;
    let mut state = open_with(config);
    for (name, seconds) in [("a", 300), ("b", 100), ("c", 200)] {
        let value = value(&[7, 1, 250, 3], seconds);
        let pending = crate::disk::values::PendingValue {
            value: CachedValue { bytes: vec![9; 10], ..value },
            confidential: false,
        };
        state.values.insert(name.into(), Some(pending));
    }
    state.commit(&[], false);
    state.swept = None;
    state.commit(&[], false);
    let left: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| state.value(name).flatten().is_some()).collect();
    assert_eq!(left, ["a", "c"]);
}
