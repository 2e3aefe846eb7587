//! Reads small files of the daemon's operator.

use std::io::{self, Read as _};
use std::path::Path;

/// The largest file of settings, keys or certificates in bytes.
const MAX: u64 = 4 << 20;

/// Reads the text of a file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX {
        return Err(io::Error::other(format!("larger than {MAX} bytes")));
    }
    Ok(text)
}
