//! Prepares the filter of a configuration entry: reads its module, and loads it unless the active filter is the same. Error
//! messages are one line with the module, its source and its digest.

use std::sync::Arc;

use crate::config::Configuration;
use crate::modules::Modules;
use weir_runtime::{Digest, Filter, FilterEntry, Loader};
use weir_upstream::error_report;

/// Returns the filter of an entry: one of `active` if entry and module are unchanged, the same one with other match rules if
/// only these have changed, else a newly loaded and validated one. `progress` is told how far a pull is. Cancel-safe.
///
/// # Errors
/// A message for the operator.
pub async fn prepare(
    loader: &Loader,
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: &Modules,
    active: &[Arc<Filter>],
    progress: impl Fn(String),
) -> Result<Arc<Filter>, String> {
    let module = modules.read(entry, configuration, progress).await?;
    let digest = Digest::of(&module.bytes);
    let mut same_module = active.iter().filter(|filter| *filter.digest() == digest);
    if let Some(filter) = same_module.clone().find(|filter| filter.entry() == entry) {
        return Ok(filter.clone());
    }
    if let Some(filter) = same_module.find_map(|filter| filter.with_rules_of(entry)) {
        return Ok(Arc::new(filter));
    }
    let loaded = loader.load(entry, module.from.clone(), digest, &module.bytes).await;
    let filter = loaded
        .map_err(|error| format!("module {} ({}, {digest}): {}", entry.module, module.from, error_report(&error)))?;
    // The rules may be those of the module.
    entry.check_hide(filter.rules()).map_err(|error| format!("failurePolicy: {error}"))?;
    Ok(Arc::new(filter))
}
