//! Database files that do not fit are set aside, one of each reason, and used again when they fit: a name of the node, a cluster or
//! a release that was there for a while costs nothing of what another one has kept. A damaged file stays beside what was taken
//! over from it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::config::DiskConfig;
use super::database::Database;
use super::error::DiskError;
use super::state::DiskState;

/// How long the daemon is online before a file that was set aside is removed.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// How often that time is noted on disk.
const STEP: Duration = Duration::from_secs(600);
/// What a file may be set aside for, and used again. The last one is for a file that is exchanged.
const FITTING: [&str; 4] = ["node", CLUSTER, "format", SPARE];
const CLUSTER: &str = "cluster";
const SPARE: &str = "spare";
const DAMAGED: &str = "damaged";
/// For a file of an older form.
const OLDER: &str = "older";
/// For the cache directory of an earlier release.
const FORMER: &str = "former";
/// For what earlier releases have left.
pub(super) const EARLIER: [&str; 2] = [OLDER, FORMER];
/// For what somebody put in the place of the open file.
const MOVED: &str = "moved";

/// The places beside the database file.
#[derive(Debug, Clone)]
pub(super) struct Aside {
    file: PathBuf,
    /// The files of older forms.
    older: Vec<PathBuf>,
    /// The cache directory of an earlier release.
    former: Option<PathBuf>,
}

/// A file that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AsideFile {
    pub(super) reason: &'static str,
    pub(super) path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Aside {
    pub(super) fn of(file: &Path) -> Self {
        Self { file: file.to_owned(), older: Vec::new(), former: None }
    }

    /// What was set aside, and what earlier releases have left.
    fn with_earlier(config: &DiskConfig) -> Self {
        let older = config.older.iter().map(|form| config.path.with_file_name(form.file)).collect();
        Self { file: config.path.clone(), older, former: config.former.clone() }
    }

    fn place(&self, name: &str) -> PathBuf {
        let mut place = self.file.clone().into_os_string();
        place.push(".");
        place.push(name);
        place.into()
    }

    /// Where the successor of a damaged file is written.
    pub(super) fn successor(&self) -> PathBuf {
        self.place("new")
    }

    /// The files that were set aside and may fit. One that was of another cluster may be taken only once the cluster is known.
    pub(super) fn candidates(&self, knows_cluster: bool) -> impl Iterator<Item = PathBuf> + '_ {
        let reasons = FITTING.into_iter().filter(move |reason| knows_cluster || *reason != CLUSTER);
        reasons.map(|reason| self.place(reason)).filter(|path| path.is_file())
    }

    /// Sets the file aside, in place of an earlier one of its reason, and puts another one in its place. A process that is killed
    /// between two renames leaves each file in a place where it is found again.
    pub(super) fn exchange(&self, error: &DiskError, back: Option<&Path>) -> io::Result<()> {
        let (place, spare) = (self.place(error.reason()), self.place(SPARE));
        if spare.exists() && back != Some(&spare) {
            // An exchange was interrupted.
            let free = FITTING.into_iter().map(|reason| self.place(reason)).find(|place| !place.exists());
            free.map_or(Ok(()), |free| std::fs::rename(&spare, free))?;
        }
        let first = if back == Some(&place) { &spare } else { &place };
        match set_aside(&self.file, first) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
        back.map_or(Ok(()), |back| std::fs::rename(back, &self.file))?;
        if first == &spare && spare.exists() {
            std::fs::rename(&spare, &place)?;
        }
        Ok(())
    }

    /// The files that were set aside, newest first.
    pub(super) fn files(&self) -> Vec<AsideFile> {
        let places = FITTING.into_iter().chain([DAMAGED, MOVED]).map(|reason| (reason, self.place(reason)));
        let places = places.chain(self.older.iter().map(|older| (OLDER, older.clone())));
        let places = places.chain(self.former.iter().map(|former| (FORMER, former.clone())));
        let file = |(reason, path): (&'static str, PathBuf)| {
            let metadata = std::fs::symlink_metadata(&path).ok()?;
            Some(AsideFile { reason, path, bytes: metadata.len(), modified: metadata.modified().ok()? })
        };
        let mut files: Vec<_> = places.filter_map(file).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.modified));
        files
    }

    /// The files that are to be removed: those that have been there for a day of being ready online, and the oldest ones that
    /// do not fit into so many bytes. `online` returns for how long the daemon has been ready since one was set aside.
    pub(super) fn superfluous(&self, max_bytes: u64, online: impl Fn(&str) -> Duration) -> Vec<AsideFile> {
        let mut bytes = 0_u64;
        let mut is_superfluous = |file: &AsideFile| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(file.bytes.max(1));
            online(file.reason) >= KEPT || (bytes > max_bytes && !is_first)
        };
        self.files().into_iter().filter(|file| is_superfluous(file)).collect()
    }
}

/// Renames a file or a folder in place of an earlier one, which may be a folder or a file.
fn set_aside(from: &Path, to: &Path) -> io::Result<()> {
    let is_folder = std::fs::symlink_metadata(from)?.is_dir();
    match std::fs::symlink_metadata(to) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(to)?,
        Ok(_) if is_folder => std::fs::remove_file(to)?,
        _ => {}
    }
    std::fs::rename(from, to)
}

/// The name under which the file notes for how many seconds the daemon has been online since another one was set aside.
pub(super) fn online(reason: &str) -> String {
    format!("aside/{reason}")
}

impl DiskState {
    /// Counts the time that the daemon is online since files were set aside, and removes those that nothing has brought back.
    /// While no API server can be reached, none is.
    pub(super) fn tend_aside(&mut self, database: &Database) -> Result<(), DiskError> {
        let ready = self.config.ready.total();
        if self.confirmed.is_none() {
            self.tended = Some(ready);
            return Ok(());
        }
        let passed = ready.saturating_sub(self.tended.unwrap_or_default());
        if self.is_offline() || (self.tended.is_some() && passed < STEP) {
            return Ok(());
        }
        self.tended = Some(ready);
        let aside = Aside::with_earlier(&self.config);
        let files = aside.files();
        if files.is_empty() {
            return Ok(());
        }
        let mut times = BTreeMap::new();
        for file in &files {
            let known = database.meta(&online(file.reason))?.and_then(|seconds| seconds.parse().ok());
            times.insert(file.reason, Duration::from_secs(known.unwrap_or(0)) + passed);
        }
        for file in aside.superfluous(self.config.max_bytes, |reason| times.get(reason).copied().unwrap_or_default()) {
            file.remove();
            times.insert(file.reason, Duration::ZERO);
        }
        database.write(|batch| {
            times.iter().try_for_each(|(reason, time)| batch.put_meta(&online(reason), &time.as_secs().to_string()))
        })
    }
}

impl AsideFile {
    pub(super) fn remove(&self) {
        let removed = match std::fs::symlink_metadata(&self.path) {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&self.path),
            _ => std::fs::remove_file(&self.path),
        };
        if self.reason == FORMER {
            // An older release may have had none there.
            let mut key = self.path.clone().into_os_string();
            key.push(".key");
            let _ = std::fs::remove_file(key);
        }
        match removed {
            Ok(()) => {
                tracing::info!(file = %self.path.display(), reason = self.reason, "removed a watch cache that was set aside");
            }
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "cannot remove a watch cache that was set aside");
            }
        }
    }
}
