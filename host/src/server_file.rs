//! Keeps the URLs of the API servers in a file of the cache directory, for a start whose own credential cannot be read.

use std::path::{Path, PathBuf};

use http::Uri;

use crate::bounded_file::read_file;

/// The name of the file: a URL in each line.
const NAME: &str = "api-servers";
const MAX: usize = 64 << 10;

/// The file of the API servers.
#[derive(Debug)]
pub(crate) struct ServerFile(PathBuf);

impl ServerFile {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// The servers of the last start with a credential. What is not readable counts as none.
    pub(crate) fn read(&self) -> Vec<Uri> {
        let text = match read_file(&self.0, MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            read => read.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)),
        };
        let urls = text.and_then(|text| {
            let urls: Result<Vec<_>, _> = text.lines().map(str::parse).collect();
            urls.map_err(std::io::Error::other)
        });
        let path = self.0.display();
        urls.inspect_err(|error| tracing::warn!(%path, %error, "the URLs of the API servers on disk are not used"))
            .unwrap_or_default()
    }

    /// Keeps the servers of this start.
    pub(crate) fn write(&self, servers: &[Uri]) {
        if self.read() == servers {
            return;
        }
        let text: String = servers.iter().map(|url| format!("{url}\n")).collect();
        let temporary = self.0.with_extension("new");
        let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &self.0));
        if let Err(error) = written {
            tracing::warn!(path = %self.0.display(), %error, "the URLs of the API servers cannot be kept on disk");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_come_back_and_a_damaged_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path());
        assert!(file.read().is_empty());
        let servers: Vec<Uri> = ["https://10.0.0.1:6443", "https://[fd00::1]"].map(|url| url.parse().unwrap()).into();
        file.write(&servers);
        assert_eq!(file.read(), servers);
        for damaged in [&b"https://10.0.0.1\nhttp://[\n"[..], b"", b"\xff\xfe"] {
            std::fs::write(folder.path().join(NAME), damaged).unwrap();
            assert!(file.read().is_empty(), "{damaged:?}");
        }
        std::fs::remove_file(folder.path().join(NAME)).unwrap();
        std::fs::create_dir(folder.path().join(NAME)).unwrap();
        assert!(file.read().is_empty());
    }
}
