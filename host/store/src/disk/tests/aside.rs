//! Files that do not fit now are set aside, and used again when they fit.

use std::path::PathBuf;
use std::time::Duration;

use weir_upstream::clock;

use super::*;
use crate::disk::reading::lock;
use crate::disk::values::PendingValue;
use crate::disk::{CachedValue, DiskCache};

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
    // The other name keeps its own content.
    drop(state);
    let other = store(&["c"]);
    let mut state = start(&folder, "edge-b");
    state.commit(&[plain("services", &other)], false);
    drop(state);
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept));
    assert_eq!(services(&mut start(&folder, "edge-b")), Some(model(&other.snapshot())));
}

#[test]
fn a_second_wrong_name_costs_nothing_either() {
    let (folder, kept) = kept();
    for wrong in ["localhost", "debian", "localhost"] {
        let mut state = start(&folder, wrong);
        // What the daemon keeps for itself offline: the last good configuration.
        let value = CachedValue { bytes: b"{}".to_vec(), expires: clock::now() + Duration::from_secs(3600) };
        lock(&state.reading.writing)
            .insert("configuration/file/x".into(), Some(PendingValue { value, confidential: false }));
        state.commit(&[], true);
    }
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept.clone()));
    // The name as an older release has kept it.
    start(&folder, "edge-a").with_database(|_, database| database.write(|batch| batch.put_meta("node", " Edge-A")));
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept));
}

/// Of a file of which nothing is whole, or that nothing was written to, nothing is lost by another one that fits.
#[test]
fn a_file_that_was_set_aside_takes_the_place_of_one_without_content() {
    for content in [&b"not a database"[..], b""] {
        let (folder, kept) = kept();
        start(&folder, "localhost").commit(&[plain("services", &store(&["c"]))], false);
        assert!(place(&folder, "node").exists());
        std::fs::write(folder.path().join("cache/watch-cache.redb"), content).unwrap();
        assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept.clone()), "{content:?}");
        assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept), "{content:?}, from then on");
    }
}

/// A daemon was killed after it had created the file.
#[test]
fn a_file_that_has_no_owner_yet_gives_way_to_one_that_was_set_aside() {
    let (folder, kept) = kept();
    drop(services(&mut start(&folder, "localhost")));
    let file = folder.path().join("cache/watch-cache.redb");
    std::fs::remove_file(&file).unwrap();
    let config = DiskConfig::new(&folder.path().join("cache"), "edge-a");
    let storage = crate::disk::database::open_storage(&*config.storage).unwrap();
    crate::disk::database::Database::open(storage, Arc::default(), true).unwrap().close();
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept));
}

/// A file is set aside even if something else is at that path.
#[test]
fn a_folder_in_the_place_of_a_file_that_is_set_aside_gives_way() {
    let (folder, kept) = kept();
    std::fs::create_dir_all(place(&folder, "node").join("more")).unwrap();
    let other = store(&["c"]);
    start(&folder, "localhost").commit(&[plain("services", &other)], false);
    assert_eq!(services(&mut start(&folder, "localhost")), Some(model(&other.snapshot())));
    assert_eq!(services(&mut start(&folder, "edge-a")), Some(kept));
    // Damaged twice, by folders.
    for _ in 0..2 {
        let file = folder.path().join("cache/watch-cache.redb");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir_all(file.join("more")).unwrap();
        start(&folder, "edge-b").commit(&[plain("services", &other)], false);
        assert!(services(&mut start(&folder, "edge-b")).is_some());
    }
}

/// Killed between any two renames of an exchange.
#[test]
fn what_a_kill_leaves_half_exchanged_is_found() {
    let (folder, kept) = kept();
    let file = folder.path().join("cache/watch-cache.redb");
    drop(services(&mut start(&folder, "localhost")));
    start(&folder, "localhost").commit(&[plain("services", &store(&["c"]))], false);
    let back = |folder: &tempfile::TempDir| assert_eq!(services(&mut start(folder, "edge-a")), Some(kept.clone()));
    // On the way back to edge-a: after the first rename, and after the second one.
    std::fs::rename(&file, place(&folder, "spare")).unwrap();
    back(&folder);
    std::fs::rename(place(&folder, "spare"), place(&folder, "other")).unwrap();
    std::fs::rename(place(&folder, "other"), place(&folder, "spare")).unwrap();
    assert_eq!(services(&mut start(&folder, "localhost")).map(|found| found.len()), Some(1));
    back(&folder);
    assert_eq!(services(&mut start(&folder, "localhost")).map(|found| found.len()), Some(1));
    back(&folder);
}

#[test]
fn what_is_whole_of_a_damaged_file_is_taken_over_also_after_a_full_disk() {
    let (folder, kept) = kept();
    let file = folder.path().join("cache/watch-cache.redb");
    start(&folder, "edge-a").with_database(|_, database| database.write(|batch| batch.put_store(7, b"damaged")));
    let bytes = std::fs::read(&file).unwrap();
    // A page whose damage only the checksums of all pages show.
    let flipped = (0..bytes.len()).step_by(512).find_map(|at| {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        let config = DiskConfig::new(&folder.path().join("cache"), "edge-a");
        let is_damaged = matches!(
            crate::disk::recovery::open(&config, &Arc::default(), None, false),
            Err(crate::disk::DiskError::Damaged(_))
        );
        is_damaged.then_some(damaged)
    });
    std::fs::write(&file, flipped.expect("a page that counts")).unwrap();
    // The successor cannot be written: nothing is lost of the damaged file.
    std::fs::create_dir(place(&folder, "new")).unwrap();
    let before = std::fs::read(&file).unwrap();
    drop(services(&mut start(&folder, "edge-a")));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    std::fs::remove_dir(place(&folder, "new")).unwrap();
    let found = services(&mut start(&folder, "edge-a"));
    assert!(found.is_none() || found == Some(kept), "what is not whole is not served");
    assert_eq!(std::fs::read(place(&folder, "damaged")).unwrap(), before);
}

#[tokio::test]
async fn a_cluster_that_is_not_known_yet_gets_no_file_of_another_one() {
    let (folder, _) = kept();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "edge-a"), Arc::default());
    for cluster in ["one", "two"] {
        let cache = start();
        cache.confirm_cluster(cluster.into()).await;
        cache.close().await;
    }
    std::fs::remove_file(folder.path().join("cache/watch-cache.redb")).unwrap();
    let cache = start();
    assert!(cache.restore(&name("services"), Confidentiality::Plain).await.is_none());
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
            state.config.ready.add(Duration::from_secs(600));
        }
    };
    tend(&mut state, 48).await;
    assert!(place(&folder, "node").exists(), "no API server has answered");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 23).await;
    // A day passes in which the daemon is not ready, or no API server answers.
    for _ in 0..48 {
        tokio::time::advance(Duration::from_secs(1800)).await;
        state.commit(&[plain("services", &followed)], true);
    }
    assert!(place(&folder, "node").exists());
    drop(state);
    let mut state = start(&folder, "edge-a");
    assert_eq!(services(&mut state), Some(kept));
    drop(state);
    let mut state = start(&folder, "localhost");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 23).await;
    assert!(place(&folder, "node").exists(), "the count starts again");
    drop(state);
    let mut state = start(&folder, "localhost");
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 2).await;
    assert!(!place(&folder, "node").exists(), "also over a restart");
}

/// A roll-back finds it for a day.
#[test]
fn the_directory_of_an_earlier_release_goes_after_a_day_online() {
    let (folder, _) = kept();
    let former = folder.path().join("former/cache");
    std::fs::create_dir_all(former.join("code")).unwrap();
    std::fs::write(former.with_extension("key"), "key").unwrap();
    let config = DiskConfig::new(&folder.path().join("cache"), "edge-a");
    let mut state = open_with(DiskConfig { former: Some(former.clone()), ..config });
    let tend = |state: &mut DiskState, hours: u32| {
        for _ in 0..hours * 6 {
            state.commit(&[], true);
            state.config.ready.add(Duration::from_secs(600));
        }
    };
    tend(&mut state, 48);
    state.confirmed = Some("one".to_owned());
    tend(&mut state, 23);
    assert!(former.join("code").exists() && former.with_extension("key").exists());
    tend(&mut state, 2);
    assert!(!former.exists() && !former.with_extension("key").exists() && folder.path().join("former").exists());
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
    let make: [fn(&Path); 3] = [
        |file| std::fs::create_dir(file).unwrap(),
        |file| std::os::unix::fs::symlink("/nonexistent/file", file).unwrap(),
        |file| std::os::unix::fs::symlink(file, file).unwrap(),
    ];
    for (n, make) in make.into_iter().enumerate() {
        let (folder, _) = kept();
        let file = folder.path().join("cache/watch-cache.redb");
        std::fs::remove_file(&file).unwrap();
        make(&file);
        std::fs::write(place(&folder, "damaged"), "an earlier one").unwrap();
        let written = store(&["c"]);
        start(&folder, "edge-a").commit(&[plain("services", &written)], false);
        assert_eq!(services(&mut start(&folder, "edge-a")), Some(model(&written.snapshot())), "{n}");
        assert!(!std::fs::symlink_metadata(place(&folder, "damaged")).unwrap().is_file(), "{n}");
    }
}

#[tokio::test]
async fn a_value_whose_key_was_away_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "edge-a"), Arc::default());
    let value = CachedValue { bytes: b"token".to_vec(), expires: clock::now() + Duration::from_secs(3600) };
    let cache = start();
    cache.put("node/token", value, true).await;
    cache.close().await;
    let (key, away) = (folder.path().join("cache.key"), folder.path().join("away"));
    std::fs::rename(&key, &away).unwrap();
    let cache = start();
    assert!(cache.get("node/token").await.is_none(), "a new key does not open it");
    cache.close().await;
    std::fs::rename(&away, &key).unwrap();
    assert_eq!(start().get("node/token").await.map(|value| value.bytes), Some(b"token".to_vec()));
}
