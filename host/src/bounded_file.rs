//! Reads a file that somebody else has put there: a module, a manifest, objects.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file of at most `limit` bytes. Links are followed: Kubernetes mounts volumes with them. It neither waits for
/// a FIFO nor reads a device.
///
/// # Errors
/// The file is larger, or is no regular file, or cannot be read.
pub(crate) fn read_file(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        assert_eq!(read_file(&path("link"), 5).unwrap(), b"12345");
        let error = |name: &str, limit| read_file(&path(name), limit).unwrap_err().to_string();
        assert_eq!(error("file", 4), "larger than 4 bytes");
        for name in ["zero", "fifo", "."] {
            assert_eq!(error(name, 4), "it is not a regular file", "{name}");
        }
        assert!(error("nothing", 4).contains("No such file"));
    }
}
