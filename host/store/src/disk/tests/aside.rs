//! Files that do not fit now are set aside, and used again when they fit.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::disk::DiskCache;

fn start(folder: &tempfile::TempDir, node: &str) -> DiskState {
    open_with(DiskConfig::new(&folder.path().join("cache"), node))
}

fn place(folder: &tempfile::TempDir, reason: &str) -> PathBuf {
    folder.path().join("cache").join(format!("watch-cache.redb.{reason}"))
}

fn services(state: &mut DiskState) -> Option<Model> {
    state.load(&name("services"), Confidentiality::Plain).map(|snapshot| model(&snapshot))
}

/// The cache of a node with two services.
fn kept() -> (tempfile::TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    let kept = store(&["a", "b"]);
    start(&folder, "edge-a").commit(&[plain("services", &kept)], false);
    (folder, model(&kept.snapshot()))
}

#[test]
fn a_start_under_another_name_costs_nothing() {
    let (folder, kept) = kept();
    for wrong in ["localhost", "edge-b", "localhost"] {
        let mut state = start(&folder, wrong);
        assert!(services(&mut state).is_none(), "another node's");
        assert_eq!(errors(&state, "node"), 1);
        drop(state);
        assert!(place(&folder, "node").exists());
    }
    let mut state = start(&folder, "edge-a");
    assert_eq!(services(&mut state), Some(kept.clone()));
    // What the other name has kept meanwhile is its own.
    drop(state);
    let other = store(&["c"]);
    let mut state = start(&folder, "edge-b");
    state.commit(&[plain("services", &other)], false);
    drop(state);
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept));
    assert_eq!(services(&mut start(&folder, "edge-b")), Some(model(&other.snapshot())));
}

#[test]
fn what_a_kill_leaves_half_exchanged_is_found() {
    let (folder, kept) = kept();
    drop(services(&mut start(&folder, "localhost")));
    // Killed between the two renames of the way back.
    let file = folder.path().join("cache/watch-cache.redb");
    std::fs::rename(&file, place(&folder, "next")).unwrap();
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept.clone()));
    // Killed before what is whole was taken over from a damaged file.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(services(&mut start(&folder, "edge-a")).is_none() && place(&folder, "damaged").exists());
}

#[tokio::test]
async fn the_cluster_that_is_met_by_mistake_costs_nothing() {
    let (folder, kept) = kept();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "edge-a"), Arc::default());
    let restore = async |cache: &Arc<DiskCache>| {
        cache.restore(&name("services"), Confidentiality::Plain).await.map(|snapshot| model(&snapshot))
    };
    for (cluster, found) in [("one", true), ("two", false), ("one", true)] {
        let cache = start();
        cache.confirm_cluster(cluster.into()).await;
        assert_eq!(restore(&cache).await, found.then(|| kept.clone()), "{cluster}");
        cache.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_goes_after_a_day_online() {
    let (folder, kept) = kept();
    let mut state = start(&folder, "localhost");
    let followed = store(&["c"]);
    let tend = async |state: &mut DiskState, hours: u32| {
        for version in 0..hours * 6 {
            put(&followed, "c", u64::from(version) + 10);
            state.commit(&[plain("services", &followed)], true);
            tokio::time::advance(Duration::from_secs(600)).await;
        }
    };
    tend(&mut state, 48).await;
    assert!(place(&folder, "node").exists(), "no API server has answered");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 23).await;
    drop(state);
    let mut state = start(&folder, "edge-a");
    assert_eq!(services(&mut state), Some(kept));
    drop(state);
    let mut state = start(&folder, "localhost");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 23).await;
    assert!(place(&folder, "node").exists(), "it is counted anew");
    drop(state);
    let mut state = start(&folder, "localhost");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 2).await;
    assert!(!place(&folder, "node").exists(), "also over a restart");
}

#[test]
fn a_key_that_was_away_opens_what_it_has_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = store(&["secret"]);
    let requests = [request("secrets", &secrets, Confidentiality::Encrypted)];
    open(folder.path()).commit(&requests, false);
    let (key, away) = (folder.path().join("cache.key"), folder.path().join("away"));
    let read = || open(folder.path()).load(&name("secrets"), Confidentiality::Encrypted);
    std::fs::rename(&key, &away).unwrap();
    assert!(read().is_none(), "a new key does not open it");
    std::fs::rename(&away, &key).unwrap();
    assert_eq!(read().map(|found| model(&found)), Some(model(&secrets.snapshot())));
    // Another key that has written replaces it.
    std::fs::rename(&key, &away).unwrap();
    let mut state = open(folder.path());
    state.commit(&requests, false);
    assert_eq!(state.rows.len(), 1);
    drop(state);
    assert!(read().is_some());
}

/// A file system that cannot be written, or fails to: what is there is read all the same.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_read() {
    for reason in [std::io::ErrorKind::ReadOnlyFilesystem, std::io::ErrorKind::StorageFull, std::io::ErrorKind::Other] {
        let (folder, kept) = kept();
        let config = DiskConfig::new(&folder.path().join("cache"), "edge-a");
        let writable = config.storage.clone();
        let mut state = open_with(DiskConfig { storage: Arc::new(move || Err(reason.into())), ..config });
        assert_eq!(services(&mut state), Some(kept), "{reason}");
        let due = state.commit(&[plain("services", &store(&["c"]))], false).expect("it is tried again");
        assert!(state.is_read_only(), "{reason}");
        // Once it can be written, it is.
        state.config.storage = writable;
        tokio::time::sleep_until(due).await;
        let written = store(&["d"]);
        state.commit(&[plain("services", &written)], false);
        assert!(!state.is_read_only());
        drop(state);
        assert_eq!(services(&mut start(&folder, "edge-a")), Some(model(&written.snapshot())));
    }
}

#[test]
fn a_database_file_that_is_no_file_is_set_aside() {
    let (folder, _) = kept();
    let file = folder.path().join("cache/watch-cache.redb");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let written = store(&["c"]);
    start(&folder, "edge-a").commit(&[plain("services", &written)], false);
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(model(&written.snapshot())));
    assert!(place(&folder, "damaged").is_dir());
}
