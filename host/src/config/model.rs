//! The filters' configuration, validated in one step, from a manifest file or from the ConfigMap.
//!
//! A ConfigMap has two forms of configuration. `filters.yaml` is an ordered list. A flat key `filter_<name>` replaces the
//! match rules of a listed filter, or adds a filter with defaults; an empty value disables the filter.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::entry::{FILTERS_YAML, MAX_FILTERS, read_list};
use super::error::{ConfigurationError, ErrorReport};
use super::manifest::{Manifest, yaml};
use weir_kube::utf8;
use weir_spec::{Digest, FilterEntry, FilterName, MatchRule, ModuleFile};

/// The validated configuration. The default has no filters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configuration {
    /// The enabled filters, in the order of the chain.
    pub filters: Vec<FilterEntry>,
    /// Modules inside the ConfigMap, by file name. They take precedence over files of `--modules-dir`.
    pub binary_data: BTreeMap<String, Bytes>,
    /// Warnings about valid but probably unintended values, shown by `weir check`, in the log and on `/filters`.
    pub warnings: Vec<String>,
    /// The modules with which it was active before, if it is the last good one. They take precedence over files of
    /// `--modules-dir`, which an upgrade replaces.
    pub kept: BTreeMap<FilterName, KeptModule>,
    /// Why it names no set of filters, not even an empty one. A node that has had a set keeps it then: absence turns no filter off.
    pub absent: Option<String>,
}

/// The module that a filter had.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptModule {
    /// The digest by which the cache has it.
    pub digest: Digest,
    /// The match rules of the filter.
    pub rules: Vec<MatchRule>,
}

/// The most keys of `data` and of `binaryData`: one for each filter of a list, one for each further filter, and the list.
const MAX_KEYS: usize = 2 * MAX_FILTERS + 1;
/// The prefix of flat keys.
const FLAT: &str = "filter_";
/// What a configuration without a set does, and how filters are turned off.
pub(crate) const OFF: &str = "the last set of filters stays in force; `filters: []` turns filters off";

impl Configuration {
    /// Parses a ConfigMap manifest, YAML or JSON. `source` is its name in messages.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn from_manifest(source: &str, text: &str) -> Result<Self, ConfigurationError> {
        let mut report = ErrorReport::default();
        let manifest = Manifest::read(text, &mut report);
        let configuration = Self::validate(manifest, &mut report);
        report.finish(source, configuration)
    }

    /// Parses a ConfigMap manifest, or a file with what the key `filters.yaml` of a ConfigMap has.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn from_file(source: &str, text: &str) -> Result<Self, ConfigurationError> {
        Self::from_manifest(source, &as_manifest(text))
    }

    /// Parses a ConfigMap of the API. `source` is its name in messages.
    ///
    /// # Errors
    /// All errors of its data.
    pub fn from_config_map(source: &str, map: &ConfigMap) -> Result<Self, ConfigurationError> {
        let mut report = ErrorReport::default();
        let configuration = Self::validate(Manifest::of(map), &mut report);
        report.finish(source, configuration)
    }

    /// Returns the configuration of a ConfigMap that does not exist: no filters, and a warning. Only a node that has never had a
    /// set of filters uses it.
    #[must_use]
    pub fn missing(source: &str) -> Self {
        Self {
            warnings: vec![format!("{source} does not exist, so no filter is active")],
            absent: Some("it does not exist".to_owned()),
            ..Self::default()
        }
    }

    fn validate(manifest: Manifest, report: &mut ErrorReport) -> Self {
        let Manifest { data, binary_data } = manifest;
        // Before anything is parsed: each key is compared with all filters.
        for (map, keys) in [("data", data.len()), ("binaryData", binary_data.len())] {
            if keys > MAX_KEYS {
                report.add(map, format_args!("{keys} keys are too many: at most {MAX_KEYS}"));
                return Self::default();
            }
        }
        let list = data.get(FILTERS_YAML).map(|text| read_list(text, report));
        let has_flat_key = data.keys().any(|key| key.starts_with(FLAT));
        let absent = match &list {
            _ if has_flat_key => None,
            Some(Some(_)) => None,
            Some(None) => Some(format!("{FILTERS_YAML} has no list `filters`")),
            None => Some(format!("it has neither the key {FILTERS_YAML} nor a key {FLAT}<name>")),
        };
        let mut filters = list.flatten().unwrap_or_default();
        let listed: Vec<_> = filters.iter().map(|filter| filter.name.to_string()).collect();
        let mut misnamed = Vec::new();
        for (key, text) in data.iter().filter(|(key, _)| *key != FILTERS_YAML) {
            match key.strip_prefix(FLAT) {
                Some(name) => {
                    let is_misnamed = !listed.is_empty() && !listed.iter().any(|listed| listed == name);
                    if is_misnamed && text.trim().is_empty() {
                        misnamed.push(format!("{key} turns off no filter: the list has {}", listed.join(", ")));
                    }
                    apply_flat_key(&mut filters, key, name, text, report);
                }
                None => report.add(key, format_args!("unknown key; valid keys are {FILTERS_YAML} and {FLAT}<name>")),
            }
        }
        if filters.len() > MAX_FILTERS {
            report.add("", format_args!("{} filters are too many: at most {MAX_FILTERS}", filters.len()));
        }
        // With the flat keys, whose rules replace those of the list. The module's own rules are checked when it is loaded.
        for filter in &filters {
            let rules = filter.matches.as_deref().unwrap_or_default();
            report.ok(format!("filter {}: failurePolicy", filter.name), filter.check_hide(rules));
        }
        for (key, bytes) in &binary_data {
            let at = format!("binaryData.{key}");
            match is_setting(key) {
                true => report.add(at, misplaced(bytes)),
                false => drop(report.ok(at, key.parse::<ModuleFile>())),
            }
        }
        let mut configuration = Self { filters, binary_data, absent, ..Self::default() };
        configuration.warnings = configuration.find_warnings();
        configuration.warnings.extend(misnamed);
        configuration
    }

    fn find_warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.absent.iter().map(|reason| format!("{reason}; {OFF}")).collect();
        for filter in &self.filters {
            warnings.extend(filter.rule_warnings(filter.matches.as_deref().unwrap_or_default()));
            if filter.matches.as_ref().is_some_and(Vec::is_empty) {
                warnings.push(format!(
                    "filter {}: `match` is an empty list, so the filter matches no request",
                    filter.name
                ));
            }
        }
        let unused = |key: &&String| !self.filters.iter().any(|filter| filter.module.file() == Some(key.as_str()));
        warnings.extend(
            self.binary_data.keys().filter(unused).map(|key| format!("binaryData.{key}: no filter uses this module")),
        );
        warnings
    }
}

/// Returns the manifest of a ConfigMap: the text, or a ConfigMap of a text that is what its key `filters.yaml` has.
#[must_use]
pub fn as_manifest(text: &str) -> Cow<'_, str> {
    let is_list = yaml(text).is_ok_and(|value| value.get("filters").is_some() && value.get("kind").is_none());
    if !is_list {
        return text.into();
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {FILTERS_YAML: text}}).to_string().into()
}

/// Whether a key of a ConfigMap is one of `data`.
fn is_setting(key: &str) -> bool {
    key == FILTERS_YAML || (key.starts_with(FLAT) && !key.ends_with(".wasm"))
}

/// Why a key of `data` is in `binaryData`: `kubectl` puts each file there that is not UTF-8.
fn misplaced(bytes: &[u8]) -> String {
    match utf8(bytes) {
        Ok(_) => "it is text, which belongs into `data`: `binaryData` is for modules".to_owned(),
        Err(reason) => format!("{reason}; kubectl puts other files into `binaryData`, which is for modules"),
    }
}

/// Applies one flat key.
fn apply_flat_key(filters: &mut Vec<FilterEntry>, key: &str, name: &str, text: &str, report: &mut ErrorReport) {
    let Some(name) = report.ok(key, name.parse::<FilterName>()) else {
        return;
    };
    let mut rules = Vec::new();
    for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
        rules.extend(report.ok(key, rule.parse::<MatchRule>()));
    }
    let listed = filters.iter().position(|filter| filter.name == name);
    match (listed, text.trim().is_empty()) {
        (Some(at), true) => drop(filters.remove(at)),
        (Some(at), false) => {
            if let Some(filter) = filters.get_mut(at) {
                filter.matches = Some(rules);
            }
        }
        (None, true) => {}
        (None, false) => filters.push(FilterEntry::of(name, Some(rules))),
    }
}

#[cfg(test)]
mod tests;
