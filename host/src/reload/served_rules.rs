//! The match rules of the filter sets that served clients lately, on disk. A client continues its watch at a restarted daemon.
//! If filters of the former process matched what it reads, and none does now, it holds what they made of it.

use std::sync::Arc;
use std::time::Duration;

use weir_runtime::{Filter, MatchRule};
use weir_store::disk::{CachedValue, DiskCache};

/// The name of the value.
const NAME: &str = "served-rules";
/// The most rules. Those that were in force last stay.
const MAX_RULES: usize = 64;
/// How long the activation of a filter set waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// What stands for rules that cannot be read: anything may have been matched.
const ANYTHING: &str = "*/*";

/// The rules on disk.
#[derive(Debug)]
pub(super) struct ServedRules {
    disk: Arc<DiskCache>,
    former: Arc<[MatchRule]>,
    /// The texts of the rules, those in force last at the end.
    texts: Vec<String>,
}

impl ServedRules {
    /// Reads the rules of former processes. While the disk cannot be used, they may have been any.
    pub(super) async fn read(disk: Arc<DiskCache>) -> Self {
        let texts: Vec<String> = match disk.read(NAME).await {
            Ok(value) => value.and_then(|value| serde_json::from_slice(&value.bytes).ok()).unwrap_or_default(),
            Err(_) => vec![ANYTHING.to_owned()],
        };
        Self { disk, former: texts.iter().filter_map(|text| text.parse().ok()).collect(), texts }
    }

    /// The rules of former processes.
    pub(super) fn former(&self) -> Arc<[MatchRule]> {
        self.former.clone()
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
        // An old rule costs a list of each client whose reads it matches.
        self.disk.put(NAME, CachedValue::lasting(bytes), false).await;
        if tokio::time::timeout(PATIENCE, self.disk.flush()).await.is_err() {
            tracing::debug!("the match rules are not on disk yet");
        }
    }
}
