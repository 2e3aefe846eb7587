//! Reload from files as the field changes them: slowly, behind links, in folders that come and go, beside busy neighbours. A change
//! is in force within a second of its last operation, and half a file never is.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_spec::{Digest, MAX_MODULE};
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup, manifest, replace};
use weir_tests::guests::{hostile, variant};
use weir_tests::hanging_folder::HangingFolder;
use weir_tests::plane::skipped;
use weir_tests::until;

use super::edge;

/// How soon a change is in force.
const SOON: Duration = Duration::from_secs(1);
/// The delay of a change without an inotify event: two scans.
const SCANNED: Duration = Duration::from_secs(10);
/// Two filters of one module each.
const BOTH: [&str; 2] = ["one", "two"];

/// Modules of nobody's objects, with different bytes.
fn module(number: u8) -> Vec<u8> {
    variant(&hostile("edits-image"), number)
}

/// A configuration of these filters.
fn filters(names: &[&str]) -> String {
    let entries =
        names.iter().map(|name| format!("  - name: {name}\n    module: {name}.wasm\n    match: ['x/services']\n"));
    format!("filters:\n{}", entries.collect::<String>())
}

fn write_modules(folder: &Path, number: u8) {
    fs::create_dir_all(folder).unwrap();
    for name in BOTH {
        fs::write(folder.join(format!("{name}.wasm")), module(number)).unwrap();
    }
}

/// The names and digests of the filters in force.
async fn in_force(weir: &Daemon) -> Vec<(String, String)> {
    let shown = weir.admin().json("/filters").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let live = shown["filters"].as_array().unwrap().iter().filter(|filter| filter.get("digest").is_some());
    live.map(|filter| (text(&filter["name"]), text(&filter["digest"]))).collect()
}

fn expected(of: &[(&str, u8)]) -> Vec<(String, String)> {
    of.iter().map(|(name, number)| ((*name).to_owned(), Digest::of(&module(*number)).to_string())).collect()
}

/// Waits until these filters are in force. The last operation was at `begun`.
async fn comes_into_force(weir: &Daemon, of: &[(&str, u8)], begun: Instant, limit: Duration, case: &str) {
    let wanted = expected(of);
    while in_force(weir).await != wanted {
        assert!(begun.elapsed() < PATIENCE, "{case}: never in force\n{}", weir.log_text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = begun.elapsed();
    println!("{case}: in force after {took:?}");
    assert!(took < limit, "{case}: in force after {took:?}\n{}", weir.log_text());
}

/// A daemon whose modules folder and configuration are these, with both filters in force.
async fn started(server: &ApiServer, modules: &Path, configuration: &Path, change: impl Fn(Setup) -> Setup) -> Daemon {
    let setup = Setup::new(server.url())
        .flag("--modules-dir", modules.to_str().unwrap())
        .flag("--config-file", configuration.to_str().unwrap());
    change(setup).start_ready().await
}

/// A folder with modules and a configuration.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        write_modules(&files.modules(), 0);
        files.configure(&BOTH);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn modules(&self) -> PathBuf {
        self.path("modules")
    }

    fn configuration(&self) -> PathBuf {
        self.path("filters.yaml")
    }

    fn configure(&self, names: &[&str]) {
        replace(&self.configuration(), manifest(&filters(names)).as_bytes());
    }

    async fn start(&self, server: &ApiServer) -> Daemon {
        started(server, &self.modules(), &self.configuration(), |setup| setup).await
    }

    fn put_module(&self, name: &str, number: u8) -> Instant {
        replace(&self.modules().join(format!("{name}.wasm")), &module(number));
        Instant::now()
    }
}

/// Writes half a configuration file, waits for two scans, and writes the rest. The module of the first filter has this number before.
async fn is_written_slowly(weir: &Daemon, files: &Files, number: u8) {
    let text = manifest(&filters(&["two", "one"]));
    // A valid list without its last filter.
    let half = text.find("      - name: one").unwrap();
    let mut file = File::create(files.configuration()).unwrap();
    file.write_all(&text.as_bytes()[..half]).unwrap();
    file.sync_all().unwrap();
    // Something else changes, and is loaded with the configuration in force.
    let begun = files.put_module("one", number + 1);
    // It may be waited a moment for the writer.
    comes_into_force(weir, &[("one", number + 1), ("two", 0)], begun, 5 * SOON, "another trigger").await;
    while begun.elapsed() < SCANNED + SOON {
        assert_eq!(in_force(weir).await, expected(&[("one", number + 1), ("two", 0)]), "half a file is in force");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    file.write_all(&text.as_bytes()[half..]).unwrap();
    drop(file);
    comes_into_force(weir, &[("two", 0), ("one", number + 1)], Instant::now(), SOON, "closed").await;
}

#[tokio::test]
async fn half_a_configuration_file_is_not_read_before_it_is_closed() {
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    let begun = files.put_module("one", 1);
    comes_into_force(&weir, &[("one", 1), ("two", 0)], begun, SOON, "a first change").await;
    is_written_slowly(&weir, &files, 1).await;
}

#[tokio::test]
async fn half_a_configuration_file_is_not_read_right_after_the_start_either() {
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    is_written_slowly(&weir, &files, 0).await;
}

/// Writes other content of the same length, with the same time of modification, and causes no event at the mount.
fn rewrite_silently(path: &Path, content: &[u8]) -> Instant {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), content.len() as u64);
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(content).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
    Instant::now()
}

#[tokio::test]
async fn other_content_of_the_same_size_and_time_is_noticed() {
    let (server, files) = (edge().await, Files::new());
    fs::write(files.path("token"), "one").unwrap();
    let Some(mount) = HangingFolder::new(files.0.path()) else { return };
    let token = mount.join("token").display().to_string();
    let weir = started(&server, &mount.join("modules"), &mount.join("filters.yaml"), |setup| {
        setup.flag("--token-file", &token)
    })
    .await;
    let begun = rewrite_silently(&files.modules().join("one.wasm"), &module(1));
    comes_into_force(&weir, &[("one", 1), ("two", 0)], begun, SCANNED + SOON, "module").await;
    let text = manifest(&filters(&["two", "one"]));
    let begun = rewrite_silently(&files.configuration(), text.as_bytes());
    comes_into_force(&weir, &[("two", 0), ("one", 1)], begun, SCANNED + SOON, "configuration").await;
    let (from, begun) = (weir.log_length(), rewrite_silently(&files.path("token"), b"two"));
    weir.logged_after(from, "reloaded credential").await;
    assert!(begun.elapsed() < SCANNED + SOON, "token: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_modules_folder_that_is_removed_and_made_again_is_watched() {
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    for round in 1..4 {
        let from = weir.log_length();
        fs::remove_dir_all(files.modules()).unwrap();
        fs::create_dir(files.modules()).unwrap();
        // The new folder, which may have the inode number of the old one, has been looked at.
        weir.logged_after(from, "configuration refused").await;
        write_modules(&files.modules(), round);
        let wanted = [("one", round), ("two", round)];
        comes_into_force(&weir, &wanted, Instant::now(), SOON, "made again").await;
    }
}

#[tokio::test]
async fn a_folder_behind_a_link_that_is_swapped_is_watched() {
    let (server, files) = (edge().await, Files::new());
    for version in 0..4 {
        let release = files.path(&format!("v{version}"));
        write_modules(&release.join("modules"), version);
        fs::write(release.join("filters.yaml"), manifest(&filters(&BOTH))).unwrap();
    }
    let swap = |version: u8| {
        symlink(format!("v{version}"), files.path("next")).unwrap();
        fs::rename(files.path("next"), files.path("current")).unwrap();
        Instant::now()
    };
    swap(0);
    let (modules, configuration) = (files.path("current/modules"), files.path("current/filters.yaml"));
    let weir = started(&server, &modules, &configuration, |setup| setup).await;
    for version in 1..4 {
        let begun = swap(version);
        comes_into_force(&weir, &[("one", version), ("two", version)], begun, SOON, "swapped").await;
    }
    // In the folder that the link leads to now.
    replace(&files.path("v3/modules/one.wasm"), &module(4));
    comes_into_force(&weir, &[("one", 4), ("two", 3)], Instant::now(), SOON, "behind the link").await;
    replace(&files.path("v3/filters.yaml"), manifest(&filters(&["two"])).as_bytes());
    comes_into_force(&weir, &[("two", 3)], Instant::now(), SOON, "configuration behind the link").await;
}

#[tokio::test]
async fn what_a_link_leads_to_may_be_replaced_elsewhere() {
    let (server, files) = (edge().await, Files::new());
    fs::create_dir(files.path("elsewhere")).unwrap();
    for (link, target) in [("modules/one.wasm", "elsewhere/one.wasm"), ("filters.yaml", "elsewhere/filters.yaml")] {
        fs::rename(files.path(link), files.path(target)).unwrap();
        symlink(files.path(target), files.path(link)).unwrap();
    }
    let weir = files.start(&server).await;
    for round in 1..4 {
        replace(&files.path("elsewhere/one.wasm"), &module(round));
        comes_into_force(&weir, &[("one", round), ("two", 0)], Instant::now(), SOON, "module").await;
    }
    replace(&files.path("elsewhere/filters.yaml"), manifest(&filters(&["one"])).as_bytes());
    comes_into_force(&weir, &[("one", 3)], Instant::now(), SOON, "configuration").await;
}

#[tokio::test]
async fn relative_paths_may_lead_through_links() {
    let (server, files) = (edge().await, Files::new());
    fs::create_dir_all(files.path("etc/weir")).unwrap();
    for version in [0, 1] {
        let release = files.path(&format!("releases/v{version}"));
        write_modules(&release.join("modules"), version);
        fs::write(release.join("filters.yaml"), manifest(&filters(&BOTH))).unwrap();
    }
    let link = |version: u8| {
        symlink(format!("../../releases/v{version}"), files.path("etc/weir/next")).unwrap();
        fs::rename(files.path("etc/weir/next"), files.path("etc/weir/current")).unwrap();
        Instant::now()
    };
    link(0);
    let (modules, configuration) = (Path::new("weir/current/modules"), Path::new("weir/current/filters.yaml"));
    let weir = started(&server, modules, configuration, |setup| setup.directory(&files.path("etc"))).await;
    let begun = link(1);
    comes_into_force(&weir, &[("one", 1), ("two", 1)], begun, SOON, "swapped").await;
    replace(&files.path("releases/v1/modules/two.wasm"), &module(2));
    comes_into_force(&weir, &[("one", 1), ("two", 2)], Instant::now(), SOON, "replaced").await;
}

#[tokio::test]
async fn a_parent_folder_may_be_renamed_away_and_back() {
    let (server, files) = (edge().await, Files::new());
    let inner = files.path("a/b");
    write_modules(&inner.join("modules"), 0);
    fs::write(inner.join("filters.yaml"), manifest(&filters(&BOTH))).unwrap();
    let weir = started(&server, &inner.join("modules"), &inner.join("filters.yaml"), |setup| setup).await;
    for round in 1..4 {
        let from = weir.log_length();
        fs::rename(files.path("a"), files.path("away")).unwrap();
        // While it is away, the last set stays, and something is said about it.
        weir.logged_after(from, "configuration refused").await;
        assert_eq!(in_force(&weir).await, expected(&[("one", round - 1), ("two", 0)]));
        replace(&files.path("away/b/modules/one.wasm"), &module(round));
        fs::rename(files.path("away"), files.path("a")).unwrap();
        comes_into_force(&weir, &[("one", round), ("two", 0)], Instant::now(), SOON, "back").await;
    }
}

#[tokio::test]
async fn without_inotify_watches_there_is_one_warning() {
    let script = "echo 0 >/proc/sys/user/max_inotify_watches";
    let tried = Command::new("unshare").args(["--user", "--map-root-user", "/bin/sh", "-c", script]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return skipped("no user namespace with a limit of inotify watches can be had here");
    }
    let (server, files) = (edge().await, Files::new());
    let weir = started(&server, &files.modules(), &files.configuration(), Setup::without_file_events).await;
    let begun = Instant::now();
    for round in 1..3 {
        let changed = files.put_module("one", round);
        comes_into_force(&weir, &[("one", round), ("two", 0)], changed, SCANNED + SOON, "scanned").await;
    }
    while begun.elapsed() < 2 * SCANNED {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let about = |line: &&String| ["inotify", "file events", "cannot watch"].iter().any(|words| line.contains(words));
    let warnings = weir.warnings_after(0);
    let warnings: Vec<_> = warnings.iter().filter(about).collect();
    // Its folders are those of the modules, of the configuration, of the account and of the certificate.
    let once: BTreeSet<_> = warnings.iter().collect();
    assert!((1..=4).contains(&warnings.len()) && once.len() == warnings.len(), "{warnings:#?}");
}

#[tokio::test]
async fn a_huge_file_is_refused_without_being_read() {
    const SIZE: u64 = 200 << 20;
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    for is_sparse in [true, false] {
        let path = files.path("huge");
        let mut file = File::create(&path).unwrap();
        match is_sparse {
            true => file.set_len(SIZE).unwrap(),
            false => (0..SIZE >> 20).for_each(|n| file.write_all(&[n as u8; 1 << 20]).unwrap()),
        }
        drop(file);
        let (from, before) = (weir.log_length(), weir.resident());
        weir.forget_peak();
        let refused = weir.metric("weir_reloads_total{result=\"refused\"}").await;
        fs::rename(&path, files.modules().join("one.wasm")).unwrap();
        let text = if is_sparse { "configuration refused" } else { "refused for the same reasons as before" };
        weir.logged_after(from, text).await;
        let last = weir.admin().json("/filters").await["lastReload"].to_string();
        let reason = last.as_str();
        for size in [SIZE, MAX_MODULE as u64] {
            let forms = [size.to_string(), format!("{} Mi", size >> 20), format!("{}Mi", size >> 20)];
            assert!(forms.iter().any(|form| reason.contains(form)), "no {size} in {reason}");
        }
        // It is tried again, with the same result.
        until!(weir.metric("weir_reloads_total{result=\"refused\"}").await >= refused + 2.0);
        let grown = weir.peak() - before;
        assert!(grown < 16.0, "sparse: {is_sparse}: {grown:.1} MiB more");
        assert_eq!(in_force(&weir).await, expected(&[("one", 0), ("two", 0)]));
    }
}

/// The process that compiles a module for this daemon. It may live for 300 ms only, on a machine with more to do than this test:
/// so each look is at the children of the daemon's own threads, not at all processes.
async fn compiling(weir: &Daemon) -> u32 {
    let threads = format!("/proc/{}/task", weir.id());
    let is_compiler = |id: &u32| {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|word| word == b"compile")
    };
    let begun = Instant::now();
    loop {
        let children = fs::read_dir(&threads).unwrap().map(|thread| thread.unwrap().path().join("children"));
        let children: Vec<u32> = children
            .flat_map(|path| {
                fs::read_to_string(path).unwrap_or_default().split_whitespace().flat_map(str::parse).collect::<Vec<_>>()
            })
            .collect();
        if let Some(id) = children.into_iter().find(is_compiler) {
            return id;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is compiled\n{}", weir.log_text());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A process that has been stopped. It goes on when this is dropped.
struct Stopped(u32);

impl Stopped {
    fn new(process: u32) -> Self {
        assert!(Self::signal(process, "-STOP"), "it runs");
        Self(process)
    }

    fn is_there(&self) -> bool {
        // A process that has ended has no command line.
        fs::read(format!("/proc/{}/cmdline", self.0)).is_ok_and(|command| !command.is_empty())
    }

    fn signal(process: u32, name: &str) -> bool {
        Command::new("kill").args([name, &process.to_string()]).status().unwrap().success()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been ended.
        Self::signal(self.0, "-CONT");
    }
}

/// A module of which no compiled code is anywhere.
fn new_module() -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    now.to_le_bytes().iter().fold(hostile("edits-image"), |module, byte| variant(&module, *byte))
}

/// While a slow compilation goes on, this noise occurs every 300 ms. The compilation is not begun again, and the module gets into
/// force although the noise goes on.
async fn loads_beside(weir: &Daemon, noise: impl Fn(u32), change: impl FnOnce(&[u8])) {
    let bytes = new_module();
    let wanted = Digest::of(&bytes).to_string();
    change(&bytes);
    let process = Stopped::new(compiling(weir).await);
    let mut every = tokio::time::interval(Duration::from_millis(300));
    for n in 0..6 {
        every.tick().await;
        noise(n);
    }
    every.tick().await;
    assert!(process.is_there(), "the noise ended the compilation\n{}", weir.log_text());
    drop(process);
    let begun = Instant::now();
    while weir.filter("one").await["digest"] != wanted {
        assert!(begun.elapsed() < PATIENCE, "never in force\n{}", weir.log_text());
        every.tick().await;
        noise(u32::try_from(begun.elapsed().as_millis()).unwrap());
    }
}

#[tokio::test]
async fn a_busy_neighbour_does_not_starve_a_reload() {
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    let neighbour = files.modules().join(".sync.swp");
    let noise = |n: u32| fs::write(&neighbour, n.to_string()).unwrap();
    loads_beside(&weir, noise, |bytes| replace(&files.modules().join("one.wasm"), bytes)).await;
}

#[tokio::test]
async fn a_neighbour_that_is_another_module_does_not_starve_a_reload() {
    let (server, files) = (edge().await, Files::new());
    let weir = files.start(&server).await;
    let neighbour = files.modules().join("three.wasm");
    let noise = |n: u32| replace(&neighbour, &variant(&module(9), n as u8));
    loads_beside(&weir, noise, |bytes| replace(&files.modules().join("one.wasm"), bytes)).await;
}

fn put_config_map(server: &ApiServer, filters: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-filters", "namespace": "kube-system"},
        "data": {"filters.yaml": filters},
    });
    server.store().put(map).unwrap();
}

fn annotate(server: &ApiServer, key: &str, value: &str) {
    server.store().edit("v1", "ConfigMap", "kube-system", "weir-filters", |map| {
        map["metadata"]["annotations"] = json!({ key: value });
    });
}

#[tokio::test]
async fn a_config_map_that_is_annotated_again_and_again_does_not_starve_a_reload() {
    let (server, files) = (edge().await, Files::new());
    put_config_map(&server, &filters(&BOTH));
    let modules = files.modules().display().to_string();
    let weir = Setup::new(server.url()).flag("--modules-dir", &modules).start_ready().await;
    let noise = |n: u32| annotate(&server, "example.com/last-applied", &n.to_string());
    loads_beside(&weir, noise, |bytes| replace(&files.modules().join("one.wasm"), bytes)).await;
}

/// A daemon with a filter in force that hides Services, and one more that is being compiled by a process that has stopped.
async fn compiles_slowly(server: &ApiServer) -> (Daemon, Stopped) {
    put_config_map(server, HIDING);
    let weir = Setup::new(server.url()).bundled("discardcloudservice").start_ready().await;
    assert!(!names(&weir).await.contains(&"shop".to_owned()));
    weir.put_module("slow", &new_module());
    put_config_map(server, &format!("{HIDING}  - {{name: slow, module: slow.wasm, match: ['x/services']}}\n"));
    let process = Stopped::new(compiling(&weir).await);
    (weir, process)
}

const HIDING: &str =
    "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}\n";

async fn names(weir: &Daemon) -> Vec<String> {
    weir.client("kube-proxy").names("/api/v1/services").await
}

async fn shows_all(weir: &Daemon) {
    let begun = Instant::now();
    while !names(weir).await.contains(&"shop".to_owned()) {
        assert!(begun.elapsed() < 2 * SOON, "filters are still in force\n{}", weir.log_text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_kill_switch_does_not_wait_for_a_slow_module() {
    let server = edge().await;
    let (weir, process) = compiles_slowly(&server).await;
    server.store().edit("v1", "Node", "", "edge-a", |node| {
        node["metadata"]["annotations"] = json!({"weir.dev/filters": "off"});
    });
    shows_all(&weir).await;
    drop(process);
    server.store().edit("v1", "Node", "", "edge-a", |node| node["metadata"]["annotations"] = json!({}));
    let from_now = async {
        while weir.filter("slow").await["state"] != "live" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, from_now).await.expect("turned on again, with the slow module");
    assert!(!names(&weir).await.contains(&"shop".to_owned()));
}

#[tokio::test]
async fn a_change_that_only_removes_filters_does_not_wait_for_a_slow_module() {
    let server = edge().await;
    let (weir, process) = compiles_slowly(&server).await;
    put_config_map(&server, "filters: []\n");
    shows_all(&weir).await;
    drop(process);
    assert!(in_force(&weir).await.is_empty());
}
