//! File work with a deadline, each place on a thread of its own.
//!
//! A place is a folder that may hang apart from others, mostly a mount. Its work runs one after another, so that work that hangs
//! costs one parked thread, however many callers there are. Callers get an error within the deadline, and continue with what was
//! read last. The threads are those of tokio for blocking work: none serves requests, and the end of the daemon waits for none
//! of them.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The deadline of reads and of small writes.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of what writes megabytes and waits until they are on disk. A cheap flash disk takes seconds.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(60);

/// The work of a place, one after another.
#[derive(Debug)]
struct WorkQueue {
    turn: Arc<Semaphore>,
    /// Since when work is overdue.
    hangs: Mutex<Option<Instant>>,
}

/// The places that were used. A daemon has some ten of them.
static QUEUES: LazyLock<Mutex<WorkQueues>> = LazyLock::new(Mutex::default);

type WorkQueues = HashMap<(PathBuf, Kind), Arc<WorkQueue>>;

/// Work that runs one after another. Reads do not wait for a disk that is slow to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Read,
    Write,
}

fn queue(place: &Path, kind: Kind) -> Arc<WorkQueue> {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    // Abandoned work still holds its queue.
    queues.retain(|_, queue| Arc::strong_count(queue) > 1);
    queues
        .entry((place.to_owned(), kind))
        .or_insert_with(|| Arc::new(WorkQueue { turn: Arc::new(Semaphore::new(1)), hangs: Mutex::default() }))
        .clone()
}

/// Does work on the files of a place, away from the threads that serve. Dropping the future, or the deadline, leaves work that has
/// begun to end by itself.
///
/// # Errors
/// Those of the work. [`io::ErrorKind::TimedOut`] if it has not ended within the deadline, or if the work before it hangs.
pub async fn at<T: Send + 'static>(
    place: &Path,
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(queue(place, Kind::Read), place, deadline, work).await
}

/// Runs work that writes and may wait for the disk. Reads of files of the place do not wait for it.
///
/// # Errors
/// As [`at`].
pub async fn writing(place: &Path, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    writing_within(place, WRITE_DEADLINE, work).await
}

/// Does work that writes, as [`writing`] does, within another deadline.
///
/// # Errors
/// As [`at`].
pub async fn writing_within<T: Send + 'static>(
    place: &Path,
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(queue(place, Kind::Write), place, deadline, work).await
}

async fn within<T: Send + 'static>(
    queue: Arc<WorkQueue>,
    place: &Path,
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if let Some(since) = queue.hanging_since() {
        return Err(overdue(place, since.elapsed()));
    }
    let asked = Instant::now();
    let done = tokio::time::timeout(deadline, queue.clone().run(work)).await;
    done.unwrap_or_else(|_| {
        queue.note_overdue(place, asked);
        Err(overdue(place, asked.elapsed()))
    })
}

/// Does work on a thread of its own, for what is read before there is a runtime. `None` if it has not ended within the deadline.
pub fn before_the_start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = std::sync::mpsc::sync_channel(1);
    // Nobody may wait for it any more.
    let thread = std::thread::Builder::new().name("files".to_owned()).spawn(move || drop(done.send(work())));
    thread.ok().and_then(|_| result.recv_timeout(DEADLINE).ok())
}

/// Begins work on the files of a folder that nobody waits for. A failure is logged in these words, with the path.
pub fn begin(path: &Path, failed: &'static str, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    let path = path.to_owned();
    #[expect(clippy::disallowed_methods, reason = "the end of the daemon does not wait for files")]
    tokio::spawn(async move {
        if let Err(error) = writing(folder_of(&path), work).await {
            tracing::warn!(path = %path.display(), %error, "{failed}");
        }
    });
}

/// Reads a file of at most `limit` bytes, as [`read_now`] does, away from the threads that serve.
///
/// # Errors
/// Those of [`read_now`] and of [`at`].
pub async fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = path.to_owned();
    at(folder_of(path), DEADLINE, move || read_now(&file, limit)).await
}

/// Reads a regular file of at most `limit` bytes, on this thread. Links are followed: Kubernetes mounts volumes with them. It neither
/// waits for a FIFO nor reads a device, and of a file that is too large it reads nothing.
///
/// # Errors
/// The file is larger, or is no regular file, or cannot be read.
pub fn read_now(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let too_large = |size: u64| {
        let message = format!("it has {size} bytes, and at most {limit} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if metadata.len() > limit as u64 {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // It may grow while it is read.
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// Replaces a file, as [`replace_now`] does, away from the threads that serve. Of two for one path the later one stays.
///
/// # Errors
/// Those of [`replace_now`] and of [`at`].
pub async fn replace(path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let file = path.to_owned();
    writing(folder_of(path), move || replace_now(&file, &bytes)).await
}

/// Replaces a file by one of this user alone, on this thread. The former content stays if that fails, or if the machine stops.
///
/// # Errors
/// It cannot be written.
pub fn replace_now(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let part = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&part, path)?;
    File::open(folder)?.sync_all()
}

/// Removes a file, on this thread. One that is not there is removed.
///
/// # Errors
/// It cannot be removed.
pub fn remove_now(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The folder of a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn overdue(place: &Path, time: Duration) -> io::Error {
    let message = format!("{} has not answered for {:.0?}", place.display(), time);
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The turn of work that is being done. It ends with it, also in a panic.
struct Turn {
    queue: Arc<WorkQueue>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.note_end();
    }
}

impl WorkQueue {
    /// Does work when it is its turn.
    async fn run<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.turn.clone().acquire_owned().await.map_err(io::Error::other)?;
        let turn = Turn { queue: self, _permit: permit };
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(io::Error::other)?
    }

    fn hanging_since(&self) -> Option<Instant> {
        *self.hangs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the work at hand hangs, unless it has ended right now.
    fn note_overdue(&self, place: &Path, asked: Instant) {
        let mut hangs = self.hangs.lock().unwrap_or_else(PoisonError::into_inner);
        if self.turn.available_permits() == 0 && hangs.is_none() {
            *hangs = Some(asked);
            tracing::warn!(path = %place.display(), time = ?asked.elapsed(), "a file system does not answer: what was read last counts");
        }
    }

    fn note_end(&self) {
        let since = self.hangs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = since {
            tracing::info!(time = ?since.elapsed(), "a file system answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Work that hangs until the sender is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl FnOnce() -> io::Result<()> + Send) {
        let (release, held) = mpsc::channel();
        (release, move || held.recv().map_or(Ok(()), Ok))
    }

    #[tokio::test]
    async fn work_that_hangs_delays_nobody_longer_than_the_deadline_and_costs_one_thread() {
        let folder = tempfile::tempdir().unwrap();
        let (release, work) = hanging();
        let deadline = Duration::from_millis(50);
        let error = at(folder.path(), deadline, work).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        // At once, and without a thread.
        for _ in 0..100 {
            let later = at(folder.path(), Duration::from_secs(600), || Ok(()));
            assert_eq!(later.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        let other = tempfile::tempdir().unwrap();
        assert_eq!(at(other.path(), DEADLINE, || Ok(7)).await.unwrap(), 7, "another place answers");
        drop(release);
        while at(folder.path(), DEADLINE, || Ok(())).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_that_waits_for_its_turn_has_a_deadline_too() {
        let folder = tempfile::tempdir().unwrap();
        let (release, work) = hanging();
        let first = at(folder.path(), Duration::from_secs(600), work);
        let second = at(folder.path(), Duration::from_millis(50), || Ok(()));
        tokio::select! {
            biased;
            _ = first => panic!("it hangs"),
            second = second => assert_eq!(second.unwrap_err().kind(), io::ErrorKind::TimedOut),
        }
        drop(release);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_belongs_to_this_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        for text in ["one", "two"] {
            replace_now(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        remove_now(&path).unwrap();
        remove_now(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        assert_eq!(read_now(&path("link"), 5).unwrap(), b"12345");
        let error = |name: &str, limit| read_now(&path(name), limit).unwrap_err().to_string();
        assert_eq!(error("file", 4), "it has 5 bytes, and at most 4 are read");
        for name in ["zero", "fifo", "."] {
            assert_eq!(error(name, 4), "it is not a regular file", "{name}");
        }
        assert!(error("nothing", 4).contains("No such file"));
        // A huge file is not read: `set_len` makes one that takes no space.
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(error("huge", 4), format!("it has {} bytes, and at most 4 are read", 1_u64 << 40));
    }
}
