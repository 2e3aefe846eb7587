//! Commits and restores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::disk::DiskCache;

#[test]
fn a_store_is_read_as_it_was_committed_last() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&["a", "b", "c"]);
    let mut state = open(folder.path());
    assert!(state.load(&name("services"), Confidentiality::Plain).is_none());
    state.commit(&[plain("services", &store)], false);
    put(&store, "d", 10);
    store.apply(vec![Delta::Remove(StoreKey::new("default", "a"), 11)]);
    put(&store, "b", 12);
    state.commit(&[plain("services", &store)], false);
    let committed = store.snapshot();
    put(&store, "e", 13);
    drop(state);
    let read = reread(folder.path(), "services").unwrap();
    assert_eq!((read.version, &read.format, model(&read)), (12, &committed.format, model(&committed)));
    assert!(reread(folder.path(), "pods").is_none());
}

#[test]
fn a_store_continues_after_a_restart_and_writes_only_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let first = store(&["a", "b"]);
    open(folder.path()).commit(&[plain("services", &first)], false);
    let mut state = open(folder.path());
    let second = Arc::new(ResourceStore::new(format()));
    second.restore(state.load(&name("services"), Confidentiality::Plain).unwrap());
    assert!(second.is_stale() && second.state().borrow().synced);
    let requests = [plain("services", &second)];
    state.commit(&requests, false);
    assert_eq!(state.metrics.commits(), 0, "nothing has changed");
    put(&second, "c", 7);
    state.commit(&requests, false);
    drop(state);
    assert_eq!(model(&reread(folder.path(), "services").unwrap()), model(&second.snapshot()));
}

#[test]
fn a_writer_that_lost_events_compares_the_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&["a", "b"]);
    let mut state = open(folder.path());
    state.commit(&[plain("services", &store)], false);
    store.apply(vec![Delta::Remove(StoreKey::new("default", "b"), 3)]);
    for version in 4..6000 {
        put(&store, "a", version);
    }
    state.commit(&[plain("services", &store)], false);
    drop(state);
    let read = reread(folder.path(), "services").unwrap();
    assert_eq!((read.version, model(&read)), (5999, model(&store.snapshot())));
}

#[test]
fn a_list_of_a_restored_cluster_replaces_what_is_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&["a", "b", "c"]);
    let mut state = open(folder.path());
    state.commit(&[plain("services", &store)], false);
    // The same version, but another object; and a version that goes backwards.
    store.replace(format(), vec![object("b", 2, b"other")], 2);
    state.commit(&[plain("services", &store)], false);
    drop(state);
    let read = reread(folder.path(), "services").unwrap();
    assert_eq!((read.version, model(&read)), (2, model(&store.snapshot())));
}

#[test]
fn one_commit_covers_all_stores_and_a_bookmark_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (services, pods) = (store(&["a"]), store(&["b"]));
    let requests = [plain("services", &services), plain("pods", &pods)];
    let mut state = open(folder.path());
    state.commit(&requests, false);
    assert_eq!(state.metrics.commits(), 1);
    services.apply(vec![Delta::Bookmark(50)]);
    let due = state.commit(&requests, false).expect("the bookmark is due later");
    assert!(due > tokio::time::Instant::now() + Duration::from_secs(5));
    assert_eq!(state.metrics.commits(), 1);
    state.commit(&requests, true);
    assert_eq!(state.metrics.commits(), 2);
    drop(state);
    assert_eq!(reread(folder.path(), "services").unwrap().version, 50);
}

#[test]
fn stores_that_nobody_uses_are_evicted_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["services", "pods", "nodes"];
    let filled = |seed| {
        let store = Arc::new(ResourceStore::new(format()));
        store.replace(format(), vec![object("a", 1, &noise(seed, 4000))], 1);
        store
    };
    let mut config = DiskConfig::new(&folder.path().join("cache"), "node");
    let mut state = open_with(config.clone());
    for (at, resource) in names.iter().enumerate() {
        state.commit(&[plain(resource, &filled(at as u64 + 3))], false);
    }
    let (total, mut rows) = (state.bytes(), state.rows.clone());
    for row in rows.values_mut() {
        row.used = names.iter().position(|resource| row.name == name(resource)).unwrap() as u64;
    }
    state.rows = rows;
    // What the store in use adds fits only in place of another one.
    state.config.max_bytes = total + 1000;
    let used = filled(9);
    put(&used, "b", 2);
    state.commit(&[plain("services", &used)], false);
    let mut kept: Vec<_> = state.rows.values().map(|row| row.name.clone()).collect();
    kept.sort();
    assert_eq!(kept, [name("nodes"), name("services")], "the oldest that nobody uses is gone");
    // A store in use that does not fit by itself is dropped and reported.
    state.config.max_bytes = 1000;
    put(&used, "b", 3);
    state.commit(&[plain("services", &used)], false);
    assert_eq!((state.rows.len(), errors(&state, "too_large")), (0, 1));
    state.commit(&[plain("services", &used)], true);
    assert_eq!((state.rows.len(), errors(&state, "too_large")), (0, 1));
    drop(state);
    config.max_bytes = 1 << 20;
    assert!(open_with(config).load(&name("services"), Confidentiality::Plain).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_writer_commits_changes_within_a_second_and_a_flush_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let metrics: Arc<DiskMetrics> = Arc::default();
    let cache = DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), metrics.clone());
    let store = store(&["a"]);
    let handle = cache.persist(name("services"), store.clone(), Confidentiality::Plain);
    let steps = async {
        for version in 10..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(metrics.commits(), version - 9, "every change is committed in time");
            put(&store, "a", version);
        }
        // Nothing changes: nothing is written.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(metrics.commits(), 11);
        for bookmark in 0..20 {
            store.apply(vec![Delta::Bookmark(100 + bookmark)]);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!((12..=14).contains(&metrics.commits()), "{} commits", metrics.commits());
        store.apply(vec![Delta::Bookmark(200)]);
        cache.flush().await;
    };
    tokio::select! {
        () = cache.clone().run() => unreachable!(),
        () = steps => {}
    }
    drop((handle, cache));
    assert_eq!(reread(folder.path(), "services").unwrap().version, 200);
}

#[tokio::test]
async fn what_is_of_another_cluster_is_dropped_and_never_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let start = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let cache = start();
    let handle = cache.persist(name("services"), store(&["a"]), Confidentiality::Plain);
    cache.confirm_cluster("one".into()).await;
    cache.flush().await;
    drop((handle, cache));

    let cache = start();
    cache.confirm_cluster("one".into()).await;
    assert!(cache.restore(&name("services"), Confidentiality::Plain).await.is_some());
    drop(cache);

    let cache = start();
    let restored = cache.restore(&name("services"), Confidentiality::Plain).await.unwrap();
    let foreign = Arc::new(ResourceStore::new(format()));
    foreign.restore(restored);
    let handle = cache.persist(name("services"), foreign.clone(), Confidentiality::Plain);
    tokio::join!(cache.clone().other_cluster(), cache.confirm_cluster("two".into()));
    cache.flush().await;
    assert!(cache.restore(&name("services"), Confidentiality::Plain).await.is_none());
    // The list of this cluster replaces all objects, whatever their versions.
    foreign.set_foreign();
    foreign.replace(format(), vec![object("a", 1, b"this cluster's")], 1);
    cache.flush().await;
    drop((handle, cache));
    let read = reread(folder.path(), "services").unwrap();
    assert_eq!(model(&read).values().next().unwrap().1, "this cluster's");
}

#[tokio::test]
async fn objects_of_another_cluster_are_not_written_until_a_later_list() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let followed = store(&["a"]);
    let handle = cache.persist(name("services"), followed.clone(), Confidentiality::Plain);
    cache.confirm_cluster("one".into()).await;
    cache.flush().await;
    cache.confirm_cluster("two".into()).await;
    // The other cluster takes a watch at the former version, and a list of the former one may be under way.
    followed.set_watched();
    cache.flush().await;
    assert!(cache.restore(&name("services"), Confidentiality::Plain).await.is_none());
    followed.replace(format(), vec![object("a", 7, b"the former cluster's")], 7);
    cache.flush().await;
    assert!(cache.restore(&name("services"), Confidentiality::Plain).await.is_none());
    followed.replace(format(), vec![object("a", 1, b"this cluster's")], 1);
    followed.settle(followed.trust().cluster_change());
    cache.flush().await;
    drop((handle, cache));
    let read = reread(folder.path(), "services").unwrap();
    assert_eq!(model(&read).values().next().unwrap().1, "this cluster's");
}

/// A file that could only be read is compared with the cluster when it is opened to be written: by the confirmation of
/// the cluster, or by the next commit.
#[tokio::test(start_paused = true)]
async fn opening_a_file_of_another_cluster_notifies_its_readers() {
    for is_open_when_confirmed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let config = DiskConfig::new(&folder.path().join("cache"), "node");
        let cache = DiskCache::new(config.clone(), Arc::default());
        let handle = cache.persist(name("services"), store(&["a"]), Confidentiality::Plain);
        cache.confirm_cluster("one".into()).await;
        cache.flush().await;
        drop((handle, cache));

        let is_writable = Arc::new(AtomicBool::new(false));
        let (open, writable) = (config.storage.clone(), is_writable.clone());
        let storage = Arc::new(move || match writable.load(Ordering::Relaxed) {
            true => open(),
            false => Err(std::io::ErrorKind::ReadOnlyFilesystem.into()),
        });
        let cache = DiskCache::new(DiskConfig { storage, ..config }, Arc::default());
        let restored = cache.restore(&name("services"), Confidentiality::Plain).await;
        assert!(restored.is_some(), "it is read");
        // It is read again once it may be written, or not even that.
        cache.flush().await;
        let mut changes = cache.cluster_watch().changes();
        if is_open_when_confirmed {
            is_writable.store(true, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        cache.confirm_cluster("two".into()).await;
        is_writable.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(600)).await;
        cache.flush().await;
        assert!(changes.has_changed().unwrap(), "open when the cluster is confirmed: {is_open_when_confirmed}");
        assert!(changes.borrow_and_update().on_disk > 0);
        cache.clone().other_cluster().await;
    }
}

#[test]
fn a_store_that_is_opened_again_between_two_commits_is_compared_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let first = store(&["a", "b"]);
    let mut state = open(folder.path());
    state.commit(&[plain("services", &first)], false);
    // The history of the new store is longer than the position that the first one had reached.
    let second = Arc::new(ResourceStore::new(format()));
    second.restore(state.load(&name("services"), Confidentiality::Plain).unwrap());
    for (name, version) in [("a", 10), ("b", 11), ("c", 12), ("d", 13), ("e", 14)] {
        put(&second, name, version);
    }
    state.commit(&[plain("services", &second)], false);
    drop(state);
    assert_eq!(model(&reread(folder.path(), "services").unwrap()), model(&second.snapshot()));
}
