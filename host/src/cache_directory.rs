//! The cache directory. It has compiled code, which the daemon maps, and permissions of clients, so it must belong to the
//! daemon alone.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The permissions of group and others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the cache directory, or a temporary one that is removed when the process ends.
///
/// # Errors
/// The directory cannot be created, or others own it or may write to it.
pub(crate) fn cache_directory(configured: Option<PathBuf>) -> io::Result<(PathBuf, Option<tempfile::TempDir>)> {
    if let Some(path) = configured {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        check_owner(&path)?;
        return Ok((path, None));
    }
    let temporary = tempfile::tempdir()?;
    tracing::info!("--cache-dir is not set: modules are compiled at each start");
    Ok((temporary.path().to_owned(), Some(temporary)))
}

/// Checks the directory, and what the daemon keeps in it.
fn check_owner(path: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for path in [path.to_owned(), path.join("code"), path.join("compiled")] {
        let metadata = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if owner != own || mode & OTHERS_WRITE != 0 {
            let path = path.display();
            return Err(io::Error::other(format!(
                "{path} belongs to uid {owner} with mode {mode:o}: it must belong to uid {own}, and nobody else may write to it"
            )));
        }
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
        std::fs::create_dir(path.join("code")).unwrap();
        allow(&path.join("code"), 0o777);
        let error = cache_directory(Some(path)).unwrap_err().to_string();
        assert!(error.contains("new/cache/code belongs to uid") && error.contains("mode 777"), "{error}");
    }
}
