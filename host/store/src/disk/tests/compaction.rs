//! Free pages go back to the file system, and nobody waits for that.

use super::*;
use crate::disk::copying::compacted;
use crate::disk::database::Database;
use crate::disk::storage::OpenedStorage;

/// A file of more than 16 MiB, most of which is free.
fn with_free_pages(folder: &tempfile::TempDir) -> (Arc<ResourceStore>, u64) {
    let large = store(&[]);
    // What compresses would be small on disk.
    let mut seed = 0;
    let mut noise = || {
        seed += 1;
        random(seed).to_le_bytes()
    };
    for number in 0..24 {
        let bytes: Vec<u8> = (0..(1 << 17)).flat_map(|_| noise()).collect();
        large.apply(vec![Delta::Put(object(&format!("large-{number}"), number + 1, &bytes))]);
    }
    let mut state = open(folder.path());
    state.commit(&[plain("services", &large)], false);
    let size = state.with_database(|_, database| Ok(database.file_len())).unwrap();
    large.apply((0..23).map(|n| Delta::Remove(StoreKey::new("default", &format!("large-{n}")), 100 + n)).collect());
    (large, size)
}

#[test]
fn free_pages_go_back_and_the_content_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, before) = with_free_pages(&folder);
    assert!(before > 24 << 20, "{before}");
    let mut state = open(folder.path());
    // The segments of before are rewritten, then their pages are free.
    for n in 0..4 {
        put(&kept, "small", 200 + n);
        state.commit(&[plain("services", &kept)], false);
    }
    let after = state.with_database(|_, database| Ok(database.file_len())).unwrap();
    assert!(after < before * 3 / 4, "{before} bytes before, {after} now");
    put(&kept, "small", 300);
    state.commit(&[plain("services", &kept)], false);
    drop(state);
    assert_eq!(model(&reread(folder.path(), "services").unwrap()), model(&kept.snapshot()));
    let files = std::fs::read_dir(folder.path().join("cache")).unwrap().count();
    assert_eq!(files, 1, "the second file has taken the place of the first one");
}

#[test]
fn the_old_file_is_read_while_the_new_one_is_written_and_stays_where_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let services = store(&["a", "b"]);
    let config = DiskConfig::new(&folder.path().join("cache"), "node");
    open_with(config.clone()).commit(&[plain("services", &services)], false);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&config.path).unwrap();
    let database = Database::open(OpenedStorage::in_file(file).unwrap(), Arc::default(), true).unwrap();
    let rows = database.stores().unwrap();
    // There is no place for a second file.
    let second = folder.path().join("cache/watch-cache.redb.new");
    std::fs::create_dir(&second).unwrap();
    assert!(compacted(&config, &Arc::default(), &database).is_err());
    std::fs::remove_dir(&second).unwrap();
    assert_eq!(database.stores().unwrap(), rows);
    let new = compacted(&config, &Arc::default(), &database).unwrap();
    assert_eq!(new.stores().unwrap(), rows);
    assert_eq!(database.stores().unwrap(), rows, "who reads it goes on");
    assert!(database.is_moved_from(&config.path) && !new.is_moved_from(&config.path));
}
