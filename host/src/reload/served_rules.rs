//! The match rules of the filter sets that served clients lately, on disk. A client continues its watch at a restarted daemon.
//! If filters of the former process matched what it reads, and none does now, it holds what they made of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_runtime::{Filter, MatchRule};
use weir_store::disk::{CachedValue, DiskCache};

/// The name of the value.
const NAME: &str = "served-rules";
/// The most rules. Those that were in force last stay.
const MAX_RULES: usize = 64;
/// How long they are kept. An old rule costs a list of each client whose reads it matches.
const KEPT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long the activation of a filter set waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rules on disk.
#[derive(Debug)]
pub(super) struct ServedRules {
    disk: Arc<DiskCache>,
    /// The texts of the rules, those in force last at the end.
    texts: Vec<String>,
}

impl ServedRules {
    /// Reads the rules of former processes. What is not readable counts as none.
    pub(super) async fn read(disk: Arc<DiskCache>) -> Self {
        let value = disk.get(NAME).await;
        let texts = value.and_then(|value| serde_json::from_slice(&value.bytes).ok()).unwrap_or_default();
        Self { disk, texts }
    }

    /// The rules.
    pub(super) fn rules(&self) -> Arc<[MatchRule]> {
        self.texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Adds the rules of filters that are about to serve clients. They are on disk before any client is served: the daemon may
    /// be killed right after.
    pub(super) async fn add(&mut self, filters: &[Arc<Filter>]) {
        let mut added: Vec<_> = filters.iter().flat_map(|filter| filter.rules()).map(ToString::to_string).collect();
        added.sort();
        added.dedup();
        if added.iter().all(|text| self.texts.contains(text)) {
            return;
        }
        self.texts.retain(|text| !added.contains(text));
        self.texts.extend(added);
        self.texts.drain(..self.texts.len().saturating_sub(MAX_RULES));
        let Ok(bytes) = serde_json::to_vec(&self.texts) else { return };
        let value = CachedValue { bytes, expires: SystemTime::now() + KEPT };
        self.disk.put(NAME, value, false).await;
        if tokio::time::timeout(PATIENCE, self.disk.flush()).await.is_err() {
            tracing::debug!("the match rules are not on disk yet");
        }
    }
}
