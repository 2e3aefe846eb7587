//! Takes the cache directory over from where an earlier release had it.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use weir_store::disk::DiskConfig;

use super::check_owner;

/// Where the manifests had the cache directory before: what cleans the disk deletes below it.
const FORMER: &str = "/var/cache/weir";
/// Where they have it.
const PRESENT: &str = "/var/lib/weir";

/// Where an earlier release had this cache directory.
pub(crate) fn former_place(directory: &Path) -> Option<PathBuf> {
    let below = directory.strip_prefix(PRESENT).ok()?;
    Some(Path::new(FORMER).join(below))
}

/// Whether an earlier release has left something in another place, and this directory does not exist yet.
pub(crate) fn is_left(former: &Path, directory: &Path) -> bool {
    let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    is_there(former) && !is_there(directory)
}

/// Decides about a copy that takes long: the complete copy takes the turn, or the waiting start does. The first one wins.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicBool);

impl Turn {
    /// Whether this is the first one.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Copies what an earlier release has left in another place. The original stays for a roll-back. The watch cache may be large: it
/// takes itself over, while it is read. Returns the directory to use: the former one if it cannot be copied, or if nobody waits for
/// the copy any more.
pub(crate) fn take_over(former: &Path, directory: PathBuf, turn: &Turn) -> PathBuf {
    let (from, to) = (former.display(), directory.display());
    match check_owner(former).and_then(|()| copy_directory(former, &directory, turn)) {
        Ok(()) => {
            tracing::info!(%from, %to, "the cache directory was copied from its former place, where it stays for a day");
            directory
        }
        Err(error) if check_owner(former).is_ok() => {
            tracing::warn!(%from, %to, %error, "the cache directory cannot be copied from its former place, which is used on");
            former.to_owned()
        }
        Err(error) => {
            tracing::warn!(%from, %to, %error, "nothing is taken over from the former place of the cache directory");
            directory
        }
    }
}

/// Copies a directory and the key beside it. The copy has its name when it is complete and on disk.
fn copy_directory(from: &Path, to: &Path, turn: &Turn) -> io::Result<()> {
    let beside = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (part, key) = (beside(to, ".part"), beside(to, ".key"));
    match std::fs::remove_dir_all(&part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    // One write-out for all files: a disk may take a second for each.
    let written_out = || rustix::fs::syncfs(std::fs::File::open(&part)?).map_err(io::Error::from);
    let copied = has_room(from, &part).and_then(|()| copy_files(from, &part)).and_then(|()| written_out());
    // Otherwise the former place is in use by now, and has what this copy lacks.
    let copied = copied.and_then(|()| match turn.take() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")),
    });
    if copied.is_err() {
        let _ = std::fs::remove_dir_all(&part);
    }
    copied?;
    let former_key = beside(from, ".key");
    if former_key.is_file() && !key.exists() {
        let copied = part.join(".key");
        std::fs::copy(&former_key, &copied)?;
        std::fs::File::open(&copied)?.sync_all()?;
        std::fs::rename(copied, key)?;
    }
    std::fs::rename(&part, to)?;
    std::fs::File::open(to.parent().unwrap_or(to))?.sync_all()
}

/// Whether a copy fits, and leaves as much room again: a full disk stops the node.
fn has_room(from: &Path, to: &Path) -> io::Result<()> {
    let parent = to.parent().unwrap_or(to);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let space = rustix::fs::statvfs(parent)?;
    let (free, needed) = (space.f_bavail.saturating_mul(space.f_frsize), size_of(from)?);
    match free < needed.saturating_mul(2) {
        true => Err(io::Error::new(io::ErrorKind::StorageFull, format!("it has {needed} bytes, and {free} are free"))),
        false => Ok(()),
    }
}

fn size_of(folder: &Path) -> io::Result<u64> {
    std::fs::read_dir(folder)?.try_fold(0_u64, |size, entry| {
        let metadata = entry?.metadata()?;
        Ok(size + if metadata.is_dir() { 0 } else { metadata.len() })
    })
}

/// Copies folders and regular files but watch caches; there are no others but what somebody else has put there.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if DiskConfig::is_watch_cache(&entry.file_name()) {
            continue;
        }
        let (kind, copy) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_files(&entry.path(), &copy)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn what_an_earlier_release_has_left_is_copied_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(former_place(Path::new("/var/lib/weir/cache")), Some("/var/cache/weir/cache".into()));
        assert_eq!(former_place(&path("cache")), None);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        std::fs::create_dir_all(path("former/cache/code")).unwrap();
        write("former/cache/watch-cache.redb", "first");
        write("former/cache/code/a", "code");
        write("former/cache.key", "key");
        std::os::unix::fs::symlink("/etc/passwd", path("former/cache/link")).unwrap();
        // A kill has left a part of a copy.
        std::fs::create_dir_all(path("lib/cache.part")).unwrap();
        write("lib/cache.part/old", "");
        write("former/cache/last-good", "first");
        assert!(is_left(&path("former/cache"), &path("lib/cache")));
        assert_eq!(take_over(&path("former/cache"), path("lib/cache"), &Turn::default()), path("lib/cache"));
        assert_eq!((read("lib/cache/last-good"), read("lib/cache/code/a")), ("first".into(), "code".into()));
        assert_eq!((read("lib/cache.key"), read("former/cache/watch-cache.redb")), ("key".into(), "first".into()));
        for left in ["lib/cache/link", "lib/cache/old", "lib/cache.part", "lib/cache/watch-cache.redb"] {
            assert!(!path(left).exists(), "{left}");
        }
        assert_eq!(path("lib/cache").metadata().unwrap().mode() & 0o777, 0o700);
        assert!(!is_left(&path("former/cache"), &path("lib/cache")), "once");
        // A start that waited uses the former place, and must not leave a copy for the next one.
        let late = Turn::default();
        assert!(late.take());
        assert_eq!(take_over(&path("former/cache"), path("late/cache"), &late), path("former/cache"));
        assert!(!path("late/cache").exists() && !path("late/cache.part").exists());
        // The disk of the new place cannot be written.
        write("full", "");
        assert_eq!(take_over(&path("former/cache"), path("full/cache"), &Turn::default()), path("former/cache"));
        // Files that others may have written are not trusted.
        std::fs::set_permissions(path("former/cache"), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(take_over(&path("former/cache"), path("other/cache"), &Turn::default()), path("other/cache"));
        assert!(!path("other/cache").exists());
    }
}
