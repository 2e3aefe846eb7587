//! The disk is slow or hangs, and files of the cache directory are not what they should be: the daemon starts, serves, and stops.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup, own_uid};
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::until;

use super::offline::{cluster, committed, setup, shown};

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
/// Longer than any answer may take.
const HUNG: Duration = Duration::from_secs(3600);

/// A node has been online for a while, and its API server cannot be reached any more.
struct Node {
    server: ApiServer,
    link: Link,
    /// The cache directory and the key beside it.
    folder: tempfile::TempDir,
    shown: (Vec<String>, Vec<String>),
}

impl Node {
    async fn new(name: &str) -> Self {
        let (server, folder) = (cluster().await, tempfile::tempdir().unwrap());
        let mut link = Link::to(&server).await;
        let cache = folder.path().join("cache");
        let weir = setup(&link, &cache).flag("--node-name", name).start_ready().await;
        let shown = shown(&weir.client("kube-proxy")).await;
        committed(&server, &weir).await;
        // An API server has answered again, so that its addresses are on disk.
        link.down().await;
        until!(cache.join("offline-since").exists());
        link.up().await;
        until!(cache.join("api-servers-answered").exists() && !cache.join("offline-since").exists());
        // An outage has begun, and its time is on disk.
        link.down().await;
        until!(cache.join("offline-since").exists());
        weir.stop().await;
        std::fs::write(cache.join("last-time"), "2026-01-01T00:00:00Z\n").unwrap();
        Self { server, link, folder, shown }
    }

    fn setup(&self, folder: &Path) -> Setup {
        setup(&self.link, &folder.join("cache"))
    }

    /// A copy of the files on disk.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        let from = format!("{}/.", self.folder.path().display());
        assert!(Command::new("cp").args(["-a", &from]).arg(copy.path()).status().unwrap().success());
        copy
    }
}

async fn is_shown(weir: &Daemon, node: &Node, case: &str) {
    assert_eq!(shown(&weir.client("kube-proxy")).await, node.shown, "{case}: {}", weir.log_text());
}

#[tokio::test]
async fn a_disk_that_hangs_keeps_neither_a_start_offline_nor_a_stop() {
    let Some(machine) = Machine::new() else { return };
    let mut node = Node::new("edge-a").await;
    machine.put_sync(HUNG);
    for is_online in [false, true] {
        if is_online {
            node.link.up().await;
        }
        let begun = Instant::now();
        let weir = machine.run(node.setup(node.folder.path()), node.folder.path()).start().await;
        is_shown(&weir, &node, "hung").await;
        let served = begun.elapsed();
        assert!(served < Duration::from_secs(3), "{served:?}: {}", weir.log_text());
        let begun = Instant::now();
        assert_eq!(weir.stop().await, Some(0));
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
    machine.put_sync(Duration::ZERO);
    let weir = machine.run(node.setup(node.folder.path()), node.folder.path()).start_ready().await;
    is_shown(&weir, &node, "after it").await;
    committed(&node.server, &weir).await;
}

/// What somebody makes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    Nothing,
    Folder,
    Pipe,
    LinkToNothing,
    LinkToItself,
    LinkElsewhere,
    OtherNodes,
    LaterForm,
    Random,
    Unreadable,
    OtherOwner,
}

use Replacement::{
    Folder, LaterForm, LinkElsewhere, LinkToItself, LinkToNothing, Nothing, OtherNodes, OtherOwner, Pipe, Random,
    Unreadable,
};

impl Replacement {
    const ALL: [Self; 11] = [
        Nothing,
        Folder,
        Pipe,
        LinkToNothing,
        LinkToItself,
        LinkElsewhere,
        OtherNodes,
        LaterForm,
        Random,
        Unreadable,
        OtherOwner,
    ];

    /// `other`: the same file of another node.
    fn put(self, path: &Path, other: &Path) {
        let remove = || match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        };
        let link = |target: &Path| {
            remove();
            std::os::unix::fs::symlink(target, path).unwrap();
        };
        match self {
            Nothing => remove(),
            Folder => {
                remove();
                std::fs::create_dir_all(path.join("more")).unwrap();
            }
            Pipe => {
                remove();
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            }
            LinkToNothing => link(Path::new("/nonexistent/file")),
            LinkToItself => link(path),
            LinkElsewhere => link(other),
            OtherNodes => {
                remove();
                assert!(Command::new("cp").arg("-a").args([other, path]).status().unwrap().success());
            }
            LaterForm => std::fs::write(path, b"weir 99.0 {\"form\": 99}\n".repeat(1000)).unwrap(),
            Random => {
                let bytes: Vec<u8> = (0..65_537_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
                std::fs::write(path, bytes).unwrap();
            }
            Unreadable => std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap(),
            OtherOwner => std::os::unix::fs::chown(path, Some(1), Some(1)).unwrap(),
        }
    }

    fn is_for(self, path: &Path) -> bool {
        match self {
            // Text in the place of a folder is a file there, like random bytes.
            LaterForm | Random => !path.is_dir(),
            Folder => !path.is_dir(),
            OtherOwner => own_uid() == 0,
            _ => true,
        }
    }

    /// Whether the daemon can use what is there now. Root reads any file.
    fn is_usable(self, is_database: bool) -> bool {
        match self {
            Unreadable => true,
            OtherOwner => own_uid() == 0,
            _ => !is_database,
        }
    }

    /// Whether the log says what is wrong with it.
    fn is_logged(self, name: &str) -> bool {
        match self {
            // Statistics, which nothing is missed of.
            Folder => !name.ends_with(".stats"),
            Pipe | LinkToNothing | LinkToItself | LinkElsewhere => true,
            LaterForm | Random => !name.ends_with(".stats"),
            OtherNodes => name.contains("watch-cache"),
            _ => false,
        }
    }
}

/// All files below a folder, and the folders in the cache directory itself.
fn files(folder: &Path, below: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let is_folder = entry.file_type().unwrap().is_dir();
        if !is_folder || below == Path::new("cache") {
            files.push(path.clone());
        }
        if is_folder {
            files.extend(self::files(folder, &path));
        }
    }
    files
}

/// A file in the place of a folder is the one replacement of folders that the others have not.
fn put_file(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
    std::fs::write(path, "a file").unwrap();
}

async fn starts_with(node: &mut Node, file: &Path, replacement: Option<Replacement>, other: &Path) {
    let case = format!("{} {replacement:?}", file.display());
    // Shown where an assertion fails.
    println!("{case}");
    let copy = node.copy();
    let path = copy.path().join(file);
    match replacement {
        Some(replacement) => replacement.put(&path, &other.join(file)),
        None => put_file(&path),
    }
    let name = file.display().to_string();
    let is_database = name.contains("watch-cache.redb");
    node.link.down().await;
    let is_usable = replacement.is_none_or(|replacement| replacement.is_usable(is_database));
    // A daemon that has its modules to compile serves when it has, however busy the machine is.
    let wait = if is_usable { "60s" } else { "1s" };
    let weir = node.setup(copy.path()).flag("--start-wait", wait).start().await;
    if is_usable {
        is_shown(&weir, node, &case).await;
    } else {
        assert_ne!(weir.client("kube-proxy").get(SERVICES).await.status, 200, "{case}");
    }
    let is_in_use = !name.ends_with(".key");
    if is_in_use && replacement.is_none_or(|replacement| replacement.is_logged(&name)) {
        let is_logged = || {
            weir.log_text().lines().any(|line| {
                line.contains(&name) && (line.contains("reason") || line.contains("error")) && line.contains("WARN")
            })
        };
        // Files that no client needs are read in the background.
        let logged = async {
            while !is_logged() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, logged).await.is_ok(), "{case}: {}", weir.log_text());
    }
    node.link.up().await;
    weir.ready().await;
    is_shown(&weir, node, &case).await;
    committed(&node.server, &weir).await;
    assert_eq!(weir.stop().await, Some(0), "{case}");
    // What was there before is set aside, and what is there now is served.
    node.link.down().await;
    let weir = node.setup(copy.path()).start().await;
    is_shown(&weir, node, &case).await;
    weir.kill().await;
}

#[tokio::test]
async fn each_file_on_disk_may_be_anything() {
    let (mut node, other) = (Node::new("edge-a").await, Node::new("edge-b").await);
    let files = files(node.folder.path(), Path::new(""));
    for wanted in
        ["watch-cache.redb", "last-time", "offline-since", "api-servers-answered", "code", "compiled", "modules"]
    {
        assert!(files.contains(&Path::new("cache").join(wanted)), "{wanted}: {files:?}");
    }
    for file in files {
        let path = node.folder.path().join(&file);
        let replacements = Replacement::ALL.into_iter().filter(|replacement| replacement.is_for(&path)).map(Some);
        let replacements: Vec<_> = replacements.chain(path.is_dir().then_some(None)).collect();
        for replacement in replacements {
            starts_with(&mut node, &file, replacement, other.folder.path()).await;
        }
    }
}
