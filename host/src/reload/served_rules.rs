//! The match rules of the filter sets that served clients lately, on disk. A client continues its watch at a restarted daemon.
//! If filters of the former process matched what it reads, and none does now, it holds what they made of it.

use std::sync::Arc;
use std::time::Duration;

use weir_runtime::Filter;
use weir_spec::MatchRule;
use weir_store::disk::{CachedValue, DiskCache};

/// The name of the value.
const NAME: &str = "served-rules";
/// The most rules. Those that were in force last stay, and [`ANYTHING`] stands for all others.
const MAX_RULES: usize = 1024;
/// How long the activation of a filter set waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// What stands for rules that cannot be read or are not kept: anything may have been matched.
const ANYTHING: &str = "*/*";

/// The rules on disk.
#[derive(Debug)]
pub(super) struct ServedRules {
    disk: Arc<DiskCache>,
    former: Arc<[MatchRule]>,
    /// The texts of the rules, those in force last at the end.
    texts: Vec<String>,
    /// Whether the value is there. To find that it is not, the next start would have to wait for the whole file to be verified.
    is_kept: bool,
}

impl ServedRules {
    /// Reads the rules of former processes. While the disk cannot be used, they may have been any.
    pub(super) async fn read(disk: Arc<DiskCache>) -> Self {
        let kept = disk.read(NAME).await;
        // What could not be read is not replaced by what stands for it.
        let is_kept = !matches!(kept, Ok(None));
        let texts: Vec<String> = match kept {
            Ok(value) => value.and_then(|value| serde_json::from_slice(&value.bytes).ok()).unwrap_or_default(),
            Err(_) => vec![ANYTHING.to_owned()],
        };
        Self { disk, former: texts.iter().filter_map(|text| text.parse().ok()).collect(), texts, is_kept }
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
        let has_new = !added.iter().all(|text| self.texts.contains(text));
        if !has_new && self.is_kept {
            return;
        }
        self.texts.retain(|text| !added.contains(text));
        self.texts.extend(added);
        bound(&mut self.texts);
        let Ok(bytes) = serde_json::to_vec(&self.texts) else { return };
        self.is_kept = true;
        if !has_new {
            self.disk.put_later(NAME, CachedValue::lasting(bytes), false);
            return;
        }
        // An old rule costs a list of each client whose reads it matches.
        self.disk.put(NAME, CachedValue::lasting(bytes), false).await;
        if tokio::time::timeout(PATIENCE, self.disk.flush()).await.is_err() {
            tracing::debug!("the match rules are not on disk yet");
        }
    }
}

/// Keeps the last rules. Without a rule, a client would continue what a filter made of its objects: the oldest ones are not
/// dropped but replaced by one that matches all that they match, and more.
fn bound(texts: &mut Vec<String>) {
    if texts.len() > MAX_RULES {
        texts.drain(..=texts.len() - MAX_RULES);
        texts.insert(0, ANYTHING.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use weir_kube::{GroupResource, VerbClass};

    use super::*;

    #[test]
    fn no_rule_is_forgotten_however_many_there_are() {
        let mut texts: Vec<String> = ["*/services", "kubelet/pods"].map(str::to_owned).to_vec();
        texts.extend((0..MAX_RULES).map(|n| format!("client-{n}/endpoints")));
        bound(&mut texts);
        assert_eq!(texts.len(), MAX_RULES);
        assert_eq!(texts.last(), Some(&format!("client-{}/endpoints", MAX_RULES - 1)));
        let rules: Vec<MatchRule> = texts.iter().map(|text| text.parse().unwrap()).collect();
        for (client, resource) in [("anybody", "services"), ("kubelet", "pods"), ("client-0", "endpoints")] {
            let resource = GroupResource::new(resource, "");
            assert!(rules.iter().any(|rule| rule.matches(client, &resource, VerbClass::Read)), "{client} {resource}");
        }
        let before = texts.clone();
        bound(&mut texts);
        assert_eq!(texts, before);
    }
}
