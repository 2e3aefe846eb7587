//! The filters' configuration: raw → validated in one step, from a manifest's text or from the API's ConfigMap.
//!
//! Two forms live in one ConfigMap: `filters.yaml`, an ordered list; and flat keys `filter_<name>`, which replace the
//! match rules of a listed filter (empty: it is off) or stand for a filter with defaults.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;

use super::entry::{FILTERS_YAML, MAX_FILTERS, read_list};
use super::manifest::Manifest;
use super::problem::{ConfigurationError, Problems};
use weir_runtime::{FilterEntry, FilterName, MatchRule, ModuleFile};

/// What the filters' ConfigMap says. The default is that of an absent ConfigMap: no filters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configuration {
    /// In the order of the chain. Filters that are off are left out.
    pub filters: Vec<FilterEntry>,
    /// Modules inside the ConfigMap, by file name; they go before the modules directory.
    pub binary_data: BTreeMap<String, Bytes>,
    /// Valid, but worth telling: shown by `weir check` and on `/filters`.
    pub warnings: Vec<String>,
}

/// What the flat keys begin with.
const FLAT: &str = "filter_";

impl Configuration {
    /// From the text of a ConfigMap manifest, YAML or JSON. `source` names it in messages.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn from_manifest(source: &str, text: &str) -> Result<Self, ConfigurationError> {
        let mut problems = Problems::default();
        let manifest = Manifest::read(text, &mut problems);
        let configuration = Self::validate(manifest, &mut problems);
        problems.finish(source, configuration)
    }

    /// From the API's object. `source` names it in messages.
    ///
    /// # Errors
    /// Every problem of its data.
    pub fn from_config_map(source: &str, map: &ConfigMap) -> Result<Self, ConfigurationError> {
        let mut problems = Problems::default();
        let configuration = Self::validate(Manifest::of(map), &mut problems);
        problems.finish(source, configuration)
    }

    fn validate(manifest: Manifest, problems: &mut Problems) -> Self {
        let Manifest { data, binary_data } = manifest;
        let mut filters = data.get(FILTERS_YAML).map(|text| read_list(text, problems)).unwrap_or_default();
        for (key, text) in data.iter().filter(|(key, _)| *key != FILTERS_YAML) {
            match key.strip_prefix(FLAT) {
                Some(name) => overlay(&mut filters, key, name, text, problems),
                None => problems.add(key, format_args!("unknown key: known are {FILTERS_YAML} and {FLAT}<name>")),
            }
        }
        if filters.len() > MAX_FILTERS {
            problems.add("", format_args!("{} filters are too many: at most {MAX_FILTERS}", filters.len()));
        }
        for key in binary_data.keys() {
            problems.keep(format!("binaryData.{key}"), key.parse::<ModuleFile>());
        }
        let mut configuration = Self { filters, binary_data, warnings: Vec::new() };
        configuration.warnings = configuration.find_warnings();
        configuration
    }

    fn find_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for filter in &self.filters {
            for warning in filter.matches.iter().flatten().filter_map(MatchRule::warning) {
                warnings.push(format!("filter {}: {warning}", filter.name));
            }
            if filter.matches.as_ref().is_some_and(Vec::is_empty) {
                warnings.push(format!("filter {}: `match` is an empty list, so it matches nothing", filter.name));
            }
        }
        let unused = |key: &&String| !self.filters.iter().any(|filter| filter.module.as_str() == key.as_str());
        warnings
            .extend(self.binary_data.keys().filter(unused).map(|key| format!("binaryData.{key} is used by no filter")));
        warnings
    }
}

/// Applies one flat key.
fn overlay(filters: &mut Vec<FilterEntry>, key: &str, name: &str, text: &str, problems: &mut Problems) {
    let Some(name) = problems.keep(key, name.parse::<FilterName>()) else {
        return;
    };
    let mut rules = Vec::new();
    for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
        rules.extend(problems.keep(key, rule.parse::<MatchRule>()));
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
