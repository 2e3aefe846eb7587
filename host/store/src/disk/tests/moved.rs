//! The file is deleted or replaced while it is open: it is rewritten with all its content.

use std::time::Duration;

use super::*;
use crate::disk::reading::lock;
use crate::disk::values::{CachedValue, PendingValue};

/// A cache with a store in use, one that nobody uses now, and a value.
fn running(folder: &tempfile::TempDir) -> (DiskState, Arc<ResourceStore>) {
    let followed = store(&["a", "b"]);
    let mut state = open(folder.path());
    let expires = weir_upstream::clock::now() + Duration::from_secs(3600);
    let value = PendingValue { value: CachedValue { bytes: b"value".to_vec(), expires }, confidential: false };
    lock(&state.reading.writing).insert("document/x".into(), Some(value));
    state.commit(&[plain("services", &followed), plain("pods", &store(&["p"]))], false);
    (state, followed)
}

fn file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("cache/watch-cache.redb")
}

/// The next start has all of it.
fn assert_kept(folder: &tempfile::TempDir, followed: &ResourceStore) {
    let mut state = open(folder.path());
    let services = state.load(&name("services"), Confidentiality::Plain).expect("the store in use");
    assert_eq!(model(&services), model(&followed.snapshot()));
    assert!(state.load(&name("pods"), Confidentiality::Plain).is_some(), "what nobody uses now");
    assert_eq!(state.value("document/x").flatten().map(|value| value.bytes), Some(b"value".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_directory_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, followed) = running(&folder);
    for version in 10..12 {
        std::fs::remove_dir_all(folder.path().join("cache")).unwrap();
        put(&followed, "a", version);
        state.commit(&[plain("services", &followed)], false);
        assert_eq!(errors(&state, "moved"), version - 9);
        tokio::time::advance(Duration::from_secs(61)).await;
    }
    drop(state);
    assert_kept(&folder, &followed);
}

/// Also where there is nothing to commit.
#[test]
fn a_file_in_its_place_is_set_aside() {
    let make: [fn(&Path); 4] = [
        |file| std::fs::remove_file(file).unwrap(),
        |file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        |file| std::fs::rename(file, file.with_extension("away")).unwrap(),
        |file| {
            std::fs::copy(file, file.with_extension("copy")).unwrap();
            std::fs::rename(file.with_extension("copy"), file).unwrap();
        },
    ];
    for (n, make) in make.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, followed) = running(&folder);
        make(&file(&folder));
        state.commit(&[], false);
        assert_eq!(errors(&state, "moved"), 1, "{n}");
        state.commit(&[], false);
        assert_eq!(errors(&state, "moved"), 1, "{n}");
        let is_replaced = n == 1 || n == 3;
        assert_eq!(file(&folder).with_extension("redb.moved").exists(), is_replaced, "{n}");
        drop(state);
        assert_kept(&folder, &followed);
    }
}

/// The disk may be full: what is open goes on to be read and written, and it is tried again.
#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_rewritten_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, followed) = running(&folder);
    std::fs::rename(folder.path().join("cache"), folder.path().join("away")).unwrap();
    std::fs::write(folder.path().join("cache"), "in its way").unwrap();
    put(&followed, "a", 10);
    state.commit(&[plain("services", &followed)], false);
    assert!(state.value("document/x").flatten().is_some());
    std::fs::remove_file(folder.path().join("cache")).unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    state.commit(&[], false);
    drop(state);
    assert_kept(&folder, &followed);
}
