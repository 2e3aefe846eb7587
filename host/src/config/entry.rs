//! Parses and validates `filters.yaml`.

mod roll_out;

use serde_json::{Map, Value};
use weir_document::Path;

use super::error::ErrorReport;
use super::keys::{ConfigKey, FILTER_KEYS, LIMIT_KEYS};
use super::manifest::{kind, yaml};
use weir_kube::GroupResource;
use weir_spec::{FilterEntry, FilterName, Limits, MatchRule, MemoryLimit, ModuleSource, TimeLimit};

/// The ConfigMap key of the ordered form.
pub(super) const FILTERS_YAML: &str = "filters.yaml";

/// The most filters of a configuration. A longer chain is a mistake.
pub(super) const MAX_FILTERS: usize = 100;
/// The most rules, grants or edits of one filter.
const MAX_ITEMS: usize = 200;

/// Parses `filters.yaml`. Invalid entries are left out and reported. Returns `None` if it has no list, which is not the same as an
/// empty one.
pub(super) fn read_list(text: &str, report: &mut ErrorReport) -> Option<Vec<FilterEntry>> {
    let Some(value) = report.ok(FILTERS_YAML, yaml(text)) else {
        return Some(Vec::new());
    };
    let mut top = match value {
        Value::Object(top) => top,
        Value::Null => return None,
        other => {
            report.add(FILTERS_YAML, format_args!("must be a mapping with the key `filters`, is {}", kind(&other)));
            return Some(Vec::new());
        }
    };
    let list = match top.shift_remove("filters") {
        Some(Value::Array(list)) => Some(list),
        None | Some(Value::Null) => None,
        Some(other) => {
            report.add(format!("{FILTERS_YAML}: filters"), format_args!("must be a list, is {}", kind(&other)));
            Some(Vec::new())
        }
    };
    for key in top.keys() {
        report.add(format!("{FILTERS_YAML}: {key}"), "unknown key; the only valid key is `filters`");
    }
    list.map(|list| read_entries(list, report))
}

fn read_entries(list: Vec<Value>, report: &mut ErrorReport) -> Vec<FilterEntry> {
    if list.len() > MAX_FILTERS {
        let reason = format!("{} filters are too many: at most {MAX_FILTERS}", list.len());
        report.add(format!("{FILTERS_YAML}: filters"), reason);
        return Vec::new();
    }
    let mut entries: Vec<FilterEntry> = Vec::with_capacity(list.len());
    for (i, value) in list.into_iter().enumerate() {
        let at = format!("{FILTERS_YAML}: filters[{i}]");
        let Some(entry) = read_entry(&at, value, report) else {
            continue;
        };
        if entries.iter().any(|other| other.name == entry.name) {
            report.add(format!("{at}.name"), format_args!("{:?} is used twice: names are unique", entry.name.as_str()));
        } else {
            entries.push(entry);
        }
    }
    entries
}

/// The keys of a mapping that have not been parsed yet, and its position in the text.
struct EntryKeys<'a> {
    at: &'a str,
    map: Map<String, Value>,
    report: &'a mut ErrorReport,
}

fn read_entry(at: &str, value: Value, report: &mut ErrorReport) -> Option<FilterEntry> {
    let Value::Object(map) = value else {
        report.add(at, format_args!("must be a mapping with at least `name`, is {}", kind(&value)));
        return None;
    };
    let mut keys = EntryKeys { at, map, report };
    // A file that is cut has `name:` without a value.
    if keys.map.get("name").is_none_or(Value::is_null) {
        keys.error("name", "missing: every filter has a name");
    }
    let name = keys.text("name").and_then(|text| keys.parsed::<FilterName, _>("name", &text));
    let module = keys.text("module").and_then(|text| keys.parsed::<ModuleSource, _>("module", &text));
    let digest = keys.text("digest").and_then(|text| keys.parsed("digest", &text));
    if matches!(module, Some(ModuleSource::ConfigMap(_))) && digest.is_none() {
        keys.error("digest", "missing: a module in a ConfigMap of its own is read once, and found again by its digest");
    }
    let signature = keys.text("signature");
    let matches = keys.list::<MatchRule>("match");
    let settings = keys.mapping("settings").unwrap_or_default();
    let mode = keys.text("mode").and_then(|text| keys.parsed("mode", &text));
    let nodes = keys.nodes();
    let rollback = keys.rollback();
    let failure_policy = keys.text("failurePolicy").and_then(|text| keys.parsed("failurePolicy", &text));
    let allow_hide = keys.truth("allowHide");
    let writes = keys.text("writes").and_then(|text| keys.parsed("writes", &text));
    let grants = keys.list::<GroupResource>("grants");
    if let Some(i) = grants.iter().flatten().position(|grant| grant.resource == "secrets" && grant.group.is_empty()) {
        keys.error(&format!("grants[{i}]"), "secrets are never granted to a filter");
    }
    let limits = keys.limits();
    let edits = keys.edits();
    keys.unknown(FILTER_KEYS);

    let name = name?;
    Some(FilterEntry {
        module: module.unwrap_or_else(|| ModuleSource::of_filter(&name)),
        name,
        digest,
        signature,
        matches,
        settings,
        mode: mode.unwrap_or_default(),
        nodes,
        rollback,
        failure_policy: failure_policy.unwrap_or_default(),
        allow_hide: allow_hide.unwrap_or_default(),
        writes: writes.unwrap_or_default(),
        grants,
        limits,
        edits,
    })
}

impl EntryKeys<'_> {
    fn error(&mut self, key: &str, reason: impl std::fmt::Display) {
        self.report.add(format!("{}.{key}", self.at), reason);
    }

    /// Removes a key and returns its value. Null counts as missing.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.shift_remove(key).filter(|value| !value.is_null())
    }

    /// Reports a value of the wrong type.
    fn mistyped(&mut self, key: &str, wanted: &str, given: &Value) {
        self.error(key, format_args!("must be {wanted}, is {}", kind(given)));
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => {
                self.mistyped(key, "a string", &other);
                None
            }
        }
    }

    fn truth(&mut self, key: &str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(truth) => Some(truth),
            other => {
                self.mistyped(key, "true or false", &other);
                None
            }
        }
    }

    fn mapping(&mut self, key: &str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(map) => Some(map),
            other => {
                self.mistyped(key, "a mapping", &other);
                None
            }
        }
    }

    fn parsed<T: std::str::FromStr<Err = E>, E: std::fmt::Display>(&mut self, key: &str, text: &str) -> Option<T> {
        self.report.ok(format!("{}.{key}", self.at), text.parse())
    }

    /// A list of strings, each parsed. None when the key is missing or null.
    fn list<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<Vec<T>> {
        let items = match self.take(key)? {
            Value::Array(items) if items.len() <= MAX_ITEMS => items,
            Value::Array(items) => {
                self.error(key, format_args!("{} items are too many: at most {MAX_ITEMS}", items.len()));
                return None;
            }
            other => {
                self.mistyped(key, "a list of strings", &other);
                return None;
            }
        };
        let mut list = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            let key = format!("{key}[{i}]");
            match item {
                Value::String(text) => list.extend(self.parsed::<T, _>(&key, &text)),
                other => self.mistyped(&key, "a string", &other),
            }
        }
        Some(list)
    }

    fn limits(&mut self) -> Limits {
        let Some(map) = self.mapping("limits") else {
            return Limits::default();
        };
        let at = format!("{}.limits", self.at);
        let mut keys = EntryKeys { at: &at, map, report: self.report };
        let memory = keys.number_or_text("memory").and_then(|text| keys.parsed::<MemoryLimit, _>("memory", &text));
        let time = keys.text("time").and_then(|text| keys.parsed::<TimeLimit, _>("time", &text));
        keys.unknown(LIMIT_KEYS);
        Limits { memory: memory.unwrap_or_default(), time: time.unwrap_or_default() }
    }

    /// Kubernetes quantities may be written as plain numbers.
    fn number_or_text(&mut self, key: &str) -> Option<String> {
        match self.map.get(key) {
            Some(Value::Number(number)) => {
                let text = number.to_string();
                self.map.shift_remove(key);
                Some(text)
            }
            _ => self.text(key),
        }
    }

    fn edits(&mut self) -> Vec<Path> {
        let texts = self.list::<String>("edits").unwrap_or_default();
        let mut paths = Vec::with_capacity(texts.len());
        for (i, text) in texts.iter().enumerate() {
            let at = format!("{}.edits[{i}]", self.at);
            paths.extend(
                self.report.ok(at, Path::parse(text).map_err(|error| format!("{text:?} is not a path: {error}"))),
            );
        }
        paths
    }

    /// Reports all keys that the table does not list.
    fn unknown(self, table: &[ConfigKey]) {
        let names: Vec<_> = table.iter().map(|key| key.name).collect();
        for key in self.map.keys().filter(|key| !names.contains(&key.as_str())) {
            let reason = format!("unknown key; valid keys are {}", names.join(", "));
            self.report.add(format!("{}.{key}", self.at), reason);
        }
    }
}
