//! Compiled code on disk. It is machine code, so the daemon maps no byte of it that the compiling process has not written.
//!
//! The process compiles into an empty cache beside the daemon's. The daemon moves what it finds there into its own cache, and
//! writes the digest of the code into a marker. Before the code is loaded, its digest must be that of the marker; otherwise the
//! module is compiled again.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use weir_spec::Digest;

/// The longest marker in bytes: a path and a digest.
const MARKER: u64 = 4096;

/// The compiled code of one module.
#[derive(Debug, Clone)]
pub(super) struct CompiledCode {
    /// The daemon's cache of compiled code.
    cache: PathBuf,
    /// Names the code and its digest.
    marker: PathBuf,
    /// The cache directory of the compiling process.
    child: PathBuf,
}

/// Returns the folder of the compiled code in a cache directory.
#[must_use]
pub(super) fn code_cache(directory: &Path) -> PathBuf {
    directory.join("code")
}

impl CompiledCode {
    /// The code of a module in the daemon's cache directory.
    pub(super) fn new(directory: &Path, module: &Digest) -> Self {
        let name = format!("{}-{}", env!("CARGO_PKG_VERSION"), module.hex());
        Self {
            cache: code_cache(directory),
            marker: directory.join("compiled").join(name),
            child: directory.join("compiling"),
        }
    }

    /// The cache directory of the compiling process.
    pub(super) fn child_directory(&self) -> &Path {
        &self.child
    }

    /// Whether the code is there as it was compiled. Otherwise it makes room for the compiling process, which leaves about as
    /// many bytes as the module has.
    ///
    /// # Errors
    /// It exists and cannot be read, or there is no room. Compiling may take minutes, so that is found out before.
    pub(super) fn prepare(&self, room: u64) -> io::Result<bool> {
        let is_intact = self.is_intact()?;
        if !is_intact {
            self.remove_child()?;
            fs::create_dir_all(&self.child)?;
            self.check_room(room)?;
        }
        Ok(is_intact)
    }

    fn check_room(&self, room: u64) -> io::Result<()> {
        let path = self.child.join("room");
        let file = fs::File::create(&path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, room.max(1)) {
            // Not all file systems can.
            Ok(()) | Err(Errno::OPNOTSUPP) => fs::remove_file(path),
            Err(error) => {
                self.remove_child()?;
                Err(error.into())
            }
        }
    }

    fn is_intact(&self) -> io::Result<bool> {
        let (path, digest) = match self.read_marker() {
            Ok(marker) => marker,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return dropped(&self.marker, &error.to_string()),
        };
        let path = self.cache.join(&path);
        match digest_of(&path) {
            Ok(found) if found == digest => Ok(true),
            Ok(_) => dropped(&path, "it is not what was compiled"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => dropped(&path, &error.to_string()),
        }
    }

    /// Takes the code of the compiling process, if it succeeded.
    ///
    /// # Errors
    /// It has left none.
    pub(super) fn end(&self, succeeded: bool) -> io::Result<()> {
        let taken = if succeeded { self.take() } else { Ok(()) };
        self.remove_child()?;
        taken
    }

    fn take(&self) -> io::Result<()> {
        let root = code_cache(&self.child);
        let mut files = Vec::new();
        files_below(&root, &mut files)?;
        let code = files.iter().find(|path| is_code(path));
        let missing = || format!("the compiling process has left no code in {}", root.display());
        let code = code.ok_or_else(|| io::Error::other(missing()))?;
        let path = code.strip_prefix(&root).map_err(io::Error::other)?;
        let digest = digest_of(code)?;
        let target = self.cache.join(path);
        fs::create_dir_all(target.parent().unwrap_or(&self.cache))?;
        remove_folder(&target)?;
        fs::rename(code, &target)?;
        let folder = self.marker.parent().unwrap_or(&self.cache);
        fs::create_dir_all(folder)?;
        let mut marker = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(marker, "{digest} {}", path.display())?;
        remove_folder(&self.marker)?;
        marker.persist(&self.marker)?;
        Ok(())
    }

    /// The path of the code below the cache, and its digest.
    fn read_marker(&self) -> io::Result<(PathBuf, String)> {
        let mut text = String::new();
        fs::File::open(&self.marker)?.take(MARKER).read_to_string(&mut text)?;
        let is_below = |path: &str| Path::new(path).components().all(|it| matches!(it, Component::Normal(_)));
        let found = text.trim_end().split_once(' ').filter(|(_, path)| is_below(path) && !path.contains('\n'));
        let (digest, path) = found.ok_or_else(|| io::Error::other("it names no code and no digest"))?;
        Ok((path.into(), digest.to_owned()))
    }

    fn remove_child(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.child) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Removes what cannot be used of compiled code: the module is compiled again.
fn dropped(path: &Path, reason: &str) -> io::Result<bool> {
    tracing::warn!(path = %path.display(), reason, "compiled code on disk cannot be used: the module is compiled again");
    remove_folder(path)?;
    match fs::remove_file(path) {
        // A marker that is damaged may name what no file can be called.
        Err(error) if fs::symlink_metadata(path).is_ok() => Err(error),
        _ => Ok(false),
    }
}

/// Makes room for a file where there is a folder.
fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        _ => Ok(()),
    }
}

/// Whether a file is code. Files that wasmtime keeps beside it have an extension: statistics, and what it was writing when the
/// process ended.
fn is_code(path: &Path) -> bool {
    path.extension().is_none()
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => files_below(&entry.path(), files)?,
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

fn digest_of(path: &Path) -> io::Result<String> {
    Ok(Digest::of(&fs::read(path)?).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(directory: &Path) -> (CompiledCode, PathBuf) {
        let code = CompiledCode::new(directory, &Digest::of(b"module"));
        assert!(!code.prepare(1).unwrap());
        let folder = code_cache(code.child_directory()).join("modules").join("v");
        fs::create_dir_all(&folder).unwrap();
        for beside in ["x.stats", "x.wip-atomic-write-stats", ".cleanup.wip-7", "../.cleanup.wip-8"] {
            fs::write(folder.join(beside), b"no code").unwrap();
        }
        fs::write(folder.join("x"), b"code").unwrap();
        code.end(true).unwrap();
        assert!(code.is_intact().unwrap() && !code.child_directory().exists());
        (code, code_cache(directory).join("modules/v/x"))
    }

    #[test]
    fn a_changed_bit_in_the_code_or_its_marker_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (code, file) = compiled(folder.path());
        let marker = fs::read(&code.marker).unwrap();
        for bit in 0..8 * marker.len() {
            let mut broken = marker.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            fs::write(&code.marker, &broken).unwrap();
            // The line's end is not part of it.
            let is_end = bit / 8 == marker.len() - 1;
            assert!(is_end || !code.is_intact().unwrap_or(false), "{bit}");
        }
        fs::write(&code.marker, &marker).unwrap();
        for bit in 0..32 {
            let mut broken = *b"code";
            broken[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, broken).unwrap();
            assert!(!code.is_intact().unwrap(), "{bit}");
            assert!(!file.exists(), "it is not there for wasmtime");
        }
    }

    #[test]
    fn a_marker_or_code_of_another_kind_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let (code, file) = compiled(folder.path());
        let texts = ["weir 99.0 {}\nweir".to_owned(), format!("sha256:00 {}", "x".repeat(300)), "\0 \0".to_owned()];
        for text in texts {
            fs::write(&code.marker, text).unwrap();
            assert!(!code.prepare(0).unwrap());
        }
        for path in [&code.marker, &file] {
            let _ = fs::remove_file(path);
            fs::create_dir_all(path.join("more")).unwrap();
        }
        assert!(!code.prepare(0).unwrap());
        compiled(folder.path());
    }

    #[test]
    fn a_marker_names_no_file_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (code, _) = compiled(folder.path());
        let outside = folder.path().join("outside");
        fs::write(&outside, b"code").unwrap();
        for path in ["../outside".to_owned(), outside.display().to_string()] {
            fs::write(&code.marker, format!("{} {path}\n", digest_of(&outside).unwrap())).unwrap();
            assert!(!code.is_intact().unwrap(), "{path}");
        }
    }

    #[test]
    fn a_process_that_failed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let code = CompiledCode::new(folder.path(), &Digest::of(b"module"));
        assert!(!code.prepare(1).unwrap());
        fs::create_dir_all(code_cache(code.child_directory())).unwrap();
        fs::write(code_cache(code.child_directory()).join("half"), b"co").unwrap();
        code.end(false).unwrap();
        assert!(!code.is_intact().unwrap() && !code.child_directory().exists());
        assert!(!code.prepare(1).unwrap());
        assert!(code.end(true).is_err(), "no code");
    }
}
