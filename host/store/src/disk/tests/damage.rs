//! Files that are damaged, of another node or release, locked, full or read-only.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::storage::MemoryStorage;
use super::*;

fn file(directory: &Path) -> PathBuf {
    directory.join("cache/watch-cache.redb")
}

/// A directory with two plain stores on disk, and what is in them.
fn filled() -> (tempfile::TempDir, [Model; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let stores = [3, 5].map(|seed| {
        let store = Arc::new(ResourceStore::new(format()));
        let objects = (1..6).map(|i| object(&format!("o{i}"), i, &noise(seed + i, 9000))).collect();
        store.replace(format(), objects, 5);
        store
    });
    open(folder.path()).commit(&[plain("services", &stores[0]), plain("pods", &stores[1])], false);
    let models = stores.map(|store| model(&store.snapshot()));
    (folder, models)
}

#[test]
fn a_flipped_bit_is_never_served_and_costs_at_most_the_store_that_it_hit() {
    let (folder, models) = filled();
    let whole = std::fs::read(file(folder.path())).unwrap();
    let (mut lost, mut cases) = (0, 0);
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(file(folder.path()), &bytes).unwrap();
        let mut state = open(folder.path());
        let read = ["services", "pods"].map(|resource| state.load(&name(resource), Confidentiality::Plain));
        for (read, model) in read.iter().zip(&models) {
            if let Some(read) = read {
                assert_eq!(super::model(read), *model, "byte {at}");
            }
        }
        cases += 1;
        lost += usize::from(read.iter().flatten().count() == 0);
        // The cache works on, whatever happened.
        let store = store(&["new"]);
        state.commit(&[plain("nodes", &store)], false);
        drop(state);
        assert_eq!(reread(folder.path(), "nodes").unwrap().version, 1, "byte {at}");
    }
    assert!(lost * 5 < cases, "both stores were lost in {lost} of {cases} cases");
}

#[test]
fn a_truncated_or_foreign_file_is_replaced() {
    let (folder, models) = filled();
    let whole = std::fs::read(file(folder.path())).unwrap();
    let mut cases: Vec<Vec<u8>> = (0..20).map(|part| whole[..whole.len() * part / 20].to_vec()).collect();
    cases.push(b"this is not a database".repeat(1000));
    cases.push(vec![0; 100_000]);
    for bytes in cases {
        std::fs::write(file(folder.path()), &bytes).unwrap();
        let mut state = open(folder.path());
        for (resource, model) in ["services", "pods"].iter().zip(&models) {
            if let Some(read) = state.load(&name(resource), Confidentiality::Plain) {
                assert_eq!(super::model(&read), *model);
            }
        }
        state.commit(&[plain("nodes", &store(&["new"]))], false);
        drop(state);
        assert!(reread(folder.path(), "nodes").is_some(), "{} bytes", bytes.len());
    }
}

#[test]
fn a_damaged_store_is_dropped_and_reported_alone() {
    let storage = MemoryStorage::new(Vec::new());
    let mut state = open_with(storage.config());
    state.commit(&[plain("services", &store(&["a"])), plain("pods", &store(&["b"]))], false);
    // Its segments are gone, but the file is in order.
    let id = *state.rows.iter().find(|(_, row)| row.name == name("pods")).unwrap().0;
    state.with_database(|_, database| database.write(|batch| batch.remove_segments(id)));
    drop(state);
    let mut state = open_with(storage.config());
    assert!(state.load(&name("pods"), Confidentiality::Plain).is_none());
    assert!(state.load(&name("services"), Confidentiality::Plain).is_some());
    assert_eq!(errors(&state, "damaged"), 1);
    assert_eq!(state.rows.len(), 1);
}

#[test]
fn damage_that_shows_while_writing_is_mended_from_memory() {
    let storage = MemoryStorage::new(Vec::new());
    let mut state = open_with(storage.config());
    let store = store(&["a"]);
    let requests = [plain("services", &store)];
    let filler = vec![b'x'; 300 << 10];
    for version in 2..6 {
        store.apply(vec![Delta::Put(object("big", version, &filler))]);
        state.commit(&requests, false);
        if version == 3 {
            let (id, first) = state.rows.iter().map(|(id, row)| (*id, row.segments.start)).next().unwrap();
            state.with_database(|_, database| database.write(|batch| batch.remove_segment(id, first)));
        }
    }
    assert_eq!(errors(&state, "damaged"), 1);
    drop(state);
    let read = open_with(storage.config()).load(&name("services"), Confidentiality::Plain).unwrap();
    assert_eq!(model(&read), model(&store.snapshot()));
}

#[test]
fn the_file_of_another_node_or_release_is_replaced() {
    let (folder, _) = filled();
    let directory = folder.path().join("cache");
    let mut state = open_with(DiskConfig::new(&directory, "other"));
    assert!(state.load(&name("services"), Confidentiality::Plain).is_none());
    assert_eq!(errors(&state, "node"), 1);
    state.commit(&[plain("services", &store(&["a"]))], false);
    state.with_database(|_, database| database.write(|batch| batch.put_meta("format", "2")));
    drop(state);
    let mut state = open_with(DiskConfig::new(&directory, "other"));
    assert!(state.load(&name("services"), Confidentiality::Plain).is_none());
    assert_eq!(errors(&state, "format"), 1);
}

#[test]
fn a_file_that_another_process_uses_is_left_alone() {
    let (folder, models) = filled();
    let mut first = open(folder.path());
    assert!(first.load(&name("services"), Confidentiality::Plain).is_some());
    let mut second = open(folder.path());
    assert!(second.load(&name("services"), Confidentiality::Plain).is_none());
    assert_eq!((errors(&second, "locked"), errors(&second, "damaged")), (1, 0));
    // Not even one that does not fit is set aside then.
    let config = DiskConfig { node_name: "other".to_owned(), ..second.config.clone() };
    let mut other = open_with(config);
    assert!(other.load(&name("services"), Confidentiality::Plain).is_none());
    assert_eq!((errors(&other, "locked"), errors(&other, "node")), (1, 0));
    drop((first, second, other));
    assert_eq!(model(&reread(folder.path(), "services").unwrap()), models[0]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_reported_once_and_tried_again() {
    let storage = MemoryStorage::new(Vec::new());
    let mut state = open_with(storage.config());
    let store = store(&["a"]);
    let requests = [plain("services", &store)];
    state.commit(&requests, false);
    let before = model(&store.snapshot());
    storage.capacity.store(storage.data.lock().unwrap().len() as u64, Ordering::Relaxed);
    let noise = noise(1, 4_000_000);
    store.apply(vec![Delta::Put(object("big", 5, &noise))]);
    let mut last = tokio::time::Instant::now();
    for attempt in 1..5 {
        let due = state.commit(&requests, false).expect("a later attempt");
        assert_eq!(errors(&state, "full"), attempt);
        state.commit(&requests, false);
        assert_eq!(errors(&state, "full"), attempt, "not before it is due");
        assert!(due - last >= std::time::Duration::from_secs(1 << (attempt - 1)), "each delay is longer");
        last = due;
        tokio::time::sleep_until(due).await;
    }
    // Earlier commits are still there.
    let copy = MemoryStorage::new(storage.data.lock().unwrap().clone());
    let read = open_with(copy.config()).load(&name("services"), Confidentiality::Plain).unwrap();
    assert_eq!(model(&read), before);
    storage.capacity.store(u64::MAX, Ordering::Relaxed);
    state.commit(&requests, false);
    drop(state);
    let read = open_with(storage.config()).load(&name("services"), Confidentiality::Plain).unwrap();
    assert_eq!(model(&read), model(&store.snapshot()));
}

#[test]
fn a_directory_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    // A file in the place of the directory: root writes to read-only directories.
    std::fs::write(folder.path().join("cache"), "").unwrap();
    let mut state = open(folder.path());
    assert!(state.commit(&[plain("services", &store(&["a"]))], false).is_some(), "it is tried again");
    assert_eq!(errors(&state, "io"), 1);
}

#[test]
fn a_read_only_disk_is_reported_and_left_alone() {
    let mut config = MemoryStorage::new(Vec::new()).config();
    config.storage = Arc::new(|| Err(std::io::ErrorKind::ReadOnlyFilesystem.into()));
    let mut state = open_with(config);
    assert!(state.load(&name("services"), Confidentiality::Plain).is_none());
    assert!(state.commit(&[plain("services", &store(&["a"]))], false).is_some(), "it is tried again");
    assert_eq!((errors(&state, "read_only"), errors(&state, "damaged")), (1, 0));
}

#[test]
fn only_this_user_can_read_the_file() {
    let (folder, _) = filled();
    assert_eq!(std::fs::metadata(file(folder.path())).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn encrypted_stores_need_their_key_and_plain_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = store(&["secret-one"]);
    let both = [request("secrets", &secrets, Confidentiality::Encrypted), plain("services", &store(&["a"]))];
    open(folder.path()).commit(&both, false);
    let bytes = std::fs::read(file(folder.path())).unwrap();
    assert!(!bytes.windows(10).any(|window| window == b"secret-one"));
    let read = |resource, confidentiality| open(folder.path()).load(&name(resource), confidentiality);
    assert_eq!(model(&read("secrets", Confidentiality::Encrypted).unwrap()), model(&secrets.snapshot()));
    let key = folder.path().join("cache.key");
    std::fs::remove_file(&key).unwrap();
    let mut state = open(folder.path());
    assert!(state.load(&name("secrets"), Confidentiality::Encrypted).is_none(), "a new key does not open it");
    assert!(state.load(&name("services"), Confidentiality::Plain).is_some());
    assert_eq!(errors(&state, "key"), 1);
    // The store is written again with the new key.
    state.commit(&both, false);
    drop(state);
    assert!(read("secrets", Confidentiality::Encrypted).is_some());
    // A key that other users can read is refused, and nothing is written in the clear.
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let mut state = open(folder.path());
    put(&secrets, "secret-two", 9);
    state.commit(&both, false);
    assert!(errors(&state, "key") > 0 && state.rows.len() == 2);
    drop(state);
    assert!(read("services", Confidentiality::Plain).is_some());
}
