//! The flags of the watch cache on disk.

use std::path::PathBuf;
use std::time::Duration;

use weir_kube::quantity;

use super::flags::ServeFlags;
use super::serve::parse_duration;

/// The watch cache on disk. It is a file in the cache directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheConfig {
    /// The cache directory.
    pub directory: PathBuf,
    /// The most bytes of all stores.
    pub size: u64,
    /// The longest time between a change and its commit.
    pub commit_interval: Duration,
    /// The encryption key. Without it, a generated key beside the cache directory is used.
    pub key_file: Option<PathBuf>,
    /// The directory of the generated key. Without it, the key is beside the cache directory.
    pub key_dir: Option<PathBuf>,
}

impl DiskCacheConfig {
    /// Returns `None` without a cache directory, with size 0, and after an error.
    pub(super) fn from_flags(flags: &ServeFlags, errors: &mut Vec<String>) -> Option<Self> {
        let size = quantity(&flags.cache_size);
        if size.is_none() {
            let text = &flags.cache_size;
            errors.push(format!("--cache-size: {text:?} is not an amount of memory: write it as 512Mi"));
        }
        let commit_interval = parse_duration("--cache-commit-interval", &flags.cache_commit_interval, errors);
        if flags.cache_key_file.is_some() && flags.cache_dir.is_none() {
            errors.push("--cache-key-file: needs --cache-dir, where the encrypted cache is".to_owned());
        }
        if flags.cache_key_dir.is_some() && flags.cache_dir.is_none() {
            errors.push("--cache-key-dir: needs --cache-dir, where the encrypted cache is".to_owned());
        }
        let size = size.filter(|size| *size > 0)?;
        let (key_file, key_dir) = (flags.cache_key_file.clone(), flags.cache_key_dir.clone());
        let (directory, commit_interval) = (flags.cache_dir.clone()?, commit_interval?);
        Some(Self { directory, size, commit_interval, key_file, key_dir })
    }
}
