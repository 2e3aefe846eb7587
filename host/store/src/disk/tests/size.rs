//! What a commit writes, how large the file is, and how long a restore takes beside parsing.

use std::time::Instant;

use super::*;

/// A Service of some 1,500 bytes that compresses as Services do.
fn service(number: u64, version: u64) -> Object {
    let uid = format!(
        "{:016x}{:016x}",
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        version.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    );
    let text = format!(
        r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"service-{number}","namespace":"default","uid":"{uid}","resourceVersion":"{version}","labels":{{"app":"app-{number}","tier":"{}"}},"annotations":{{"example.com/note":"{uid}{uid}{uid}"}}}},"spec":{{"clusterIP":"10.{}.{}.{}","ports":[{{"port":80}}]}},"fill":"{}"}}"#,
        number % 7,
        number % 251,
        version % 251,
        number % 13,
        "value ".repeat(180)
    );
    object(&format!("service-{number}"), version, text.as_bytes())
}

fn services(count: u64) -> Arc<ResourceStore> {
    let store = Arc::new(ResourceStore::new(format()));
    store.replace(format(), (1..=count).map(|number| service(number, number)).collect(), count);
    store
}

#[test]
fn ten_thousand_objects_are_restored_in_about_the_time_that_parsing_them_takes() {
    let folder = tempfile::tempdir().unwrap();
    let store = services(10_000);
    open(folder.path()).commit(&[plain("services", &store)], false);
    let started = Instant::now();
    let read = reread(folder.path(), "services").unwrap();
    let elapsed = started.elapsed();
    println!("restored {} objects in {elapsed:?}", read.objects.size());
    assert_eq!(read.objects.size(), 10_000);
    let started = Instant::now();
    let parsed =
        read.objects.values().filter(|object| serde_json::from_slice::<serde_json::Value>(&object.bytes).is_ok());
    assert_eq!(parsed.count(), 10_000);
    let baseline = started.elapsed();
    println!("parsed them in {baseline:?}");
    assert!(elapsed < baseline * 3, "{elapsed:?}, and {baseline:?} to parse them");
}

/// The bytes that this process has caused to be written to devices.
fn device_writes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// Commits `commits` batches of changes. Returns the changed bytes, the written bytes and the size of the file.
fn churn(confidentiality: Confidentiality, commits: u64, changes: u64, pick: impl Fn(u64) -> u64) -> (u64, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = services(2000);
    let requests = [request("services", &store, confidentiality)];
    let mut state = open(folder.path());
    state.commit(&requests, false);
    let (before, mut changed) = (state.metrics.written(), 0);
    let (device, started) = (device_writes(), Instant::now());
    let mut version = store.snapshot().version;
    for _ in 0..commits {
        for _ in 0..changes {
            version += 1;
            let object = service(pick(version), version);
            changed += object.bytes.len() as u64;
            store.apply(vec![Delta::Put(object)]);
        }
        state.commit(&requests, false);
    }
    let written = state.metrics.written() - before;
    // Exact only if no other test runs.
    println!("{} bytes to the device, {:?} a commit", device_writes() - device, started.elapsed() / commits as u32);
    let size = state.with_database(|_, database| Ok(database.file_len())).unwrap();
    drop(state);
    let read = open(folder.path()).load(&name("services"), confidentiality).unwrap();
    assert_eq!(model(&read), model(&store.snapshot()));
    (changed, written, size)
}

#[test]
fn a_commit_writes_at_most_twice_the_changed_bytes_and_64_kib() {
    type Pick = fn(u64) -> u64;
    let spread: Pick = |version| 1 + version.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2000;
    let few: Pick = |version| 1 + version.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20;
    for (title, confidentiality, commits, changes, pick) in [
        ("one change a commit", Confidentiality::Plain, 300, 1, spread),
        ("many changes, spread", Confidentiality::Plain, 60, 250, spread),
        ("many changes of few objects", Confidentiality::Plain, 60, 250, few),
        ("encrypted, spread", Confidentiality::Encrypted, 60, 250, spread),
        ("encrypted, few objects", Confidentiality::Encrypted, 60, 250, few),
    ] {
        let (changed, written, size) = churn(confidentiality, commits, changes, pick);
        let overhead = (written as f64 - changed as f64) / commits as f64 / 1024.0;
        println!(
            "{title}: {commits} commits, {changed} bytes changed, {written} written ({:.2} times; {overhead:.1} KiB a commit beyond), file {size}",
            written as f64 / changed as f64
        );
        assert!(written <= 2 * changed + commits * (64 << 10), "{title}");
    }
}
