//! Prepares the filter of a configuration entry: reads its module, and loads it unless the active filter is the same. Error
//! messages are one line with the module, its source and its digest.

use std::sync::Arc;

use crate::config::Configuration;
use crate::modules::Modules;
use weir_runtime::{Filter, Loader};
use weir_spec::{Digest, FilterEntry};
use weir_upstream::error_report;

/// Returns the filter of an entry: one of `active` if entry and module are unchanged, the same one with other match rules if
/// only these have changed, else a newly loaded and validated one. `progress` is told how far a pull is, and `waits` that only what it looks
/// up is missing. Cancel-safe.
///
/// # Errors
/// [`Unprepared`] with a message for the operator.
pub async fn prepare(
    loader: &Loader,
    entry: &FilterEntry,
    configuration: &Configuration,
    modules: &Modules,
    active: &[Arc<Filter>],
    (progress, waits): (impl Fn(String), impl FnOnce()),
) -> Result<Arc<Filter>, Unprepared> {
    let module = modules.read(entry, configuration, progress).await?;
    let digest = Digest::of(&module.bytes);
    let filter = match unchanged(entry, digest, active) {
        Some(filter) => filter,
        None => {
            let loaded = loader.load(entry, module.from.clone(), digest, &module.bytes, waits).await;
            Arc::new(loaded.map_err(|error| Unprepared {
                reason: format!("module {} ({}, {digest}): {}", entry.module, module.from, error_report(&error)),
                is_final: error.is_final(),
            })?)
        }
    };
    // The rules may be those of the module.
    entry.check_hide(filter.rules()).map_err(|error| format!("failurePolicy: {error}"))?;
    modules.keep_file(entry, configuration, digest, &module.bytes).await;
    Ok(filter)
}

/// Why there is no filter.
#[derive(Debug)]
pub struct Unprepared {
    /// The message for the operator.
    pub reason: String,
    /// Whether only a change of the entry or of its module helps.
    pub is_final: bool,
}

impl From<String> for Unprepared {
    fn from(reason: String) -> Self {
        Self { reason, is_final: false }
    }
}

/// Returns one of the active filters, if at most its match rules have changed.
fn unchanged(entry: &FilterEntry, digest: Digest, active: &[Arc<Filter>]) -> Option<Arc<Filter>> {
    let mut same_module = active.iter().filter(|filter| *filter.digest() == digest);
    if let Some(filter) = same_module.clone().find(|filter| filter.entry() == entry) {
        return Some(filter.clone());
    }
    same_module.find_map(|filter| filter.with_rules_of(entry)).map(Arc::new)
}
