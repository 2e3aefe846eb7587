//! From an entry of the configuration to its filter: finds the module's bytes, keeps the filter in force if nothing about
//! it changed, else has it loaded. What goes wrong is told in one line that names module, place and digest.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::Configuration;
use weir_runtime::{Digest, Filter, FilterEntry, Loader, MAX_MODULE};
use weir_upstream::in_full;

/// The filter of an entry: one of `in_force` if it is the same, else a newly proven one. Cancel-safe.
///
/// # Errors
/// With the reason, for people.
pub async fn prove(
    loader: &Loader,
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: Option<&Path>,
    in_force: &[Arc<Filter>],
) -> Result<Arc<Filter>, String> {
    let (module, from) = find(entry, configuration, modules).await?;
    let digest = Digest::of(&module);
    if let Some(filter) = in_force.iter().find(|filter| filter.entry() == entry && *filter.digest() == digest) {
        return Ok(filter.clone());
    }
    let loaded = loader.load(entry, from.clone(), digest, &module).await;
    loaded.map(Arc::new).map_err(|error| format!("module {} ({from}, {digest}): {}", entry.module, in_full(&error)))
}

/// The module's bytes, and where they came from. The ConfigMap's own go before the directory's.
async fn find(
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: Option<&Path>,
) -> Result<(Bytes, String), String> {
    let name = entry.module.as_str();
    if let Some(bytes) = configuration.binary_data.get(name) {
        return Ok((bytes.clone(), "binaryData".to_owned()));
    }
    let Some(directory) = modules else {
        return Err(format!("module {name} is not in binaryData, and no --modules-dir is given"));
    };
    let path = directory.join(name);
    let shown = path.display().to_string();
    let unread = |error| format!("module {name} is not in binaryData, and {shown} can not be read: {error}");
    let size = tokio::fs::metadata(&path).await.map_err(unread)?.len();
    if size > MAX_MODULE as u64 {
        return Err(format!("module {shown} has {size} bytes, more than the {MAX_MODULE} allowed"));
    }
    Ok((tokio::fs::read(&path).await.map_err(unread)?.into(), shown))
}
