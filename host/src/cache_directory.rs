//! The cache directory. It has compiled code, which the daemon maps, and permissions of clients, so it must belong to the
//! daemon alone.

mod former;
mod tidy;

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_process::files;

pub(crate) use self::former::former_place;
use self::former::{Turn, is_left, take_over};
use crate::config::ServeConfig;

/// The permissions of group and others to write.
const OTHERS_WRITE: u32 = 0o022;

/// The cache directory of the daemon.
#[derive(Debug)]
pub(crate) struct DaemonCache {
    /// The directory to use.
    pub(crate) path: PathBuf,
    /// Why that of `--cache-dir` is not used, with its path.
    pub(crate) unusable: Option<String>,
    /// Removes the directory, if it is temporary.
    _temporary: Option<tempfile::TempDir>,
}

/// Returns the cache directory of the daemon. Where there is none that is the daemon's alone, on a disk that works, the daemon runs as
/// without one: a cache is no reason not to serve.
///
/// # Errors
/// There is no place for temporary files either.
pub(crate) async fn daemon_cache_directory(config: &mut ServeConfig) -> io::Result<DaemonCache> {
    let created = |(path, temporary), unusable| DaemonCache { path, unusable, _temporary: temporary };
    let Some(path) = config.cache_dir.clone() else { return Ok(created(cache_directory(None)?, None)) };
    let directory = path.clone();
    let create = move || cache_directory(Some(directory)).inspect(|(path, _)| tidy::tidy(path));
    match files::at(&path, files::DEADLINE, create).await {
        Err(error) => {
            let path = path.display();
            tracing::error!(%path, %error, "the cache directory cannot be used, nothing is kept on disk until a restart");
            (config.cache_dir, config.disk_cache) = (None, None);
            Ok(created(cache_directory(None)?, Some(format!("{path}: {error}"))))
        }
        Ok(found) => Ok(created(found, None)),
    }
}

/// Takes over what an earlier release kept in another place. Returns the cache directory to use: the former one where the copy takes
/// too long.
pub(crate) async fn take_over_former(directory: PathBuf) -> PathBuf {
    let Some(former) = former_place(&directory) else { return directory };
    let (from, to) = (former.clone(), directory.clone());
    match files::at(&directory, files::DEADLINE, move || Ok(is_left(&from, &to))).await {
        Ok(true) => {}
        _ => return directory,
    }
    let (from, to, turn) = (former.clone(), directory.clone(), Arc::<Turn>::default());
    let waiting = turn.clone();
    // What is written there, so that the reads of a start do not wait for it.
    let copied = files::writing_within(&directory, files::DEADLINE, move || Ok(take_over(&from, to, &turn))).await;
    copied.unwrap_or_else(|error| {
        if !waiting.take() {
            return directory;
        }
        let (from, to) = (former.display(), directory.display());
        tracing::warn!(%from, %to, %error, "the cache directory cannot be copied from its former place in time, which is used on");
        former
    })
}

/// Returns the cache directory, or a temporary one that is removed when the process ends.
///
/// # Errors
/// The directory cannot be created, or others own it or may write to it.
pub(crate) fn cache_directory(configured: Option<PathBuf>) -> io::Result<(PathBuf, Option<tempfile::TempDir>)> {
    if let Some(path) = configured {
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(|error| io::Error::other(format!("it cannot be created: {error}")))?;
        check_owner(&path)?;
        return Ok((path, None));
    }
    // The root of a container may be read-only.
    let temporary = tempfile::tempdir().or_else(|_| tempfile::tempdir_in("/dev/shm"))?;
    tracing::info!("--cache-dir is not set: modules are compiled at each start");
    Ok((temporary.path().to_owned(), Some(temporary)))
}

/// Checks that the directory is the daemon's alone. Then only this user or root has written its content.
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
