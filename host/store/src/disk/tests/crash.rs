//! Crashes: a process that is killed, and a power cut between any two writes.
//!
//! Object changes are a function of the resourceVersion, so that the state at each version is known.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::storage::{MemoryStorage, StorageOperation, apply};
use super::*;

/// How often the child is killed.
const KILLS: &str = "WEIR_TEST_KILLS";
/// Names the directory in which the child writes.
const DIRECTORY: &str = "WEIR_TEST_CRASH_DIRECTORY";

/// The change at a version. It is a deletion now and then, if there is something to delete.
fn change(version: u64, model: &mut Model) -> Delta {
    let choice = random(version);
    let key = StoreKey::new("default", &format!("object-{}", choice % 40));
    if choice.is_multiple_of(5) && model.remove(&key).is_some() {
        return Delta::Remove(key, version);
    }
    let bytes: Bytes = (0..(choice >> 8) % 9000).map(|at| random(version ^ (at << 32)).to_le_bytes()[0]).collect();
    model.insert(key.clone(), (version, bytes.clone()));
    Delta::Put(Object { key, version, bytes })
}

fn model_at(version: u64) -> Model {
    let mut model = Model::new();
    for version in 1..=version {
        change(version, &mut model);
    }
    model
}

/// Applies the next changes and commits them.
fn step(state: &mut DiskState, store: &Arc<ResourceStore>, model: &mut Model, changes: u64) {
    let version = store.snapshot().version;
    store.apply((version + 1..=version + changes).map(|version| change(version, model)).collect());
    state.commit(&[plain("services", store)], true);
}

#[test]
fn a_power_cut_between_any_two_writes_leaves_a_committed_state() {
    let storage = MemoryStorage::new(Vec::new());
    let mut state = open_with(storage.config());
    let store = store(&[]);
    let mut model = Model::new();
    // The committed versions, and the length of the log when each commit had completed.
    let mut commits = vec![(0, 0)];
    for commit in 0..60 {
        step(&mut state, &store, &mut model, 1 + random(commit) % 8);
        commits.push((store.snapshot().version, storage.log.lock().unwrap().len()));
    }
    let log = std::mem::take(&mut *storage.log.lock().unwrap());
    let (mut image, mut synced) = (Vec::new(), 0);
    for crash in 0..log.len() {
        if matches!(log[crash], StorageOperation::Sync) {
            log[synced..crash].iter().for_each(|operation| apply(&mut image, operation));
            synced = crash;
        }
        if !random(crash as u64).is_multiple_of(3) {
            continue;
        }
        // Each write since the last sync has reached the disk, or has not, or in part.
        let mut torn = image.clone();
        for (at, operation) in log[synced..crash].iter().enumerate() {
            match (random((crash * 1000 + at) as u64) % 4, operation) {
                (0, _) => {}
                (1, StorageOperation::Write(offset, bytes)) => {
                    let part = bytes.len() / 2 / 512 * 512;
                    apply(&mut torn, &StorageOperation::Write(*offset, bytes[..part].to_vec()));
                }
                _ => apply(&mut torn, operation),
            }
        }
        let mut state = open_with(MemoryStorage::new(torn).config());
        let read = state.load(&name("services"), Confidentiality::Plain);
        let version = read.as_ref().map_or(0, |read| read.version);
        let completed = commits.iter().filter(|(_, end)| *end <= crash).map(|(version, _)| *version).max().unwrap();
        assert!(version >= completed, "crash at {crash}: {version} is older than {completed}");
        assert!(commits.iter().any(|(committed, _)| *committed == version), "{version} was never committed");
        assert_eq!(read.map(|read| super::model(&read)).unwrap_or_default(), model_at(version), "crash at {crash}");
    }
}

/// Writes until it is killed. Does nothing in a normal test run.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let mut state = open(Path::new(&directory));
    let store = store(&[]);
    if let Some(snapshot) = state.load(&name("services"), Confidentiality::Plain) {
        store.restore(snapshot);
    }
    let mut model = model(&store.snapshot());
    println!("started");
    loop {
        let changes = 1 + random(store.snapshot().version) % 8;
        step(&mut state, &store, &mut model, changes);
        println!("committed {}", store.snapshot().version);
    }
}

#[test]
fn a_killed_process_leaves_a_committed_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut newest = 0;
    let kills = std::env::var(KILLS).map_or(25, |kills| kills.parse().unwrap());
    for cycle in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "disk::tests::crash::child", "--nocapture"])
            .env(DIRECTORY, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The kill arrives while the child works on the next commits.
        for line in lines.by_ref().skip_while(|line| !line.contains("started")).take(2 + cycle % 7) {
            newest = line.strip_prefix("committed ").map_or(newest, |version| version.parse().unwrap());
        }
        child.kill().unwrap();
        for line in lines {
            newest = line.strip_prefix("committed ").and_then(|version| version.parse().ok()).unwrap_or(newest);
        }
        child.wait().unwrap();
        let read = reread(folder.path(), "services").unwrap();
        assert!(read.version >= newest, "{} is older than {newest}", read.version);
        assert_eq!(model(&read), model_at(read.version));
    }
}
