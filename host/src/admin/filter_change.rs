//! What a reload did to one filter, for the history of reloads: its version, its module, and the keys of its configuration that
//! differ. Values of settings are never part of it: they may be secret, and long.
//!
//! Bounded: a version has about [`MAX_VERSION`] bytes at most, and at most [`MAX_SETTINGS`] settings are named.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_process::one_line;
use weir_runtime::Filter;
use weir_spec::{Digest, FilterEntry};

/// The longest version. Modules choose it.
const MAX_VERSION: usize = 40;
/// The most settings that are named.
const MAX_SETTINGS: usize = 10;
/// The longest name of a setting.
const MAX_NAME: usize = 60;
/// The length of a digest that people can compare: `sha256:` and 12 digits.
const SHORT_DIGEST: usize = 19;

/// What a reload did to one filter.
#[derive(Debug)]
pub(super) struct FilterChange {
    filter: String,
    change: &'static str,
    details: Vec<String>,
}

/// The parts of a filter in which changes are found.
#[derive(Debug, Clone, Copy)]
struct ComparedFilter<'a> {
    entry: &'a FilterEntry,
    digest: Digest,
    version: &'a str,
}

impl FilterChange {
    /// A filter that was not there before.
    pub(super) fn added(filter: &Filter) -> Self {
        let version = ComparedFilter::of(filter).version();
        let details = version.map(|version| format!("version {version}")).into_iter().collect();
        Self { filter: filter.name().to_string(), change: "added", details }
    }

    /// A filter that another one of this name has replaced.
    pub(super) fn changed(old: &Filter, new: &Filter) -> Self {
        let details = differences(ComparedFilter::of(old), ComparedFilter::of(new));
        Self { filter: new.name().to_string(), change: "changed", details }
    }

    /// A filter that is gone.
    pub(super) fn removed(filter: &Filter) -> Self {
        Self { filter: filter.name().to_string(), change: "removed", details: Vec::new() }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "filter": self.filter, "change": self.change, "details": self.details })
    }
}

impl<'a> ComparedFilter<'a> {
    fn of(filter: &'a Filter) -> Self {
        Self { entry: filter.entry(), digest: *filter.digest(), version: &filter.description().version }
    }

    fn version(self) -> Option<String> {
        (!self.version.is_empty()).then(|| one_line(self.version, MAX_VERSION))
    }

    fn short_digest(self) -> String {
        self.digest.to_string().chars().take(SHORT_DIGEST).collect()
    }
}

/// The differences between two filters of one name. The keys have the names of the configuration.
fn differences(old: ComparedFilter<'_>, new: ComparedFilter<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if old.version != new.version {
        let version = |filter: ComparedFilter<'_>| filter.version().unwrap_or_else(|| "none".to_owned());
        found.push(format!("version {} instead of {}", version(new), version(old)));
    }
    if old.digest != new.digest {
        found.push(format!("module {} instead of {}", new.short_digest(), old.short_digest()));
    }
    let settings = changed_settings(old.entry, new.entry);
    if !settings.is_empty() {
        found.push(format!("settings {}", settings.join(", ")));
    }
    let (old, new) = (old.entry, new.entry);
    if old.mode != new.mode {
        found.push(format!("mode {}", new.mode.as_str()));
    }
    if old.failure_policy != new.failure_policy {
        found.push(format!("failurePolicy {}", new.failure_policy.as_str()));
    }
    let keys = [
        ("match", old.matches != new.matches),
        ("nodes", old.nodes != new.nodes),
        ("limits", old.limits != new.limits),
        ("grants", old.grants != new.grants),
        ("writes", old.writes != new.writes),
        ("edits", old.edits != new.edits),
        ("allowHide", old.allow_hide != new.allow_hide),
        ("rollback", old.rollback != new.rollback),
        ("digest", old.digest != new.digest),
        ("signature", old.signature != new.signature),
        ("module", old.module != new.module),
    ];
    let changed: Vec<_> = keys.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    if !changed.is_empty() {
        found.push(format!("keys {}", changed.join(", ")));
    }
    found
}

/// The names of the settings that differ.
fn changed_settings(old: &FilterEntry, new: &FilterEntry) -> Vec<String> {
    let names: BTreeSet<_> = old.settings.keys().chain(new.settings.keys()).collect();
    let mut changed: Vec<_> = names
        .into_iter()
        .filter(|name| old.settings.get(*name) != new.settings.get(*name))
        .map(|name| one_line(name, MAX_NAME))
        .collect();
    if let Some(more) = changed.len().checked_sub(MAX_SETTINGS).filter(|more| *more > 0) {
        changed.truncate(MAX_SETTINGS);
        changed.push(format!("and {more} more"));
    }
    changed
}

#[cfg(test)]
mod tests {
    use weir_spec::{FailurePolicy, Mode};

    use super::*;

    fn entry(settings: &Value) -> FilterEntry {
        let settings = settings.as_object().unwrap().clone();
        FilterEntry { settings, ..FilterEntry::of("pools".parse().unwrap(), None) }
    }

    fn compared<'a>(entry: &'a FilterEntry, module: &[u8], version: &'a str) -> ComparedFilter<'a> {
        ComparedFilter { entry, digest: Digest::of(module), version }
    }

    #[test]
    fn another_module_is_a_change_of_version_and_digest() {
        let entry = entry(&json!({}));
        let (old, new) = (compared(&entry, b"one", "1.0.0"), compared(&entry, b"two", "1.1.0"));
        let found = differences(old, new);
        assert_eq!(found[0], "version 1.1.0 instead of 1.0.0");
        assert_eq!(found[1], format!("module {} instead of {}", new.short_digest(), old.short_digest()));
        assert_eq!((found.len(), new.short_digest().len()), (2, SHORT_DIGEST));
        assert_eq!(differences(compared(&entry, b"one", ""), old), ["version 1.0.0 instead of none"]);
    }

    #[test]
    fn settings_are_named_without_their_values() {
        let one = entry(&json!({"kept": 1, "gone": "secret", "other": [1]}));
        let two = entry(&json!({"kept": 1, "other": [2], "new": {"token": "secret"}}));
        assert_eq!(differences(compared(&one, b"", ""), compared(&two, b"", "")), ["settings gone, new, other"]);
        let many = entry(&(0..100).map(|n| (format!("{n:03}"), json!(n))).collect::<Value>());
        let found = differences(compared(&one, b"", ""), compared(&many, b"", ""));
        assert!(found[0].starts_with("settings 000, 001, ") && found[0].ends_with("009, and 93 more"), "{found:?}");
    }

    #[test]
    fn other_keys_are_named_as_in_the_configuration() {
        let old = entry(&json!({}));
        let new = FilterEntry {
            mode: Mode::Observe,
            failure_policy: FailurePolicy::Ignore,
            matches: Some(Vec::new()),
            allow_hide: true,
            ..old.clone()
        };
        let found = differences(compared(&old, b"", ""), compared(&new, b"", ""));
        assert_eq!(found, ["mode observe", "failurePolicy Ignore", "keys match, allowHide"]);
        assert!(differences(compared(&old, b"", ""), compared(&old, b"", "")).is_empty());
    }
}
