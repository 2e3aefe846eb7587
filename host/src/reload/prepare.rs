//! Prepares the filter of a configuration entry: reads its module, and loads it unless the active filter is the same. Error
//! messages are one line with the module, its source and its digest.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::bounded_file::read_file;
use crate::config::Configuration;
use weir_runtime::{Digest, Filter, FilterEntry, Loader, MAX_MODULE};
use weir_upstream::error_report;

/// Returns the filter of an entry: one of `active` if entry and module are unchanged, the same one with other match rules if
/// only these have changed, else a newly loaded and validated one. Cancel-safe.
///
/// # Errors
/// A message for the operator.
pub async fn prepare(
    loader: &Loader,
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: Option<&Path>,
    active: &[Arc<Filter>],
) -> Result<Arc<Filter>, String> {
    let (module, from) = read_module(entry, configuration, modules).await?;
    let digest = Digest::of(&module);
    let mut same_module = active.iter().filter(|filter| *filter.digest() == digest);
    if let Some(filter) = same_module.clone().find(|filter| filter.entry() == entry) {
        return Ok(filter.clone());
    }
    if let Some(filter) = same_module.find_map(|filter| filter.with_rules_of(entry)) {
        return Ok(Arc::new(filter));
    }
    let loaded = loader.load(entry, from.clone(), digest, &module).await;
    loaded
        .map(Arc::new)
        .map_err(|error| format!("module {} ({from}, {digest}): {}", entry.module, error_report(&error)))
}

/// Returns the bytes of a module and their source. The ConfigMap takes precedence over the directory.
async fn read_module(
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: Option<&Path>,
) -> Result<(Bytes, String), String> {
    let name = entry.module.as_str();
    if let Some(bytes) = configuration.binary_data.get(name) {
        let packed = bytes.clone();
        let unpacked = tokio::task::spawn_blocking(move || unpacked(packed)).await.map_err(std::io::Error::other);
        let unreadable = |error| format!("module {name} in binaryData cannot be unpacked: {error}");
        return Ok((unpacked.flatten().map_err(unreadable)?, "binaryData".to_owned()));
    }
    let Some(directory) = modules else {
        return Err(format!("module {name} is not in binaryData, and --modules-dir is not set"));
    };
    let path = directory.join(name);
    let shown = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || read_file(&path, MAX_MODULE)).await;
    let bytes = read.map_err(std::io::Error::other).flatten();
    let unreadable = |error| format!("module {name} is not in binaryData, and {shown} cannot be read: {error}");
    Ok((bytes.map_err(unreadable)?.into(), shown))
}

/// Unpacks a module that is compressed with gzip. A ConfigMap holds 1 MiB in all.
fn unpacked(bytes: Bytes) -> std::io::Result<Bytes> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut module = Vec::new();
    GzDecoder::new(&*bytes).take(MAX_MODULE as u64 + 1).read_to_end(&mut module)?;
    if module.len() > MAX_MODULE {
        return Err(std::io::Error::other(format!("larger than {MAX_MODULE} bytes")));
    }
    Ok(module.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Bytes {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap().into()
    }

    #[test]
    fn gzip_is_unpacked_up_to_the_largest_module_and_all_else_is_as_it_is() {
        let module = Bytes::from_static(b"\0asm module");
        assert_eq!(unpacked(module.clone()).unwrap(), module);
        assert_eq!(unpacked(packed(&module)).unwrap(), module);
        let cut = packed(&module).slice(..15);
        assert!(unpacked(cut).is_err(), "an end is missing");
        let bomb = unpacked(packed(&vec![0; MAX_MODULE + 1])).unwrap_err().to_string();
        assert_eq!(bomb, format!("larger than {MAX_MODULE} bytes"));
    }
}
