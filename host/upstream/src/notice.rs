//! Notices that files have changed: the modules directory and the configuration file.
//!
//! Directories are watched, not files, so that editors' renames and the kubelet's `..data` symlink swap are seen. A
//! file that is still being written (opened, written to, not closed) is not a notice; its close or its rename into
//! place is. Because events can be lost (a full queue, a directory made anew, a file system without them), a slow scan
//! compares what lies there, and counts only what has stood still between two scans.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// How long nothing more must happen before a notice is given: one `kubectl cp` or one symlink swap is many events.
const QUIET: Duration = Duration::from_millis(10);
/// The longest that a stream of events may put a notice off.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often the scan looks.
const SCAN: Duration = Duration::from_secs(5);

/// Watches directories.
#[derive(Debug)]
pub struct Notices {
    directories: Vec<PathBuf>,
    rung: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, u64>,
    seen: Picture,
    settling: Option<Picture>,
    /// An event was heard and is not told yet: whoever waited for it may have gone away meanwhile.
    heard: bool,
}

type Picture = BTreeMap<PathBuf, (u64, Option<SystemTime>, u64)>;

impl Notices {
    /// Begins to watch directories; those that are missing are looked for again.
    #[must_use]
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let rung = Arc::new(Notify::new());
        let bell = rung.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| tells(event.kind)) {
                bell.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "no file events: changes are found by a scan each {SCAN:?}"))
            .ok();
        let mut notices = Self {
            directories,
            rung,
            watcher,
            watched: BTreeMap::new(),
            seen: Picture::new(),
            settling: None,
            heard: false,
        };
        notices.watch();
        notices.seen = notices.picture();
        notices
    }

    /// Resolves when something has changed and stood still for a moment. Cancel-safe.
    pub async fn next(&mut self) {
        let mut scan = tokio::time::interval(SCAN);
        scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        scan.tick().await;
        loop {
            let rung = self.rung.clone();
            if self.heard {
                let patience = tokio::time::Instant::now() + PATIENCE;
                while tokio::time::Instant::now() < patience
                    && tokio::time::timeout(QUIET, rung.notified()).await.is_ok()
                {}
                self.heard = false;
                self.watch();
                self.seen = self.picture();
                self.settling = None;
                return;
            }
            tokio::select! {
                () = rung.notified() => self.heard = true,
                _ = scan.tick() => {
                    self.watch();
                    if self.scan() {
                        return;
                    }
                }
            }
        }
    }

    /// True when what lies there differs from what was last told, and has not changed since the scan before.
    fn scan(&mut self) -> bool {
        let now = self.picture();
        if now == self.seen {
            self.settling = None;
            return false;
        }
        if self.settling.as_ref() != Some(&now) {
            self.settling = Some(now);
            return false;
        }
        self.seen = now;
        self.settling = None;
        true
    }

    /// Watches the directories as they are now: a directory that was replaced is another inode.
    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for directory in &self.directories {
            // The directory itself, and where its symbolic link leads from.
            let mut places = vec![directory.clone()];
            places.extend(directory.parent().filter(|_| directory.is_symlink()).map(Path::to_owned));
            for place in places {
                let inode = std::fs::metadata(&place).ok().map(|metadata| inode(&metadata));
                if inode == self.watched.get(&place).copied() {
                    continue;
                }
                if self.watched.remove(&place).is_some() {
                    let _ = watcher.unwatch(&place);
                }
                let Some(inode) = inode else { continue };
                match watcher.watch(&place, RecursiveMode::NonRecursive) {
                    Ok(()) => drop(self.watched.insert(place, inode)),
                    Err(error) => {
                        tracing::warn!(directory = %place.display(), %error, "no file events here: a scan each {SCAN:?}");
                    }
                }
            }
        }
    }

    fn picture(&self) -> Picture {
        let entries = self.directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten();
        entries
            .flatten()
            .filter_map(|entry| {
                let metadata = std::fs::metadata(entry.path()).ok()?;
                Some((entry.path(), (metadata.len(), metadata.modified().ok(), inode(&metadata))))
            })
            .collect()
    }
}

fn inode(metadata: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.ino()
}

/// Whether an event means that something is in place now.
fn tells(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Remove(_) | EventKind::Other => true,
        EventKind::Modify(ModifyKind::Name(_)) => true,
        // A link or directory appears whole; a file that appears is closed later.
        EventKind::Create(kind) => !matches!(kind, notify::event::CreateKind::File),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn noticed(notices: &mut Notices) {
        tokio::time::timeout(Duration::from_secs(30), notices.next()).await.expect("a change is noticed");
    }

    #[tokio::test]
    async fn a_rename_into_place_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let mut notices = Notices::new(vec![directory.path().to_owned()]);
        let aside = tempfile::tempdir_in(directory.path().parent().unwrap()).unwrap();
        std::fs::write(aside.path().join("a.wasm"), "x").unwrap();
        std::fs::rename(aside.path().join("a.wasm"), directory.path().join("a.wasm")).unwrap();
        noticed(&mut notices).await;
    }

    #[tokio::test]
    async fn the_kubelets_symlink_swap_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for (version, text) in [("..1", "old"), ("..2", "new")] {
            std::fs::create_dir(path.join(version)).unwrap();
            std::fs::write(path.join(version).join("filters.yaml"), text).unwrap();
        }
        std::os::unix::fs::symlink("..1", path.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/filters.yaml", path.join("filters.yaml")).unwrap();
        let mut notices = Notices::new(vec![path.to_owned()]);
        std::os::unix::fs::symlink("..2", path.join("..data_tmp")).unwrap();
        std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
        noticed(&mut notices).await;
        assert_eq!(std::fs::read_to_string(path.join("filters.yaml")).unwrap(), "new");
    }

    #[tokio::test]
    async fn a_file_is_noticed_when_it_is_closed_not_while_it_is_written() {
        use std::io::Write;
        let directory = tempfile::tempdir().unwrap();
        let mut notices = Notices::new(vec![directory.path().to_owned()]);
        let mut file = std::fs::File::create(directory.path().join("slow.wasm")).unwrap();
        for _ in 0..10 {
            file.write_all(b"part").unwrap();
            file.sync_all().unwrap();
        }
        // What was written so far has raised its events by now; none of them is a notice.
        assert!(tokio::time::timeout(Duration::from_millis(200), notices.next()).await.is_err());
        drop(file);
        noticed(&mut notices).await;
    }

    #[tokio::test]
    async fn a_directory_that_comes_later_is_found() {
        let parent = tempfile::tempdir().unwrap();
        let late = parent.path().join("modules");
        let mut notices = Notices::new(vec![late.clone()]);
        std::fs::create_dir(&late).unwrap();
        std::fs::write(late.join("a.wasm"), "x").unwrap();
        noticed(&mut notices).await;
    }
}
