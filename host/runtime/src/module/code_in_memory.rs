//! Compiled code in memory, for a disk that cannot be written: a folder of a file system in memory, with an engine that reads it.
//!
//! The folder is there from the start of the compiling process until the code is loaded. All processes with the same cache have
//! the same folder, one after the other, so that a killed one leaves nothing for good.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::code::code_cache;
use crate::Engine;
use weir_spec::Digest;

/// A file system in memory. Containers have one, too, also where their root is read-only.
pub(super) const MEMORY: &str = "/dev/shm";

/// The folder, and the engine for what is in it.
#[derive(Debug)]
pub(super) struct CodeInMemory {
    pub(super) engine: Engine,
    pub(super) directory: PathBuf,
}

impl CodeInMemory {
    /// Creates the folder in place of the cache directory `cache`. `former` is what the process had before.
    ///
    /// # Errors
    /// It can be created nowhere.
    pub(super) fn begin(former: Option<Self>, cache: &Path) -> io::Result<Self> {
        if let Some(former) = former {
            create(&former.directory)?;
            return Ok(former);
        }
        let name = format!("weir-{}", Digest::of(cache.as_os_str().as_encoded_bytes()).hex());
        let mut reasons = Vec::new();
        for place in [PathBuf::from(MEMORY), std::env::temp_dir()] {
            let directory = place.join(&name);
            let engine = create(&directory).and_then(|()| {
                let engine = Engine::new(Some(&code_cache(&directory)));
                engine.map_err(io::Error::other)
            });
            match engine {
                Ok(engine) => return Ok(Self { engine, directory }),
                Err(error) => reasons.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(io::Error::other(reasons.join("; ")))
    }

    /// Removes the folder.
    pub(super) fn end(&self) {
        if let Err(error) = remove(&self.directory) {
            tracing::warn!(path = %self.directory.display(), %error, "compiled code in memory cannot be removed");
        }
    }
}

/// Creates an empty folder for this user alone. Anybody may write beside it.
fn create(directory: &Path) -> io::Result<()> {
    remove(directory)?;
    DirBuilder::new().mode(0o700).create(directory)
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_folder_is_empty_for_this_user_alone_and_gone_at_the_end() {
        let cache = tempfile::tempdir().unwrap();
        let memory = CodeInMemory::begin(None, cache.path()).unwrap();
        let directory = memory.directory.clone();
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(directory.join("code").join("left by a killed process"), "").unwrap();
        let again = CodeInMemory::begin(None, cache.path()).unwrap();
        assert_eq!(again.directory, directory);
        assert_eq!(fs::read_dir(code_cache(&directory)).unwrap().count(), 0);
        again.end();
        assert!(!directory.exists());
        let memory = CodeInMemory::begin(Some(memory), cache.path()).unwrap();
        assert!(memory.directory.is_dir());
        memory.end();
    }
}
