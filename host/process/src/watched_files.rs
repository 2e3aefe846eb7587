//! Follows files for changes: configuration, modules, certificates, tokens. Only their content counts, not how it came there:
//! written in place, renamed, behind a link or a folder that was swapped, as kubelet does it.
//!
//! Events wake it. As they can get lost, it looks at all files every few seconds as well, and compares what they contain with what
//! its owner has. Memory: a digest for each file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::files::{self, DEADLINE, folder_of};
use crate::folder::{Folder, Look, QUIET, digest_of};

/// The time without an event after which events are over. One swap of a link causes many.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// The longest wait for that.
const MAX_DEBOUNCE: Duration = Duration::from_millis(100);
/// The time between two scans: as long as events are available, and without them.
const SCAN: Duration = Duration::from_secs(5);
const SCAN_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// After this many scans the content is compared of files that look unchanged.
const THOROUGH: u32 = 12;
/// After this time a file that somebody is writing is worth a line.
const LONG: Duration = Duration::from_secs(10);

/// The digest of nothing, which no file has.
const NOTHING: u64 = 0;

/// Files that are followed. Clones follow the same.
#[derive(Debug, Clone, Default)]
pub struct WatchedFiles {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    wake: Arc<Notify>,
    files: Mutex<BTreeMap<PathBuf, Followed>>,
    folders: Mutex<BTreeMap<PathBuf, Arc<Mutex<Folder>>>>,
    /// Whether something may have changed that was not looked at. It survives that the future of a look is dropped.
    is_pending: AtomicBool,
    scan: Mutex<Scan>,
}

#[derive(Debug, Default)]
struct Scan {
    /// When to look without an event; `None`: now.
    next: Option<Instant>,
    number: u32,
}

#[derive(Debug)]
struct Followed {
    limit: usize,
    /// The digest of what the owner has. `None` before the first look.
    known: Option<u64>,
    /// Whether it was read since [`WatchedFiles::begin_load`].
    is_named: bool,
    /// Since when somebody is writing it, and whether the log has that.
    written: Option<(Instant, bool)>,
}

/// What was read of a file.
#[derive(Debug)]
pub enum FileRead {
    /// All of it.
    Complete(Vec<u8>),
    /// Nothing: somebody is writing it.
    BeingWritten,
}

impl WatchedFiles {
    /// Follows these files, and each up to so many bytes. The owner has their content of the first look.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (PathBuf, usize)>) -> Self {
        let this = Self::default();
        this.follow(files);
        this
    }

    /// Looks at all files for the first time: what they contain now is what their owner has.
    pub async fn begin(&self) {
        self.shared.look().await;
    }

    /// Follows these files from now on, and no others. Files that were followed before keep their state.
    pub fn follow(&self, files: impl IntoIterator<Item = (PathBuf, usize)>) {
        let mut followed = self.shared.files();
        let mut before = std::mem::take(&mut *followed);
        let new = |limit| Followed { limit, known: None, is_named: true, written: None };
        followed.extend(files.into_iter().map(|(path, limit)| {
            let known = before.remove(&path).unwrap_or_else(|| new(limit));
            (path, Followed { limit, ..known })
        }));
        let is_used = |folder: &PathBuf| followed.keys().any(|path| folder_of(path) == folder);
        self.shared.folders().retain(|folder, _| is_used(folder));
        drop(followed);
        self.shared.scan().next = None;
        self.shared.wake.notify_one();
    }

    /// Begins a load by [`WatchedFiles::read_soon`].
    pub fn begin_load(&self) {
        self.shared.files().values_mut().for_each(|followed| followed.is_named = false);
    }

    /// Follows those alone that were read since the load began.
    pub fn end_load(&self) {
        self.shared.files().retain(|_, followed| followed.is_named);
    }

    /// Follows a file as well.
    fn add(&self, path: &Path, limit: usize) {
        let new = Followed { limit, known: None, is_named: true, written: None };
        self.shared.files().entry(path.to_owned()).or_insert(new).is_named = true;
        self.shared.scan().next = None;
        self.shared.wake.notify_one();
    }

    /// Reads a file of at most `limit` bytes at once, and follows it. The owner then has this content. Without an event of a
    /// writer, the file is read as it is: for a start that cannot wait, and for formats that show whether they are complete. If
    /// a writer was active, the file changes when it ends.
    ///
    /// # Errors
    /// Those of [`files::read`]. [`io::ErrorKind::ResourceBusy`] while somebody is writing it.
    pub async fn read_soon(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.add(path, limit);
        let (folder, file) = (self.shared.folder(folder_of(path)), path.to_owned());
        let read = move || Ok(folder.lock().unwrap_or_else(PoisonError::into_inner).read_soon(&file, limit));
        match files::at(folder_of(path), DEADLINE, read).await {
            Ok(Some((digest, content))) => {
                self.shared.set_known(path, digest);
                content
            }
            Ok(None) => {
                let busy = io::Error::new(io::ErrorKind::ResourceBusy, "somebody is writing it");
                Err(self.shared.has_nothing(path, busy))
            }
            Err(error) => Err(self.shared.has_nothing(path, error)),
        }
    }

    /// Reads a file of at most `limit` bytes, and waits for a writer for this time. If the file is followed, its owner then has
    /// this content.
    ///
    /// # Errors
    /// Those of [`files::read`].
    pub async fn read(&self, path: &Path, limit: usize, patience: Duration) -> io::Result<FileRead> {
        let deadline = Instant::now() + patience;
        loop {
            let (folder, file) = (self.shared.folder(folder_of(path)), path.to_owned());
            let read = move || Ok(folder.lock().unwrap_or_else(PoisonError::into_inner).read(&file, limit));
            match files::at(folder_of(path), DEADLINE, read).await {
                Ok(Some((digest, content))) => {
                    self.shared.set_known(path, digest);
                    return content.map(FileRead::Complete);
                }
                Ok(None) if Instant::now() < deadline => sleep(QUIET / 4).await,
                Ok(None) => {
                    self.shared.set_known(path, NOTHING);
                    return Ok(FileRead::BeingWritten);
                }
                Err(error) => return Err(self.shared.has_nothing(path, error)),
            }
        }
    }

    /// Whether a file contains exactly this, even while it is being written. If it does, the owner has this content.
    pub async fn still_has(&self, path: &Path, content: &[u8]) -> bool {
        let (file, content) = (path.to_owned(), content.to_owned());
        let found = files::at(folder_of(path), DEADLINE, move || Ok(digest_of(&file, &content))).await;
        found.ok().flatten().map(|digest| self.shared.set_known(path, digest)).is_some()
    }

    /// Resolves when a file that nobody is writing contains something else than its owner has. For one task at a time. Cancel-safe:
    /// no change is lost.
    pub async fn changed(&self) {
        let shared = &*self.shared;
        loop {
            if !shared.is_pending.load(Ordering::Relaxed) {
                tokio::select! {
                    () = shared.wake.notified() => {}
                    () = shared.scan_is_due() => {}
                }
                shared.is_pending.store(true, Ordering::Relaxed);
            }
            let deadline = Instant::now() + MAX_DEBOUNCE;
            while Instant::now() < deadline && timeout(DEBOUNCE, shared.wake.notified()).await.is_ok() {}
            if shared.look().await {
                return;
            }
        }
    }
}

impl Shared {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Followed>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folders(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Mutex<Folder>>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the owner of a file has.
    fn set_known(&self, path: &Path, digest: u64) {
        if let Some(followed) = self.files().get_mut(path) {
            followed.known = Some(digest);
        }
    }

    /// Notes that the owner of a file has not got it, so that it has changed as soon as it can be read.
    fn has_nothing(&self, path: &Path, error: io::Error) -> io::Error {
        self.set_known(path, NOTHING);
        error
    }

    fn scan(&self) -> MutexGuard<'_, Scan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, path: &Path) -> Arc<Mutex<Folder>> {
        let new = || Arc::new(Mutex::new(Folder::new(path, self.wake.clone())));
        self.folders().entry(path.to_owned()).or_insert_with(new).clone()
    }

    async fn scan_is_due(&self) {
        loop {
            let next = self.scan().next;
            match next {
                Some(next) if next > Instant::now() => sleep_until(next).await,
                _ => return,
            }
        }
    }

    /// Looks at all files, and returns as soon as one has changed.
    async fn look(&self) -> bool {
        let is_thorough = {
            let mut scan = self.scan();
            let is_scan = scan.next.is_none_or(|next| next <= Instant::now());
            scan.number = scan.number.wrapping_add(u32::from(is_scan));
            is_scan && scan.number.is_multiple_of(THOROUGH)
        };
        let mut by_folder: BTreeMap<PathBuf, Vec<_>> = BTreeMap::new();
        for (path, followed) in &*self.files() {
            by_folder.entry(folder_of(path).to_owned()).or_default().push((path.clone(), followed.limit));
        }
        let looks = by_folder.into_iter().map(|(place, files)| {
            let folder = self.folder(&place);
            async move {
                let look = move || Ok(folder.lock().unwrap_or_else(PoisonError::into_inner).look(&files, is_thorough));
                files::at(&place, DEADLINE, look).await
            }
        });
        let mut looks: FuturesUnordered<_> = looks.collect();
        self.scan().next = Some(Instant::now() + SCAN);
        while let Some(look) = looks.next().await {
            // A folder that hangs is reported by `files`.
            let Ok((looks_at, has_events)) = look else { continue };
            if !has_events {
                self.look_again(SCAN_WITHOUT_EVENTS);
            }
            if self.merge(looks_at) {
                // The others are looked at the next time.
                self.is_pending.store(!looks.is_empty(), Ordering::Relaxed);
                return true;
            }
        }
        self.is_pending.store(false, Ordering::Relaxed);
        false
    }

    /// Looks again after this time at the latest.
    fn look_again(&self, after: Duration) {
        let at = Instant::now() + after;
        let mut scan = self.scan();
        scan.next = Some(scan.next.map_or(at, |next| next.min(at)));
    }

    /// Notes what a look has found. Returns whether a file has changed.
    fn merge(&self, looks: Vec<(PathBuf, Look)>) -> bool {
        let mut has_changed = false;
        let mut files = self.files();
        for (path, look) in looks {
            let Some(followed) = files.get_mut(&path) else { continue };
            match look {
                Look::Complete(digest) => {
                    has_changed |= followed.known.is_some_and(|known| known != digest);
                    followed.known = Some(digest);
                    followed.written = None;
                }
                Look::BeingWritten => {
                    // Its next content is a change for its owner.
                    followed.known.get_or_insert(NOTHING);
                    self.look_again(QUIET);
                    let (since, is_logged) = followed.written.get_or_insert((Instant::now(), false));
                    if since.elapsed() >= LONG && !*is_logged {
                        *is_logged = true;
                        let path = path.display();
                        tracing::warn!(%path, time = ?since.elapsed(), "a file is still being written: what was read of it last counts");
                    }
                }
            }
        }
        has_changed
    }
}
