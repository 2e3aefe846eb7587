//! One entry of `filters.yaml` → a [`FilterEntry`], or every problem it has.

use serde_json::{Map, Value};
use weir_document::Path;

use super::manifest::{kind, yaml};
use super::problem::Problems;
use weir_kube::GroupResource;
use weir_runtime::{FilterEntry, FilterName, Limits, MatchRule, MemoryLimit, ModuleFile, TimeLimit};

/// The ConfigMap key of the ordered form.
pub(super) const FILTERS_YAML: &str = "filters.yaml";

/// More are refused: a chain that long is a mistake.
pub(super) const MAX_FILTERS: usize = 100;
/// Rules, grants or edits of one filter.
const MAX_ITEMS: usize = 200;

/// Reads `filters.yaml`. Entries with problems are left out; the problems decide.
pub(super) fn read_list(text: &str, problems: &mut Problems) -> Vec<FilterEntry> {
    let Some(value) = problems.keep(FILTERS_YAML, yaml(text)) else {
        return Vec::new();
    };
    let mut top = match value {
        Value::Object(top) => top,
        Value::Null => Map::new(),
        other => {
            problems.add(FILTERS_YAML, format_args!("must be a mapping with the key `filters`, is {}", kind(&other)));
            return Vec::new();
        }
    };
    let list = match top.shift_remove("filters") {
        Some(Value::Array(list)) => list,
        None | Some(Value::Null) => Vec::new(),
        Some(other) => {
            problems.add(format!("{FILTERS_YAML}: filters"), format_args!("must be a list, is {}", kind(&other)));
            Vec::new()
        }
    };
    for key in top.keys() {
        problems.add(format!("{FILTERS_YAML}: {key}"), "unknown key: the only one is `filters`");
    }
    if list.len() > MAX_FILTERS {
        let reason = format!("{} filters are too many: at most {MAX_FILTERS}", list.len());
        problems.add(format!("{FILTERS_YAML}: filters"), reason);
        return Vec::new();
    }
    let mut entries: Vec<FilterEntry> = Vec::with_capacity(list.len());
    for (i, value) in list.into_iter().enumerate() {
        let at = format!("{FILTERS_YAML}: filters[{i}]");
        let Some(entry) = read_entry(&at, value, problems) else {
            continue;
        };
        if entries.iter().any(|other| other.name == entry.name) {
            problems
                .add(format!("{at}.name"), format_args!("{:?} is used twice: names are unique", entry.name.as_str()));
        } else {
            entries.push(entry);
        }
    }
    entries
}

/// The keys of an entry that were not read yet, and where they stand.
struct Keys<'a> {
    at: &'a str,
    map: Map<String, Value>,
    problems: &'a mut Problems,
}

fn read_entry(at: &str, value: Value, problems: &mut Problems) -> Option<FilterEntry> {
    let Value::Object(map) = value else {
        problems.add(at, format_args!("must be a mapping with at least `name`, is {}", kind(&value)));
        return None;
    };
    let mut keys = Keys { at, map, problems };
    if !keys.map.contains_key("name") {
        keys.problem("name", "missing: every filter has a name");
    }
    let name = keys.text("name").and_then(|text| keys.parsed::<FilterName, _>("name", &text));
    let module = keys.text("module").and_then(|text| keys.parsed("module", &text));
    let digest = keys.text("digest").and_then(|text| keys.parsed("digest", &text));
    let matches = keys.list::<MatchRule>("match");
    let settings = keys.mapping("settings").unwrap_or_default();
    let failure_policy = keys.text("failurePolicy").and_then(|text| keys.parsed("failurePolicy", &text));
    let writes = keys.text("writes").and_then(|text| keys.parsed("writes", &text));
    let grants = keys.list::<GroupResource>("grants");
    if let Some(i) = grants.iter().flatten().position(|grant| grant.resource == "secrets" && grant.group.is_empty()) {
        keys.problem(&format!("grants[{i}]"), "secrets are never granted to a filter");
    }
    let limits = keys.limits();
    let edits = keys.edits();
    keys.unknown("name, module, digest, match, settings, failurePolicy, writes, grants, limits and edits");

    let name = name?;
    Some(FilterEntry {
        module: module.unwrap_or_else(|| ModuleFile::of_filter(&name)),
        name,
        digest,
        matches,
        settings,
        failure_policy: failure_policy.unwrap_or_default(),
        writes: writes.unwrap_or_default(),
        grants,
        limits,
        edits,
    })
}

impl Keys<'_> {
    fn problem(&mut self, key: &str, reason: impl std::fmt::Display) {
        self.problems.add(format!("{}.{key}", self.at), reason);
    }

    /// Takes a key out of the map: what is left at the end is unknown. Null counts as missing.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.shift_remove(key).filter(|value| !value.is_null())
    }

    /// A value of the wrong type.
    fn mistyped(&mut self, key: &str, wanted: &str, given: &Value) {
        self.problem(key, format_args!("must be {wanted}, is {}", kind(given)));
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
        self.problems.keep(format!("{}.{key}", self.at), text.parse())
    }

    /// A list of strings, each parsed. None when the key is missing or null.
    fn list<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<Vec<T>> {
        let items = match self.take(key)? {
            Value::Array(items) if items.len() <= MAX_ITEMS => items,
            Value::Array(items) => {
                self.problem(key, format_args!("{} items are too many: at most {MAX_ITEMS}", items.len()));
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
        let mut keys = Keys { at: &at, map, problems: self.problems };
        let memory = keys.number_or_text("memory").and_then(|text| keys.parsed::<MemoryLimit, _>("memory", &text));
        let time = keys.text("time").and_then(|text| keys.parsed::<TimeLimit, _>("time", &text));
        keys.unknown("memory and time");
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
                self.problems.keep(at, Path::parse(text).map_err(|error| format!("{text:?} is not a path: {error}"))),
            );
        }
        paths
    }

    fn unknown(self, known: &str) {
        for key in self.map.keys() {
            self.problems.add(format!("{}.{key}", self.at), format_args!("unknown key: known are {known}"));
        }
    }
}
