//! The filters' configuration: raw → validated in one step, from a manifest's text or from the API's ConfigMap.
//!
//! Two forms live in one ConfigMap: `filters.yaml`, an ordered list; and flat keys `filter_<name>`, which replace the
//! match rules of a listed filter (empty: it is off) or stand for a filter with defaults.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value};
use weir_document::Path;

use super::entry::{FILTERS_YAML, MAX_FILTERS, read_list};
use super::manifest::Manifest;
use super::problem::{ConfigurationError, Problems};
use super::{Digest, FilterName, Limits, MatchRule, ModuleFile};
use crate::resource::GroupResource;

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

/// One filter as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterEntry {
    /// Unique in the configuration.
    pub name: FilterName,
    /// Where its code is.
    pub module: ModuleFile,
    /// What the code must be.
    pub digest: Option<Digest>,
    /// None: the rules of the module's plan. Never empty unless written so, which matches nothing.
    pub matches: Option<Vec<MatchRule>>,
    /// Given to the module as JSON text.
    pub settings: Map<String, Value>,
    /// What becomes of an object on which it fails.
    pub failure_policy: FailurePolicy,
    /// What becomes of a write that would put back what the filter alters.
    pub writes: Writes,
    /// What it may look up; none: [`default_grants`].
    pub grants: Option<Vec<GroupResource>>,
    /// Per call.
    pub limits: Limits,
    /// Guarded paths that it may edit nevertheless.
    pub edits: Vec<Path>,
}

/// What becomes of an object on which a filter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The answer fails: the client never sees an object that was not filtered.
    #[default]
    Fail,
    /// The object passes as it came to this filter.
    Ignore,
    /// The object is left out.
    Hide,
}

/// What becomes of a write that replaces an object which the filter shows altered, or not at all, to its writer: written
/// back, the filter's cut would become the cluster's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Writes {
    /// It is refused with 403.
    #[default]
    Refuse,
    /// It passes: the writer is known to write only what it means.
    Pass,
}

/// What a filter may look up when its entry says nothing: what the bundled filters need, and never secrets.
#[must_use]
pub fn default_grants() -> Vec<GroupResource> {
    [
        ("services", ""),
        ("endpointslices", "discovery.k8s.io"),
        ("endpoints", ""),
        ("nodes", ""),
        ("nodepools", "apps.openyurt.io"),
        ("nodebuckets", "apps.openyurt.io"),
        ("namespaces", ""),
    ]
    .map(|(resource, group)| GroupResource::new(resource, group))
    .into()
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

impl FilterEntry {
    /// A filter with defaults: its module is the file of its name.
    #[must_use]
    pub fn of(name: FilterName, matches: Option<Vec<MatchRule>>) -> Self {
        Self {
            module: ModuleFile::of_filter(&name),
            name,
            digest: None,
            matches,
            settings: Map::new(),
            failure_policy: FailurePolicy::default(),
            writes: Writes::default(),
            grants: None,
            limits: Limits::default(),
            edits: Vec::new(),
        }
    }

    /// The settings as the module receives them.
    #[must_use]
    pub fn settings_json(&self) -> String {
        Value::Object(self.settings.clone()).to_string()
    }

    /// What it may look up.
    #[must_use]
    pub fn granted(&self) -> Vec<GroupResource> {
        self.grants.clone().unwrap_or_else(default_grants)
    }
}

impl FailurePolicy {
    /// As it is written in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
            Self::Hide => "Hide",
        }
    }
}

#[cfg(test)]
mod tests;
