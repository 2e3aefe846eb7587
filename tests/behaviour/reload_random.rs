//! Random file operations on the modules and the configuration of a running daemon. Within a second after the last one of a
//! sequence, the set in force is what is on disk, or where that is no set, an earlier one and a reason. Meanwhile it is never one that
//! no file had: half a file, or none.
//!
//! `WEIR_SEQUENCES` sets how many, `WEIR_SEED` the seed of the first one; `make file-operations` sets both. Each begins with the same
//! files, so that its seed alone repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use weir_spec::Digest;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup, manifest, replace};
use weir_tests::guests::{hostile, variant};

use super::edge;
use super::lives::number;
use super::lives::random::Random;

/// How many without a number.
const SEQUENCES: u64 = 60;
/// How soon what is on disk is in force.
const SOON: Duration = Duration::from_secs(1);
/// How long half a file stays unchanged before it counts, if no inotify event reports its writer: the folder was renamed away and
/// back while the file was open.
const UNCHANGED: Duration = Duration::from_millis(300);
const VARIANTS: u8 = 5;
const MODULES: [&str; 2] = ["one", "two"];
const CONFIGURATION: &str = "filters.yaml";
/// The filters that a configuration has, in order.
const LISTS: [&[&str]; 4] = [&["one"], &["two"], &["one", "two"], &["two", "one"]];

/// What is in force: name, digest and match rule of each filter. Each configuration has a rule of its own.
type Set = Vec<(String, String, String)>;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Content in place, at once.
    Write,
    /// Content in place, in two parts, with the file open in between and something else changed meanwhile.
    WriteSlowly,
    /// New content renamed into place, from the same folder.
    Rename,
    /// New content renamed into place, from another folder.
    RenameFromElsewhere,
    /// A link to new content takes its place.
    Link,
    /// What the file is, also behind a link, is replaced.
    ReplaceBehindLink,
    Truncate,
    Delete,
    Touch,
    ChangeMode,
    /// The modules folder is removed and made again, with new content of this file.
    RemakeFolder,
    /// The link to the folder of all files is swapped, with new content of this file.
    SwapFolder,
    /// The folder of all files is renamed away, gets new content of this file, and is renamed back.
    MoveFolder,
}

use Operation::{
    ChangeMode, Delete, Link, MoveFolder, RemakeFolder, Rename, RenameFromElsewhere, ReplaceBehindLink, SwapFolder,
    Touch, Truncate, Write, WriteSlowly,
};

const OPERATIONS: [Operation; 13] = [
    Write,
    WriteSlowly,
    Rename,
    RenameFromElsewhere,
    Link,
    ReplaceBehindLink,
    Truncate,
    Delete,
    Touch,
    ChangeMode,
    RemakeFolder,
    SwapFolder,
    MoveFolder,
];

/// The files, and what their contents mean.
struct Site {
    folder: tempfile::TempDir,
    /// The contents of valid modules.
    variants: Vec<Vec<u8>>,
    /// Its filters by the text of a configuration file.
    configurations: BTreeMap<Vec<u8>, (&'static [&'static str], String)>,
    /// What configurations and folders are numbered by.
    last: u32,
    /// What was done since the files were put back.
    done: Vec<String>,
    /// Whether the machine has stopped this writer meanwhile for so long that half a file may count.
    is_stalled: bool,
}

impl Site {
    fn new() -> Self {
        let variants = (0..VARIANTS).map(|n| variant(&hostile("edits-image"), n)).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut site =
            Self { folder, variants, configurations: BTreeMap::new(), last: 0, done: Vec::new(), is_stalled: false };
        site.put_back();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn setup(&self, server: &str) -> Setup {
        Setup::new(server)
            .flag("--modules-dir", self.path("live/modules").to_str().unwrap())
            .flag("--config-file", self.path("live/filters.yaml").to_str().unwrap())
    }

    /// The path of a module or of the configuration.
    fn file(&self, name: &str) -> PathBuf {
        match name {
            CONFIGURATION => self.path("live/filters.yaml"),
            module => self.path(&format!("live/modules/{module}.wasm")),
        }
    }

    /// A new configuration with these filters.
    fn configuration(&mut self, list: &'static [&'static str]) -> Vec<u8> {
        let component = format!("c{}", self.number());
        let entry = |name| format!("  - name: {name}\n    module: {name}.wasm\n    match: ['{component}/services']\n");
        let text = manifest(&format!("filters:\n{}", list.iter().map(entry).collect::<String>())).into_bytes();
        self.configurations.insert(text.clone(), (list, component));
        text
    }

    /// New content for a file, seldom invalid.
    fn content(&mut self, name: &str, random: &mut Random) -> Vec<u8> {
        match (name, random.one_in(8)) {
            (CONFIGURATION, true) => random.pick(&["", "filters: [\n", "# nothing\n"]).into(),
            (CONFIGURATION, false) => self.configuration(random.pick(&LISTS)),
            (_, true) => b"no module".to_vec(),
            (_, false) => self.variants[random.below(VARIANTS.into())].clone(),
        }
    }

    /// Puts valid files in the place of all.
    fn put_back(&mut self) {
        let former = fs::read_link(self.path("live")).ok();
        let configuration = self.configuration(LISTS[2]);
        let release = self.release(|_| None);
        fs::write(release.join(CONFIGURATION), configuration).unwrap();
        for name in MODULES {
            fs::write(release.join(format!("modules/{name}.wasm")), &self.variants[0]).unwrap();
        }
        self.swap(&release);
        if let Some(former) = former {
            fs::remove_dir_all(self.path(former.to_str().unwrap())).unwrap();
        }
        self.done.clear();
        self.is_stalled = false;
    }

    /// A new folder of all files, with what `content` returns for each.
    fn release(&mut self, content: impl Fn(&str) -> Option<Vec<u8>>) -> PathBuf {
        let number = self.number();
        let release = self.path(&format!("r{number}"));
        fs::create_dir_all(release.join("modules")).unwrap();
        for name in [MODULES[0], MODULES[1], CONFIGURATION] {
            let path = self.file(name);
            if let Some(bytes) = content(name) {
                fs::write(release.join(path.strip_prefix(self.path("live")).unwrap()), bytes).unwrap();
            }
        }
        release
    }

    fn swap(&self, release: &Path) {
        symlink(release.file_name().unwrap(), self.path("next")).unwrap();
        fs::rename(self.path("next"), self.path("live")).unwrap();
    }

    /// What is at a place now.
    fn current(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.file(name)).ok()
    }

    /// What the files on disk say is in force; none if they are no set.
    fn on_disk(&self) -> Option<Set> {
        let (list, component) = self.configurations.get(&self.current(CONFIGURATION)?)?;
        let filter = |name: &&str| {
            let bytes = self.current(name).filter(|bytes| self.variants.contains(bytes))?;
            Some(((*name).to_owned(), Digest::of(&bytes).to_string(), component.clone()))
        };
        list.iter().map(filter).collect()
    }

    /// Whether a set is that of complete files.
    fn is_whole(&self, set: &Set) -> bool {
        let digests: BTreeSet<_> = self.variants.iter().map(|bytes| Digest::of(bytes).to_string()).collect();
        self.configurations.values().any(|(list, component)| {
            list.len() == set.len()
                && list.iter().zip(set).all(|(name, filter)| filter.0 == *name && filter.2 == *component)
        }) && set.iter().all(|(_, digest, _)| digests.contains(digest))
    }

    async fn operate(&mut self, random: &mut Random) {
        let name = random.pick(&[MODULES[0], MODULES[1], CONFIGURATION, CONFIGURATION]);
        let operation = random.pick(&OPERATIONS);
        self.done.push(format!("{operation:?} {name}"));
        let (path, content) = (self.file(name), self.content(name, random));
        match operation {
            Write => drop(fs::write(path, content)),
            WriteSlowly => self.write_slowly(name, &content, random).await,
            Rename => replace(&path, &content),
            RenameFromElsewhere => fs::rename(self.elsewhere(&content), path).unwrap(),
            Link => {
                symlink(self.elsewhere(&content), self.path("link")).unwrap();
                fs::rename(self.path("link"), path).unwrap();
            }
            ReplaceBehindLink => replace(&path.canonicalize().unwrap_or(path), &content),
            Delete => drop(fs::remove_file(path)),
            RemakeFolder => self.remake(name, content),
            SwapFolder => self.swap_folder(name, &content),
            MoveFolder => self.move_folder(name, &content),
            Truncate | Touch | ChangeMode => self.alter(operation, &path, random),
        }
    }

    /// Content in a file that is nowhere read.
    fn elsewhere(&mut self, content: &[u8]) -> PathBuf {
        fs::create_dir_all(self.path("elsewhere")).unwrap();
        let number = self.number();
        let path = self.path(&format!("elsewhere/{number}"));
        fs::write(&path, content).unwrap();
        path
    }

    async fn write_slowly(&mut self, name: &str, content: &[u8], random: &mut Random) {
        // What is read of a list that ends before its last filter is a list, too.
        let last = content.windows(8).rposition(|bytes| bytes == b"- name: ").map(|at| at - 6);
        let half = last.unwrap_or(content.len() / 2);
        let begun = Instant::now();
        let Ok(mut file) = File::create(self.file(name)) else { return };
        file.write_all(&content[..half]).unwrap();
        pause(random).await;
        let other = random.pick(&MODULES);
        if other != name {
            let content = self.content(other, random);
            replace(&self.file(other), &content);
            self.done.push(format!("Rename {other} meanwhile"));
            pause(random).await;
        }
        file.write_all(&content[half..]).unwrap();
        self.is_stalled |= begun.elapsed() >= UNCHANGED;
    }

    fn remake(&mut self, name: &str, content: Vec<u8>) {
        let contents = MODULES.map(|module| match module == name {
            true => Some(content.clone()),
            false => self.current(module),
        });
        fs::remove_dir_all(self.path("live/modules")).unwrap();
        fs::create_dir(self.path("live/modules")).unwrap();
        for (module, content) in MODULES.iter().zip(contents) {
            content.map_or(Ok(()), |content| fs::write(self.file(module), content)).unwrap();
        }
        if name == CONFIGURATION {
            fs::write(self.file(name), content).unwrap();
        }
    }

    fn swap_folder(&mut self, name: &str, content: &[u8]) {
        let former = fs::read_link(self.path("live")).unwrap();
        let current = [MODULES[0], MODULES[1], CONFIGURATION].map(|file| (file, self.current(file)));
        let release = self.release(|file| match file == name {
            true => Some(content.to_owned()),
            false => current.iter().find(|(name, _)| *name == file)?.1.clone(),
        });
        self.swap(&release);
        fs::remove_dir_all(self.path(former.to_str().unwrap())).unwrap();
    }

    fn move_folder(&self, name: &str, content: &[u8]) {
        let release = self.path(fs::read_link(self.path("live")).unwrap().to_str().unwrap());
        let path = self.file(name);
        let inner = path.strip_prefix(self.path("live")).unwrap();
        fs::rename(&release, self.path("away")).unwrap();
        replace(&self.path("away").join(inner), content);
        fs::rename(self.path("away"), &release).unwrap();
    }

    /// Does what needs a file.
    fn alter(&self, operation: Operation, path: &Path, random: &mut Random) {
        let Ok(file) = File::options().write(true).open(path) else { return };
        let length = file.metadata().unwrap().len();
        match operation {
            Truncate => {
                // The middle of a configuration's first entry, too: what is left names no filter.
                let name = fs::read(path).unwrap().windows(7).position(|bytes| bytes == b"- name:");
                let entry = name.map_or(0, |at| at as u64 + 7);
                file.set_len(random.pick(&[0, length / 3, entry])).unwrap();
            }
            Touch => file.set_modified(SystemTime::now()).unwrap(),
            _ => file.set_permissions(Permissions::from_mode(random.pick(&[0o600, 0o644, 0o755]))).unwrap(),
        }
    }
}

/// Between two operations: less or more than what the daemon waits for.
async fn pause(random: &mut Random) {
    let time = random.pick(&[0, 0, 2, 12, 40]);
    tokio::time::sleep(Duration::from_millis(time)).await;
}

/// What `/filters` shows in force.
fn set(shown: &Value) -> Set {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let live = shown["filters"].as_array().unwrap().iter().filter(|filter| filter.get("digest").is_some());
    live.map(|filter| {
        let rule = text(&filter["match"][0]);
        (text(&filter["name"]), text(&filter["digest"]), rule.split('/').next().unwrap().to_owned())
    })
    .collect()
}

/// Watches a daemon, and collects what was in force at any time.
async fn observe(admin: Client, seen: Arc<Mutex<BTreeSet<Set>>>) {
    loop {
        let shown = admin.json("/filters").await;
        seen.lock().unwrap().insert(set(&shown));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the daemon is as the files say. Returns what is wrong otherwise.
async fn settles(weir: &Daemon, site: &Site, limit: Duration) -> Result<Duration, String> {
    // One connection: with one for each look, the daemon would close others of this client, the observer's among them.
    let (begun, wanted, admin) = (Instant::now(), site.on_disk(), weir.admin());
    loop {
        let shown = admin.json("/filters").await;
        let result = shown["lastReload"]["result"].as_str().unwrap_or_default();
        let is_reasoned = !shown["lastReload"]["errors"].as_array().is_none_or(Vec::is_empty);
        let is_settled = match &wanted {
            Some(wanted) => result == "applied" && set(&shown) == *wanted,
            None => result == "refused" && is_reasoned,
        };
        if is_settled {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > limit {
            return Err(format!("on disk is {wanted:?}, but after {limit:?} this is in force: {shown:#}"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Plays one sequence. Returns how long the daemon took after its last operation, or what is wrong.
async fn play(seed: u64, site: &mut Site, weir: &Daemon, seen: &Mutex<BTreeSet<Set>>) -> Result<Duration, String> {
    let mut random = Random::new(seed);
    site.put_back();
    settles(weir, site, SOON).await.map_err(|error| format!("after all files were put back, {error}"))?;
    for _ in 0..=random.below(6) {
        site.operate(&mut random).await;
        pause(&mut random).await;
    }
    let took = settles(weir, site, SOON).await?;
    match std::mem::take(&mut *seen.lock().unwrap()).iter().find(|set| !site.is_whole(set)) {
        Some(set) if site.is_stalled => println!("WEIR_SEED={seed}: this writer was stopped, and {set:?} was in force"),
        None => {}
        Some(set) => return Err(format!("this was in force, and no complete files: {set:?}")),
    }
    Ok(took)
}

#[tokio::test]
async fn what_is_in_force_is_what_is_on_disk_whatever_is_done_to_the_files() {
    let sequences = number("WEIR_SEQUENCES").unwrap_or(SEQUENCES);
    let first = number("WEIR_SEED").unwrap_or_else(|| {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(0) >> 16
    });
    println!("sequences of the seeds {first} to {}", first + sequences - 1);
    let (server, mut site) = (edge().await, Site::new());
    let weir = site.setup(server.url()).start_ready().await;
    // All modules are compiled once.
    for variant in site.variants.clone() {
        MODULES.iter().for_each(|name| replace(&site.file(name), &variant));
        settles(&weir, &site, PATIENCE).await.unwrap();
    }
    let seen = Arc::<Mutex<BTreeSet<Set>>>::default();
    let observer = tokio::spawn(observe(weir.admin(), seen.clone()));
    let mut times = Vec::new();
    for seed in first..first + sequences {
        match play(seed, &mut site, &weir, &seen).await {
            Ok(took) => times.push(took),
            Err(error) => {
                let log = weir.log_text();
                let end: Vec<_> = log.lines().rev().take(40).collect();
                let end: String = end.into_iter().rev().map(|line| format!("{line}\n")).collect();
                panic!("the sequence of WEIR_SEED={seed} fails after {:#?}: {error}\n{end}", site.done);
            }
        }
        assert!(!observer.is_finished(), "the admin port answers");
    }
    times.sort();
    println!("{sequences} sequences, in force after {:?} (median), {:?} (max)", times[times.len() / 2], times.last());
}
