//! No read waits for a write, nor for what else a file has.

#![expect(clippy::disallowed_methods, reason = "tests that join a task that hangs")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::storage::{Gate, MemoryStorage};
use super::*;
use crate::disk::reading::{Reading, lock};
use crate::disk::{CachedValue, DiskCache, PersistHandle};

fn value(text: &str) -> CachedValue {
    CachedValue { bytes: text.into(), expires: weir_upstream::clock::now() + Duration::from_secs(3600) }
}

async fn text(cache: &Arc<DiskCache>, name: &str) -> Option<String> {
    cache.get(name).await.map(|value| String::from_utf8(value.bytes).unwrap())
}

async fn services(cache: &Arc<DiskCache>) -> Option<Model> {
    cache.restore(&name("services"), Confidentiality::Plain).await.map(|snapshot| model(&snapshot))
}

/// A cache with a store and a value.
async fn filled(storage: &Arc<MemoryStorage>) -> (Arc<DiskCache>, PersistHandle, Arc<ResourceStore>) {
    let cache = DiskCache::new(storage.config(), Arc::default());
    cache.cluster_unreachable();
    let followed = store(&["a", "b"]);
    let handle = cache.persist(name("services"), followed.clone(), Confidentiality::Plain);
    cache.put("document/x", value("one"), false).await;
    cache.put("document/y", value("one"), false).await;
    cache.flush().await;
    (cache, handle, followed)
}

/// No file is opened to be written before the gate opens.
fn without_writes(mut config: DiskConfig) -> (DiskConfig, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    gate.shut(true);
    let (opens, passes) = (config.storage.clone(), gate.clone());
    config.storage = Arc::new(move || {
        passes.pass();
        opens()
    });
    (config, gate)
}

/// A cache that runs, and has come to the gate.
async fn opening(config: DiskConfig, gate: &Arc<Gate>) -> (Arc<DiskCache>, tokio::task::JoinHandle<()>) {
    let cache = DiskCache::new(config, Arc::default());
    cache.cluster_unreachable();
    let running = tokio::spawn(cache.clone().run());
    let reached = gate.clone();
    tokio::task::spawn_blocking(move || reached.reached()).await.unwrap();
    (cache, running)
}

#[tokio::test]
async fn reads_are_answered_while_a_commit_hangs() {
    let storage = MemoryStorage::new(Vec::new());
    let (cache, handle, followed) = filled(&storage).await;
    let before = model(&followed.snapshot());
    storage.sync.shut(true);
    put(&followed, "a", 10);
    cache.put("document/x", value("two"), false).await;
    cache.remove("document/y").await;
    let hanging = tokio::spawn({
        let cache = cache.clone();
        async move { cache.flush().await }
    });
    let reached = storage.clone();
    tokio::task::spawn_blocking(move || reached.sync.reached()).await.unwrap();
    assert_eq!(services(&cache).await, Some(before), "as of the last commit");
    assert_eq!(text(&cache, "document/x").await.as_deref(), Some("two"), "what is being written");
    assert_eq!(text(&cache, "document/y").await, None, "what is being removed");
    assert_eq!(text(&cache, "document/z").await, None, "what is not there");
    cache.put("document/y", value("three"), false).await;
    assert_eq!(text(&cache, "document/y").await.as_deref(), Some("three"), "what waits");
    drop(handle);
    assert!(lock(&cache.reading.restored).is_empty(), "nothing is held for a store that is closed");
    assert!(!hanging.is_finished());
    storage.sync.shut(false);
    hanging.await.unwrap();
    cache.close().await;
    // Another process.
    let cache = DiskCache::new(storage.config(), Arc::default());
    cache.cluster_unreachable();
    assert_eq!(services(&cache).await, Some(model(&followed.snapshot())));
    assert_eq!(text(&cache, "document/x").await.as_deref(), Some("two"));
}

/// After a stop, and after a kill; while the file is verified, and while it is verified but nothing can be written.
#[tokio::test]
async fn a_start_reads_before_all_is_verified_or_anything_is_written() {
    for (is_killed, is_verified) in [(false, false), (true, false), (false, true), (true, true)] {
        let storage = MemoryStorage::new(Vec::new());
        let (cache, handle, followed) = filled(&storage).await;
        if !is_killed {
            cache.close().await;
        }
        let kept = MemoryStorage::new(storage.data.lock().unwrap().clone());
        drop(handle);
        let gate = Arc::new(Gate::default());
        gate.shut(true);
        let mut config = kept.config();
        let gated = if is_verified { &mut config.storage } else { &mut config.readable };
        let (opens, passes, first) = (gated.clone(), gate.clone(), AtomicBool::new(true));
        *gated = Arc::new(move || {
            if first.swap(false, Ordering::Relaxed) {
                passes.pass();
            }
            opens()
        });
        let (cache, running) = opening(config, &gate).await;
        assert_eq!(services(&cache).await, Some(model(&followed.snapshot())), "{is_killed} {is_verified}");
        assert_eq!(text(&cache, "document/x").await.as_deref(), Some("one"));
        let missing = tokio::spawn({
            let cache = cache.clone();
            async move { text(&cache, "document/z").await }
        });
        if is_verified {
            assert!(cache.restore(&name("pods"), Confidentiality::Plain).await.is_none());
        } else {
            // A missing value waits: the file may have to be repaired.
            gate.shut(false);
        }
        assert_eq!(missing.await.unwrap(), None);
        // It goes on from what was read.
        let restored = Arc::new(ResourceStore::new(format()));
        restored.restore(cache.restore(&name("services"), Confidentiality::Plain).await.unwrap());
        let _handle = cache.persist(name("services"), restored, Confidentiality::Plain);
        gate.shut(false);
        cache.flush().await;
        assert_eq!(services(&cache).await, Some(model(&followed.snapshot())));
        running.abort();
    }
}

/// Nothing is there, and nothing can be written: that is known at once.
#[tokio::test]
async fn a_first_start_does_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (config, gate) = without_writes(DiskConfig::new(&folder.path().join("cache"), "node"));
    let (cache, running) = opening(config, &gate).await;
    assert!(services(&cache).await.is_none() && text(&cache, "document/x").await.is_none());
    gate.shut(false);
    running.abort();
}

/// The file is another node's, and one that was set aside fits: it is read before it is in its place.
#[tokio::test]
async fn a_file_that_was_set_aside_is_read_while_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let config = |node: &str| DiskConfig::new(&folder.path().join("cache"), node);
    let followed = store(&["a", "b"]);
    for node in ["node", "other"] {
        let cache = DiskCache::new(config(node), Arc::default());
        cache.cluster_unreachable();
        let _handle = cache.persist(name("services"), followed.clone(), Confidentiality::Plain);
        cache.put("document/x", value(node), false).await;
        cache.flush().await;
        cache.close().await;
    }
    for node in ["node", "other", "third"] {
        let (config, gate) = without_writes(config(node));
        let (cache, running) = opening(config, &gate).await;
        let known = node != "third";
        assert_eq!(services(&cache).await, known.then(|| model(&followed.snapshot())), "{node}");
        assert_eq!(text(&cache, "document/x").await.as_deref(), known.then_some(node));
        gate.shut(false);
        cache.flush().await;
        assert_eq!(text(&cache, "document/x").await.as_deref(), known.then_some(node));
        running.abort();
        cache.close().await;
    }
}

/// Twenty that read and twenty that write: two threads wait for the disk, and the third is free for others.
#[test]
fn a_disk_that_hangs_parks_one_thread_that_reads_and_one_that_writes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(3).build().unwrap();
    runtime.block_on(async {
        let storage = MemoryStorage::new(Vec::new());
        let (cache, _handle, _) = filled(&storage).await;
        cache.close().await;
        let gate = Arc::new(Gate::default());
        gate.shut(true);
        let mut config = storage.config();
        for opens in [&mut config.storage, &mut config.readable] {
            let (inner, passes) = (opens.clone(), gate.clone());
            *opens = Arc::new(move || {
                passes.pass();
                inner()
            });
        }
        let cache = DiskCache::new(config, Arc::default());
        cache.cluster_unreachable();
        let waiting: Vec<_> = (0..20)
            .map(|n| {
                let cache = cache.clone();
                tokio::spawn(async move {
                    cache.put(&format!("document/{n}"), value("new"), false).await;
                    cache.flush().await;
                    text(&cache, "document/x").await
                })
            })
            .chain((0..20).map(|_| {
                let cache = cache.clone();
                tokio::spawn(async move { text(&cache, "document/x").await })
            }))
            .collect();
        let reached = gate.clone();
        tokio::task::spawn_blocking(move || reached.reached()).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let other = tokio::time::timeout(Duration::from_secs(10), tokio::task::spawn_blocking(|| ())).await;
        assert!(other.is_ok(), "no thread is left");
        assert!(waiting.iter().all(|task| !task.is_finished()));
        gate.shut(false);
        for task in waiting {
            assert_eq!(task.await.unwrap().as_deref(), Some("one"));
        }
    });
}

#[tokio::test]
async fn nothing_of_another_node_or_cluster_is_read() {
    let storage = MemoryStorage::new(Vec::new());
    let (cache, _handle, _) = filled(&storage).await;
    cache.confirm_cluster("one".into()).await;
    cache.close().await;
    let load = |config: DiskConfig, cluster: Option<&str>| {
        let reading = Reading::new(config);
        cluster.iter().for_each(|cluster| {
            let _ = reading.confirm_cluster(cluster);
        });
        (
            reading.load(&name("services"), Confidentiality::Plain).flatten().is_some(),
            reading.value("document/x").flatten().is_some(),
        )
    };
    for (node, cluster, is_read) in
        [("node", None, true), ("node", Some("one"), true), ("node", Some("two"), false), ("other", None, false)]
    {
        let config = DiskConfig { node_name: node.into(), ..storage.config() };
        assert_eq!(load(config, cluster), (is_read, is_read), "{node} {cluster:?}");
    }
}

#[test]
fn a_flipped_bit_is_never_read_before_the_file_is_verified() {
    let storage = MemoryStorage::new(Vec::new());
    let mut state = open_with(storage.config());
    let objects = (0..200).map(|n| object(&format!("s{n}"), n + 1, &noise(n, 300)));
    let kept = Arc::new(ResourceStore::new(format()));
    kept.replace(format(), objects.collect(), 200);
    state.commit(&[plain("services", &kept)], false);
    let (kept, whole) = (model(&kept.snapshot()), storage.data.lock().unwrap().clone());
    let (mut read, cases) = (0, 400);
    for case in 0..cases {
        let mut bytes = whole.clone();
        let at = usize::try_from(random(case)).unwrap_or(0) % bytes.len();
        bytes[at] ^= 1 << (case % 8);
        let reading = Reading::new(MemoryStorage::new(bytes).config());
        if let Some(Some(snapshot)) = reading.load(&name("services"), Confidentiality::Plain) {
            assert_eq!(model(&snapshot), kept, "byte {at}");
            read += 1;
        }
    }
    assert!(read > cases / 2 && read < cases, "{read}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_hangs_for_a_minute_makes_the_disk_slow_and_a_quick_one_ends_that() {
    let storage = MemoryStorage::new(Vec::new());
    let (cache, _handle, followed) = filled(&storage).await;
    let is_slow = || cache.conditions().iter().any(|condition| condition.name == "slow-disk");
    storage.sync.shut(true);
    put(&followed, "a", 10);
    let hanging = tokio::spawn({
        let cache = cache.clone();
        async move { cache.flush().await }
    });
    let reached = storage.clone();
    tokio::task::spawn_blocking(move || reached.sync.reached()).await.unwrap();
    assert!(!is_slow());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(is_slow(), "while the thread that commits still waits");
    storage.sync.shut(false);
    hanging.await.unwrap();
    assert!(is_slow(), "nothing was quicker since");
    put(&followed, "a", 11);
    cache.flush().await;
    assert!(!is_slow());
}
