//! The cache directory. It has compiled code, which the daemon maps, and permissions of clients, so it must belong to the
//! daemon alone.

mod former;
mod tidy;

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_process::files;

pub(crate) use self::former::former_place;
use self::former::take_over;
use crate::config::ServeConfig;

/// The longest copy of what an earlier release kept elsewhere: 512 MiB, on a slow disk.
const TAKE_OVER: Duration = Duration::from_secs(300);
/// The permissions of group and others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the cache directory of the daemon. Where a full, read-only or hanging disk has none, or this user may not reach it, the daemon
/// runs as without one: a cache is no reason not to serve.
///
/// # Errors
/// As [`cache_directory`].
pub(crate) async fn daemon_cache_directory(
    config: &mut ServeConfig,
) -> io::Result<(PathBuf, Option<tempfile::TempDir>)> {
    let Some(path) = config.cache_dir.clone() else { return cache_directory(None) };
    let directory = path.clone();
    let create = move || cache_directory(Some(directory)).inspect(|(path, _)| tidy::tidy(path));
    match files::at(&path, files::DEADLINE, create).await {
        Err(error) if is_of_disk(error.kind()) => {
            let path = path.display();
            tracing::error!(%path, %error, "the cache directory cannot be used, nothing is kept on disk until a restart");
            (config.cache_dir, config.disk_cache) = (None, None);
            cache_directory(None)
        }
        created => created,
    }
}

/// Takes over what an earlier release kept in another place. Returns the cache directory to use.
pub(crate) async fn take_over_former(directory: PathBuf) -> PathBuf {
    let here = directory.clone();
    let take_over = move || Ok(former_place(&here).map(|former| take_over(&former, here)));
    files::at(&directory, TAKE_OVER, take_over).await.ok().flatten().unwrap_or(directory)
}

fn is_of_disk(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull, TimedOut};
    matches!(kind, ReadOnlyFilesystem | StorageFull | QuotaExceeded | PermissionDenied | TimedOut)
}

/// Returns the cache directory, or a temporary one that is removed when the process ends.
///
/// # Errors
/// The directory cannot be created, or others own it or may write to it.
pub(crate) fn cache_directory(configured: Option<PathBuf>) -> io::Result<(PathBuf, Option<tempfile::TempDir>)> {
    if let Some(path) = configured {
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        // The kind stays: it says whether the disk is the reason.
        created
            .map_err(|error| io::Error::new(error.kind(), format!("{} cannot be created: {error}", path.display())))?;
        check_owner(&path)?;
        return Ok((path, None));
    }
    // The root of a container may be read-only.
    let temporary = tempfile::tempdir().or_else(|_| tempfile::tempdir_in("/dev/shm"))?;
    tracing::info!("--cache-dir is not set: modules are compiled at each start");
    Ok((temporary.path().to_owned(), Some(temporary)))
}

/// Checks that the directory is the daemon's alone. What is in it was then put there by this user, or by root.
fn check_owner(path: &Path) -> io::Result<()> {
    let (own, metadata) = (rustix::process::geteuid().as_raw(), path.metadata()?);
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own || mode & OTHERS_WRITE != 0 {
        let path = path.display();
        return Err(io::Error::other(format!(
            "{path} belongs to uid {owner} with mode {mode:o}: it must belong to uid {own}, and nobody else may write to it"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/cache");
        assert_eq!(cache_directory(Some(path.clone())).unwrap().0, path);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for (mode, accepted) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, false), (0o750, true)] {
            allow(&path, mode);
            let checked = cache_directory(Some(path.clone()));
            assert_eq!(checked.is_ok(), accepted, "{mode:o}");
        }
        allow(&path, 0o777);
        let error = cache_directory(Some(path)).unwrap_err().to_string();
        assert!(error.contains("new/cache belongs to uid") && error.contains("mode 777"), "{error}");
    }
}
