//! Prepares the filter of a configuration entry: reads its module, and loads it unless the active filter is the same. Error
//! messages are one line with the module, its source and its digest.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

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
        return Ok((bytes.clone(), "binaryData".to_owned()));
    }
    let Some(directory) = modules else {
        return Err(format!("module {name} is not in binaryData, and --modules-dir is not set"));
    };
    let path = directory.join(name);
    let shown = path.display().to_string();
    let unreadable = |error| format!("module {name} is not in binaryData, and {shown} cannot be read: {error}");
    let size = tokio::fs::metadata(&path).await.map_err(unreadable)?.len();
    if size > MAX_MODULE as u64 {
        return Err(format!("module {shown} has {size} bytes; the limit is {MAX_MODULE}"));
    }
    Ok((tokio::fs::read(&path).await.map_err(unreadable)?.into(), shown))
}
