//! Keeps the URLs of the API servers in a file of the cache directory, for a start whose own credential cannot be read.

use std::path::{Path, PathBuf};

use http::Uri;

use weir_process::files;

/// The name of the file: a URL in each line.
pub(crate) const NAME: &str = "api-servers";
const MAX: usize = 64 << 10;

/// The file of the API servers.
#[derive(Debug)]
pub(crate) struct ServerFile(PathBuf);

impl ServerFile {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// The servers of the last start with a credential. Unreadable content counts as none.
    pub(crate) async fn read(&self) -> Vec<Uri> {
        let text = match files::read(&self.0, MAX).await {
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
    pub(crate) async fn write(&self, servers: &[Uri]) {
        if self.read().await == servers {
            return;
        }
        let text: String = servers.iter().map(|url| format!("{url}\n")).collect();
        let path = self.0.clone();
        // The start does not wait for it: a disk may hang.
        let write = move || files::replace_now(&path, text.as_bytes());
        files::begin(&self.0, "the URLs of the API servers cannot be kept on disk", write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_servers_come_back_and_a_damaged_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path());
        assert!(file.read().await.is_empty());
        let servers: Vec<Uri> = ["https://10.0.0.1:6443", "https://[fd00::1]"].map(|url| url.parse().unwrap()).into();
        file.write(&servers).await;
        while file.read().await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(file.read().await, servers);
        for damaged in [&b"https://10.0.0.1\nhttp://[\n"[..], b"", b"\xff\xfe"] {
            std::fs::write(folder.path().join(NAME), damaged).unwrap();
            assert!(file.read().await.is_empty(), "{damaged:?}");
        }
        std::fs::remove_file(folder.path().join(NAME)).unwrap();
        std::fs::create_dir(folder.path().join(NAME)).unwrap();
        assert!(file.read().await.is_empty());
    }
}
