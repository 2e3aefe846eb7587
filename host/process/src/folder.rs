//! The files of one folder: what they contain, and whether somebody is writing them. All of it runs in the folder's own queue
//! ([`crate::files`]), since each call may hang.
//!
//! A file counts when it is complete: closed after a write, renamed into place, or unchanged for a while where there are no
//! events. Events come from inotify on each folder of the path, because replacing a link or a folder replaces the file.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::files::read_now;
use crate::trail::trail;

/// A file of which no event says that it is complete counts after this time without a change.
pub(crate) const QUIET: Duration = Duration::from_millis(300);
/// One that was changed before this time counts at the first sight.
const OLD: Duration = Duration::from_secs(10);
/// A file that was written, and not closed, counts after this time without a change: `truncate` closes nothing, and an event may be
/// lost.
const MAX_OPEN: Duration = Duration::from_secs(60);
/// Within this time of a change its times may stay the same at the next one.
const COARSE: Duration = Duration::from_secs(2);
/// The most attempts to resolve the paths of files while their folders are being watched, should they keep changing.
const MAX_TURNS: usize = 4;

/// A file that is followed, and the most bytes of it that count.
pub(crate) type File = (PathBuf, usize);

/// The result of a look at a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The digest of what it contains; that it is missing has a digest, too.
    Complete(u64),
    /// Somebody is writing it.
    BeingWritten,
}

/// The followed files of a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    events: Arc<Events>,
    watcher: Option<RecommendedWatcher>,
    /// The watched folders: device and inode.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    /// Whether the log has reported that events are missing.
    is_logged: bool,
    sights: BTreeMap<PathBuf, Sight>,
}

/// The events of a folder's files.
#[derive(Debug)]
struct Events {
    wake: Arc<Notify>,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// The names on the ways to all files, and the folders that are followed themselves.
    names: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// Written, and not closed since.
    written: BTreeSet<PathBuf>,
    /// Closed after a write, or renamed into place, since the last look.
    complete: BTreeSet<PathBuf>,
    /// The folders that were moved or removed, until they are watched again: writes there cause no events meanwhile.
    lost: BTreeSet<PathBuf>,
}

/// What a file was like.
#[derive(Debug)]
struct Sight {
    identity: Identity,
    /// Since when.
    since: Instant,
    /// What it contained when it was complete, and when that was read.
    complete: Option<(Identity, u64, SystemTime)>,
}

/// Which file it is, and in which state. Two writes within one tick of the clock leave the same.
type Identity = Result<(u64, u64, u64, SystemTime), io::ErrorKind>;

fn identity(path: &Path) -> Identity {
    let metadata = std::fs::metadata(path).map_err(|error| error.kind())?;
    // The time of its change cannot be set back.
    let since_epoch = Duration::new(
        u64::try_from(metadata.ctime()).unwrap_or_default(),
        u32::try_from(metadata.ctime_nsec()).unwrap_or_default(),
    );
    let changed = SystemTime::UNIX_EPOCH + since_epoch;
    Ok((metadata.dev(), metadata.ino(), metadata.len(), metadata.modified().unwrap_or(changed).max(changed)))
}

impl Folder {
    pub(crate) fn new(path: &Path, wake: Arc<Notify>) -> Self {
        let events = Arc::new(Events { wake, noted: Mutex::default() });
        Self {
            path: path.to_owned(),
            events,
            watcher: None,
            watched: BTreeMap::new(),
            is_logged: false,
            sights: BTreeMap::new(),
        }
    }

    /// Looks at all files. `is_thorough` compares the content also of files that look unchanged. Also returns whether every
    /// change from now on causes an event.
    pub(crate) fn look(&mut self, files: &[File], is_thorough: bool) -> (Vec<(PathBuf, Look)>, bool) {
        self.sights.retain(|path, _| files.iter().any(|(followed, _)| followed == path));
        let (trails, has_events) = self.follow(files);
        let complete = std::mem::take(&mut self.events.noted().complete);
        let looks = files.iter().zip(&trails).map(|((path, limit), trail)| {
            // After a folder or a link was swapped, a file behind it may still be being written.
            let is_complete = trail.last().is_some_and(|name| complete.contains(name));
            let look = self.look_at((path, *limit), trail.last(), is_complete, is_thorough);
            (path.clone(), look.map_or(Look::BeingWritten, |(digest, _)| Look::Complete(digest)))
        });
        (looks.collect(), has_events)
    }

    /// Reads a file. Nothing is read of one that somebody is writing.
    pub(crate) fn read(&mut self, path: &Path, limit: usize) -> Option<(u64, io::Result<Vec<u8>>)> {
        let trail = trail(path);
        let is_complete = trail.last().is_some_and(|name| self.events.noted().complete.contains(name));
        let (known, content) = self.look_at((path, limit), trail.last(), is_complete, true)?;
        let (digest, content) = match content {
            Some(_) => (known, content),
            None => digest(path, limit, identity(path)),
        };
        content.filter(|_| digest == known).map(|content| (digest, content))
    }

    /// Reads a file at once. Nothing is read of one that somebody has written and not closed; one that has changed a moment ago is
    /// read as it is.
    pub(crate) fn read_soon(&self, path: &Path, limit: usize) -> Option<(u64, io::Result<Vec<u8>>)> {
        let sight = self.sights.get(path);
        // A writer, if there is one, may write another file that had this name.
        let is_complete =
            sight.and_then(|sight| sight.complete).is_some_and(|(complete, ..)| complete == identity(path));
        let is_recent = sight.is_none_or(|sight| sight.since.elapsed() < MAX_OPEN);
        if is_recent && !is_complete && trail(path).last().is_some_and(|real| self.events.is_written(real)) {
            return None;
        }
        let (digest, content) = digest(path, limit, identity(path));
        Some((digest, content.unwrap_or_else(|| read_now(path, limit))))
    }

    /// Returns the digest of a file that is complete, and its content if it was read.
    fn look_at(
        &mut self,
        (path, limit): (&Path, usize),
        real: Option<&PathBuf>,
        is_complete: bool,
        is_thorough: bool,
    ) -> Option<(u64, Option<io::Result<Vec<u8>>>)> {
        let now = identity(path);
        let sight = self.sights.entry(path.to_owned());
        let sight = sight.or_insert_with(|| Sight { identity: now, since: Instant::now(), complete: None });
        if sight.identity != now {
            (sight.identity, sight.since) = (now, Instant::now());
        }
        let is_written = || real.is_some_and(|real| self.events.is_written(real));
        if let Some((identity, digest, read)) = sight.complete.filter(|(identity, ..)| *identity == now) {
            // A writer, if there is one, writes another file that had this name.
            let is_coarse = identity.is_ok_and(|(.., changed)| read < changed + COARSE);
            // A folder looks the same when one of its files is written.
            if is_written() || !(is_thorough || is_coarse || path.is_dir()) {
                return Some((digest, None));
            }
        } else if !is_quiet(sight, is_complete, is_written()) {
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "the times of files are of this clock, right or wrong")]
        let (was_written, read) = (is_written(), SystemTime::now());
        let (digest, content) = digest(path, limit, now);
        if identity(path) != now || (is_written() && !was_written) {
            return None;
        }
        sight.complete = Some((now, digest, read));
        Some((digest, content))
    }

    /// Watches all folders on the ways to the files, and returns these ways, and whether each folder is watched.
    fn follow(&mut self, files: &[File]) -> (Vec<Vec<PathBuf>>, bool) {
        let ways = || files.iter().map(|(path, _)| trail(path)).collect::<Vec<_>>();
        let mut trails = ways();
        for _ in 0..MAX_TURNS {
            let folders = self.events.expect(&trails);
            let failure = self.watch(&folders).err();
            let now = ways();
            if now == trails {
                self.log_missing_events(failure.as_ref());
                return (trails, failure.is_none());
            }
            // A name has changed before its folder was watched.
            trails = now;
        }
        (trails, false)
    }

    /// Watches folders. One that is watched already is added again: the kernel drops a watch when its folder is removed, and
    /// reports it only once.
    fn watch(&mut self, folders: &BTreeSet<PathBuf>) -> notify::Result<()> {
        let mut watcher = match self.watcher.take() {
            Some(watcher) => watcher,
            None => {
                let events = self.events.clone();
                notify::recommended_watcher(move |event| events.note(event))?
            }
        };
        let mut result = Ok(());
        for gone in self.watched.keys().filter(|path| !folders.contains(*path)) {
            let _ = watcher.unwatch(gone);
        }
        self.watched.retain(|path, _| folders.contains(path));
        for folder in folders {
            let Ok(metadata) = std::fs::metadata(folder) else { continue };
            let now = (metadata.dev(), metadata.ino());
            if self.watched.get(folder).is_some_and(|before| *before != now) {
                // The watch follows the former folder to wherever it is.
                let _ = watcher.unwatch(folder);
                self.events.forget(folder);
            }
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.events.is_watched(folder);
                    self.watched.insert(folder.clone(), now);
                }
                Err(error) if folder.exists() => result = Err(error),
                Err(_) => {}
            }
        }
        self.watcher = Some(watcher);
        result
    }

    /// Logs once that events are missing.
    fn log_missing_events(&mut self, failure: Option<&notify::Error>) {
        if let (Some(error), false) = (failure, self.is_logged) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot watch files for changes, which are looked at every second instead");
        }
        self.is_logged = failure.is_some();
    }
}

/// Whether a file may be read that has changed since it was complete.
fn is_quiet(sight: &Sight, is_complete: bool, is_written: bool) -> bool {
    let unchanged = sight.since.elapsed();
    match sight.identity {
        Err(_) => true,
        Ok(_) if is_written => unchanged >= MAX_OPEN,
        Ok((.., changed)) => {
            // The clock of a file server may differ from this one's.
            is_complete || unchanged >= QUIET || changed.elapsed().is_ok_and(|elapsed| elapsed >= OLD)
        }
    }
}

/// The digest of a file that contains exactly this now.
pub(crate) fn digest_of(path: &Path, content: &[u8]) -> Option<u64> {
    let (digest, read) = digest(path, content.len(), identity(path));
    read?.is_ok_and(|read| read == content).then_some(digest)
}

/// The digest of what a file or a folder contains, and the content of a file.
fn digest(path: &Path, limit: usize, identity: Identity) -> (u64, Option<io::Result<Vec<u8>>>) {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        let entries: BTreeMap<_, _> =
            entries.map(|entry| (entry.file_name(), self::identity(&entry.path()).ok())).collect();
        entries.hash(&mut hasher);
        return (hasher.finish(), None);
    }
    let content = read_now(path, limit);
    match &content {
        Ok(bytes) => (true, bytes).hash(&mut hasher),
        // It is not read, so that only its identity shows a change.
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => identity.ok().hash(&mut hasher),
        Err(error) => (false, error.kind()).hash(&mut hasher),
    }
    (hasher.finish(), Some(content))
}

impl Events {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the events on these ways from now on. Returns the folders to watch.
    fn expect(&self, trails: &[Vec<PathBuf>]) -> BTreeSet<PathBuf> {
        let mut noted = self.noted();
        noted.names = trails.iter().flatten().cloned().collect();
        let is_folder = |path: &&PathBuf| path.is_dir();
        noted.folders = trails.iter().filter_map(|trail| trail.last()).filter(is_folder).cloned().collect();
        let watched: BTreeSet<_> = noted.watched().map(Path::to_owned).collect();
        noted.lost.retain(|folder| watched.contains(folder));
        // A file that is no longer followed is not recorded: it counts as new when it is followed again.
        let Noted { names, folders, written, complete, .. } = &mut *noted;
        let is_expected = |path: &PathBuf| is_on(names, folders, path);
        written.retain(is_expected);
        complete.retain(is_expected);
        watched
    }

    /// Forgets what was written in a folder that is another one now.
    fn forget(&self, folder: &Path) {
        self.noted().forget(folder);
    }

    /// Notes that events of a folder arrive from now on.
    fn is_watched(&self, folder: &Path) {
        self.noted().lost.remove(folder);
    }

    fn is_written(&self, path: &Path) -> bool {
        self.noted().written.iter().any(|written| written == path || written.parent() == Some(path))
    }

    /// Notes an event. It runs on the thread of notify.
    fn note(&self, event: notify::Result<notify::Event>) {
        let mut noted = self.noted();
        let Some(event) = event.ok().filter(|event| !event.need_rescan()) else {
            // Events were lost: what was not closed may be by now.
            noted.written.clear();
            self.wake.notify_one();
            return;
        };
        for path in event.paths {
            let is_gone = matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
            if is_gone && noted.watched().any(|folder| folder == path) {
                // notify drops the watch of a folder that is moved, and the kernel that of one that is removed. The events that are
                // left come from a time before.
                noted.forget(&path);
                noted.lost.insert(path.clone());
            }
            if is_on(&noted.names, &noted.folders, &path) && noted.note(event.kind, path) {
                self.wake.notify_one();
            }
        }
    }
}

/// Whether a path is on the way to a file, or in a folder that is followed itself.
fn is_on(names: &BTreeSet<PathBuf>, folders: &BTreeSet<PathBuf>, path: &Path) -> bool {
    names.contains(path) || path.parent().is_some_and(|parent| folders.contains(parent))
}

impl Noted {
    /// The folders to watch.
    fn watched(&self) -> impl Iterator<Item = &Path> {
        let parents = self.names.iter().filter_map(|name| name.parent());
        parents.chain(self.folders.iter().map(PathBuf::as_path))
    }

    /// Forgets what was written below a folder.
    fn forget(&mut self, folder: &Path) {
        self.written.retain(|path| !path.starts_with(folder));
        self.complete.retain(|path| !path.starts_with(folder));
    }

    /// Notes what happened to a name. Returns whether a file may be another now.
    fn note(&mut self, kind: EventKind, path: PathBuf) -> bool {
        match kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.complete.remove(&path);
                self.written.insert(path);
                return false;
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                self.written.remove(&path);
                if !self.lost.iter().any(|folder| path.starts_with(folder)) {
                    self.complete.insert(path);
                }
            }
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => drop(self.written.remove(&path)),
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Metadata(_)) => {}
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use notify::Event;
    use notify::event::{DataChange, RemoveKind};

    use super::*;

    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const MOVED_HERE: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    const MOVED_AWAY: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));

    fn events() -> Events {
        Events { wake: Arc::default(), noted: Mutex::default() }
    }

    fn follow(events: &Events, files: &[&str]) {
        // The file is the end of the way.
        let trail = |file: &&str| {
            let mut names: Vec<_> = Path::new(file).ancestors().map(Path::to_owned).collect();
            names.reverse();
            names
        };
        events.expect(&files.iter().map(trail).collect::<Vec<_>>());
    }

    fn note(events: &Events, kind: EventKind, path: &str) {
        events.note(Ok(Event::new(kind).add_path(path.into())));
    }

    fn is_complete(events: &Events, path: &str) -> bool {
        events.noted().complete.contains(Path::new(path))
    }

    /// A configuration stops naming a module while somebody writes it, and names it again.
    #[test]
    fn who_wrote_a_file_that_was_not_followed_meanwhile_is_not_waited_for() {
        let events = events();
        follow(&events, &["/f/one", "/f/two"]);
        note(&events, WRITTEN, "/f/two");
        assert!(events.is_written(Path::new("/f/two")));
        follow(&events, &["/f/one"]);
        note(&events, CLOSED, "/f/two");
        follow(&events, &["/f/one", "/f/two"]);
        assert!(!events.is_written(Path::new("/f/two")));
        note(&events, CLOSED, "/f/two");
        assert!(is_complete(&events, "/f/two"));
        follow(&events, &["/f/one"]);
        follow(&events, &["/f/one", "/f/two"]);
        assert!(!is_complete(&events, "/f/two"), "it may be half by now");
    }

    /// notify reads several events at once, and drops the watch of a folder that was moved after the last of them.
    #[test]
    fn what_was_complete_before_its_folder_was_moved_is_not_complete_after_that() {
        let events = events();
        for gone in [MOVED_AWAY, EventKind::Remove(RemoveKind::Folder)] {
            follow(&events, &["/live/f/one"]);
            note(&events, MOVED_HERE, "/live/f/one");
            note(&events, gone, "/live/f");
            assert!(!is_complete(&events, "/live/f/one"));
            note(&events, MOVED_HERE, "/live/f/one");
            assert!(!is_complete(&events, "/live/f/one"), "nobody sees who writes it now");
            follow(&events, &["/live/f/one"]);
            assert!(!is_complete(&events, "/live/f/one"));
            events.is_watched(Path::new("/live/f"));
            note(&events, MOVED_HERE, "/live/f/one");
            assert!(is_complete(&events, "/live/f/one"));
        }
    }
}
