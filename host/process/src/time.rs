//! Times on disk.

use std::path::Path;
use std::str::FromStr;

use crate::files;

/// The longest such file in bytes.
const MAX: usize = 256;

/// Reads a time or a duration from a file. One that is not readable counts as none, and is logged.
pub async fn read_time<T: FromStr>(path: &Path) -> Option<T> {
    let text = match files::read(path, MAX).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.map_err(|error| error.to_string()),
    };
    let time = text.and_then(|text| {
        let text = String::from_utf8_lossy(&text);
        text.trim().parse().map_err(|_| "it holds no time".to_owned())
    });
    time.inspect_err(|reason| {
        tracing::warn!(path = %path.display(), reason, "a time on disk cannot be read, and is done without");
    })
    .ok()
}
