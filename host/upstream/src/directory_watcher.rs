//! Watches directories for changed files.
//!
//! It watches directories instead of files, so that it sees renames by editors and the kubelet's swap of the `..data`
//! symlink. A write is not a change until the file is closed or renamed into place.
//!
//! Events can get lost: a queue overflows, a directory is replaced, or a file system sends none. So a scan every
//! [`SCAN_INTERVAL`] compares the directory entries. It reports a change only if two scans in a row agree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// A change is reported after this time without events. One `kubectl cp` or symlink swap causes many events.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// The maximum delay of a report while events continue.
const MAX_DEBOUNCE: Duration = Duration::from_millis(100);
/// The time between two scans.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Watches directories, and reports that something in them changed.
#[derive(Debug)]
pub struct DirectoryWatcher {
    directories: Vec<PathBuf>,
    events: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    /// The watched paths, with the inodes that they had.
    watched: BTreeMap<PathBuf, u64>,
    /// The entries as of the last report.
    reported: Entries,
    /// Entries that differ from the reported ones, and that the next scan must confirm.
    unconfirmed: Option<Entries>,
    /// Whether an event was received but not reported. It survives the cancellation of [`DirectoryWatcher::changed`].
    pending: bool,
}

/// The directory entries: size, modification time and inode by path.
type Entries = BTreeMap<PathBuf, (u64, Option<SystemTime>, u64)>;

impl DirectoryWatcher {
    /// Starts watching. Missing directories are watched once they exist.
    #[must_use]
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let events = Arc::new(Notify::new());
        let sender = events.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_complete(event.kind)) {
                sender.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, interval = ?SCAN_INTERVAL, "cannot watch for file events, scanning directories instead"))
            .ok();
        let mut this = Self {
            directories,
            events,
            watcher,
            watched: BTreeMap::new(),
            reported: Entries::new(),
            unconfirmed: None,
            pending: false,
        };
        this.watch();
        this.reported = this.entries();
        this
    }

    /// Resolves when something changed and no event follows for [`DEBOUNCE`]. Cancel safe: no change is lost.
    pub async fn changed(&mut self) {
        let mut scan = tokio::time::interval(SCAN_INTERVAL);
        scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        scan.tick().await;
        loop {
            let events = self.events.clone();
            if self.pending {
                let deadline = tokio::time::Instant::now() + MAX_DEBOUNCE;
                while tokio::time::Instant::now() < deadline
                    && tokio::time::timeout(DEBOUNCE, events.notified()).await.is_ok()
                {}
                self.pending = false;
                self.watch();
                self.reported = self.entries();
                self.unconfirmed = None;
                return;
            }
            tokio::select! {
                () = events.notified() => self.pending = true,
                _ = scan.tick() => {
                    self.watch();
                    if self.scan() {
                        return;
                    }
                }
            }
        }
    }

    /// Returns whether the entries differ from the reported ones and equal those of the previous scan.
    fn scan(&mut self) -> bool {
        let now = self.entries();
        if now == self.reported {
            self.unconfirmed = None;
            return false;
        }
        if self.unconfirmed.as_ref() != Some(&now) {
            self.unconfirmed = Some(now);
            return false;
        }
        self.reported = now;
        self.unconfirmed = None;
        true
    }

    /// Updates the watches. A replaced directory has a new inode and needs a new watch.
    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for directory in &self.directories {
            // If the directory is a symlink, watch its parent too, for a change of the link.
            let mut paths = vec![directory.clone()];
            paths.extend(directory.parent().filter(|_| directory.is_symlink()).map(Path::to_owned));
            for path in paths {
                let inode = std::fs::metadata(&path).ok().map(|metadata| inode(&metadata));
                if inode == self.watched.get(&path).copied() {
                    continue;
                }
                if self.watched.remove(&path).is_some() {
                    let _ = watcher.unwatch(&path);
                }
                let Some(inode) = inode else { continue };
                match watcher.watch(&path, RecursiveMode::NonRecursive) {
                    Ok(()) => drop(self.watched.insert(path, inode)),
                    Err(error) => {
                        tracing::warn!(directory = %path.display(), %error, interval = ?SCAN_INTERVAL, "cannot watch directory for file events, scanning it instead");
                    }
                }
            }
        }
    }

    fn entries(&self) -> Entries {
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

/// Returns whether an event means that a file is completely written, renamed or removed.
fn is_complete(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Remove(_) | EventKind::Other => true,
        EventKind::Modify(ModifyKind::Name(_)) => true,
        // A new link or directory is complete. A new file is complete once it is closed.
        EventKind::Create(kind) => !matches!(kind, notify::event::CreateKind::File),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn assert_changed(watcher: &mut DirectoryWatcher) {
        tokio::time::timeout(Duration::from_secs(30), watcher.changed()).await.expect("a change is reported");
    }

    #[tokio::test]
    async fn a_rename_into_place_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = DirectoryWatcher::new(vec![directory.path().to_owned()]);
        let aside = tempfile::tempdir_in(directory.path().parent().unwrap()).unwrap();
        std::fs::write(aside.path().join("a.wasm"), "x").unwrap();
        std::fs::rename(aside.path().join("a.wasm"), directory.path().join("a.wasm")).unwrap();
        assert_changed(&mut watcher).await;
    }

    #[tokio::test]
    async fn the_kubelets_symlink_swap_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for (version, text) in [("..1", "old"), ("..2", "new")] {
            std::fs::create_dir(path.join(version)).unwrap();
            std::fs::write(path.join(version).join("filters.yaml"), text).unwrap();
        }
        std::os::unix::fs::symlink("..1", path.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/filters.yaml", path.join("filters.yaml")).unwrap();
        let mut watcher = DirectoryWatcher::new(vec![path.to_owned()]);
        std::os::unix::fs::symlink("..2", path.join("..data_tmp")).unwrap();
        std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
        assert_changed(&mut watcher).await;
        assert_eq!(std::fs::read_to_string(path.join("filters.yaml")).unwrap(), "new");
    }

    #[tokio::test]
    async fn a_file_is_reported_when_it_is_closed_not_while_it_is_written() {
        use std::io::Write;
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = DirectoryWatcher::new(vec![directory.path().to_owned()]);
        let mut file = std::fs::File::create(directory.path().join("slow.wasm")).unwrap();
        for _ in 0..10 {
            file.write_all(b"part").unwrap();
            file.sync_all().unwrap();
        }
        // The writes so far have caused their events by now. None of them is a change.
        assert!(tokio::time::timeout(Duration::from_millis(200), watcher.changed()).await.is_err());
        drop(file);
        assert_changed(&mut watcher).await;
    }

    #[tokio::test]
    async fn a_directory_that_is_created_later_is_watched() {
        let parent = tempfile::tempdir().unwrap();
        let late = parent.path().join("modules");
        let mut watcher = DirectoryWatcher::new(vec![late.clone()]);
        std::fs::create_dir(&late).unwrap();
        std::fs::write(late.join("a.wasm"), "x").unwrap();
        assert_changed(&mut watcher).await;
    }
}
