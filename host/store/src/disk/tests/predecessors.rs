//! Upgrades and roll-backs between forms of the file, also without an API server: each release finds what it has left, and what
//! the other one has kept meanwhile.

use std::io;
use std::path::PathBuf;

use super::*;
use crate::disk::config::Form;
use crate::disk::{CachedValue, DiskCache};

const OLD: Form = Form { format: "1", file: "watch-cache.redb" };
const NEW: Form = Form { format: "2", file: "watch-cache-2.redb" };
const VALUE: &str = "configuration/kube-system/weir-filters";

fn config(folder: &tempfile::TempDir, forms: &'static [Form]) -> DiskConfig {
    DiskConfig::with_forms(&folder.path().join("cache"), "edge-a", forms)
}

fn old(folder: &tempfile::TempDir) -> DiskConfig {
    config(folder, &[OLD])
}

fn new(folder: &tempfile::TempDir) -> DiskConfig {
    config(folder, &[NEW, OLD])
}

fn file(folder: &tempfile::TempDir, form: Form) -> PathBuf {
    folder.path().join("cache").join(form.file)
}

/// A process that keeps these services, a secret and a value, and ends.
async fn keep(config: DiskConfig, services: &Arc<ResourceStore>, value: Option<&str>) {
    let cache = DiskCache::new(config, Arc::default());
    let _plain = cache.persist(name("services"), services.clone(), Confidentiality::Plain);
    let _sealed = cache.persist(name("secrets"), store(&["s"]), Confidentiality::Encrypted);
    if let Some(value) = value {
        cache.put(VALUE, CachedValue::lasting(value.as_bytes().to_vec()), false).await;
    }
    cache.confirm_cluster("uid".to_owned()).await;
    cache.close().await;
}

/// What a process without an API server reads: the services, the secrets, the value and the cluster.
async fn read(cache: &Arc<DiskCache>) -> (Option<Model>, usize, Option<String>, Option<String>) {
    let services = cache.restore(&name("services"), Confidentiality::Plain).await;
    let secrets = cache.restore(&name("secrets"), Confidentiality::Encrypted).await;
    let value = cache.get(VALUE).await.map(|value| String::from_utf8(value.bytes).unwrap());
    (services.map(|found| model(&found)), secrets.map_or(0, |found| model(&found).len()), value, cache.cluster().await)
}

/// The same by a process that has written, and ends.
async fn start(config: DiskConfig) -> (Option<Model>, usize, Option<String>, Option<String>) {
    let cache = DiskCache::new(config, Arc::default());
    cache.flush().await;
    let found = read(&cache).await;
    cache.close().await;
    found
}

#[tokio::test]
async fn each_release_finds_its_own_file_and_what_the_other_one_has_kept() {
    let folder = tempfile::tempdir().unwrap();
    let services = store(&["a", "b"]);
    keep(old(&folder), &services, Some("{}")).await;
    let before = std::fs::read(file(&folder, OLD)).unwrap();
    let kept = (Some(model(&services.snapshot())), 1, Some("{}".to_owned()), Some("uid".to_owned()));

    // Up: at once, and from its own file. The older one stays as it is.
    let beside = DiskCache::new(new(&folder), Arc::default());
    assert_eq!(read(&beside).await, kept, "before anything is written");
    beside.close().await;
    assert_eq!(start(new(&folder)).await, kept);
    assert_eq!(start(new(&folder)).await, kept, "again");
    assert!(std::fs::read(file(&folder, OLD)).unwrap() == before, "the older file stays untouched");

    // The newer release goes on; the older one has what it had.
    put(&services, "a", 7);
    keep(new(&folder), &services, Some("newer")).await;
    let newer = (Some(model(&services.snapshot())), 1, Some("newer".to_owned()), Some("uid".to_owned()));
    assert_eq!(start(old(&folder)).await, kept, "down");
    assert_eq!(start(new(&folder)).await, newer, "and up again: what it had is newer");

    // The older one has seen more meanwhile.
    put(&services, "b", 9);
    keep(old(&folder), &services, Some("later")).await;
    let (found, secrets, value, _) = start(new(&folder)).await;
    assert_eq!((found, secrets), (Some(model(&services.snapshot())), 1));
    assert_eq!(value.as_deref(), Some("newer"), "values have no version, and what was removed must not come back");
}

#[tokio::test]
async fn what_an_older_form_has_is_read_before_it_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let services = store(&["a", "b"]);
    keep(old(&folder), &services, Some("{}")).await;
    for error in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::StorageFull] {
        let mut config = new(&folder);
        config.storage = Arc::new(move || Err(error.into()));
        let cache = DiskCache::new(config, Arc::default());
        let kept = (Some(model(&services.snapshot())), 1, Some("{}".to_owned()), Some("uid".to_owned()));
        assert_eq!(read(&cache).await, kept, "before the file is opened: {error}");
        cache.flush().await;
        assert_eq!(read(&cache).await, kept, "after it could not be: {error}");
        cache.close().await;
    }
    assert!(!file(&folder, NEW).exists());
}

#[tokio::test]
async fn an_interrupted_take_over_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let services = store(&["a"]);
    keep(old(&folder), &services, Some("{}")).await;
    // The process was killed before the first store and value were copied.
    let database = DiskCache::new(config(&folder, &[NEW]), Arc::default());
    database.flush().await;
    database.close().await;
    let opened = crate::disk::database::Database::open(
        crate::disk::storage::OpenedStorage::in_file(
            std::fs::OpenOptions::new().read(true).write(true).open(file(&folder, NEW)).unwrap(),
        )
        .unwrap(),
        Arc::default(),
        true,
    )
    .unwrap();
    let place = format!("taken/{}", file(&folder, OLD).display());
    opened.write(|batch| batch.put_meta(&place, "begun").and_then(|()| batch.put_value("other", b"x"))).unwrap();
    opened.close();
    let (found, secrets, value, cluster) = start(new(&folder)).await;
    assert_eq!((found, secrets), (Some(model(&services.snapshot())), 1));
    assert_eq!((value.as_deref(), cluster.as_deref()), (Some("{}"), Some("uid")));
}

#[tokio::test]
async fn nothing_is_taken_over_from_another_node_or_another_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let services = store(&["a"]);
    keep(old(&folder), &services, Some("{}")).await;
    let before = std::fs::read(file(&folder, OLD)).unwrap();
    let other = DiskConfig::with_forms(&folder.path().join("cache"), "edge-b", &[NEW, OLD]);
    assert_eq!(start(other).await, (None, 0, None, None));
    std::fs::remove_file(file(&folder, NEW)).unwrap();

    let cache = DiskCache::new(new(&folder), Arc::default());
    cache.confirm_cluster("another".to_owned()).await;
    assert_eq!(read(&cache).await, (None, 0, None, Some("another".to_owned())));
    cache.close().await;
    assert!(std::fs::read(file(&folder, OLD)).unwrap() == before);
}

#[tokio::test]
async fn the_former_directory_is_read_again_after_a_roll_back() {
    let folder = tempfile::tempdir().unwrap();
    let former = || DiskConfig::new(&folder.path().join("former"), "edge-a").with_key_dir(Some(folder.path()));
    let present = || DiskConfig {
        former: Some(folder.path().join("former")),
        ..DiskConfig::new(&folder.path().join("cache"), "edge-a").with_key_file(Some(folder.path().join("former.key")))
    };
    let services = store(&["a", "b"]);
    keep(former(), &services, Some("{}")).await;
    let kept = (Some(model(&services.snapshot())), 1, Some("{}".to_owned()), Some("uid".to_owned()));
    assert_eq!(start(present()).await, kept);
    put(&services, "a", 7);
    keep(former(), &services, None).await;
    let beside = DiskCache::new(present(), Arc::default());
    assert_eq!(read(&beside).await.0, Some(model(&services.snapshot())), "before it is taken over");
    beside.close().await;
    assert_eq!(start(present()).await.0, Some(model(&services.snapshot())));
}
