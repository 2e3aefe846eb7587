//! Label and field selectors, parsed from a query and evaluated on objects.
//!
//! A field selector may name any dotted path. It compares text, and an absent field is the empty string.
//! (kube-apiserver supports a few fields per kind and refuses the rest.) Memory: the parsed text.

use serde_json::{Map, Value};

use crate::status::Status;
use crate::store::StoredObject;

/// Both selectors of a request. An empty one matches every object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

#[derive(Clone, Debug)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

// === impl Selector ===

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        Ok(Self {
            labels: parse_labels(labels)
                .ok_or_else(|| Status::bad_request(format!("unable to parse requirement: {labels:?}")))?,
            fields: parse_fields(fields)
                .ok_or_else(|| Status::bad_request(format!("invalid selector: {fields:?}; can't understand it")))?,
        })
    }

    pub(crate) fn matches(&self, object: &StoredObject) -> bool {
        let labels = object.metadata().get("labels").and_then(Value::as_object);
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|field| field.matches(&object.body))
    }

    /// The name in the field selector, if any. Authorization uses it as the request's name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.iter().find(|field| field.equal && field.path == "metadata.name").map(|field| field.value.as_str())
    }
}

// === impl Requirement ===

impl Requirement {
    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        match (&self.test, value) {
            (Test::Exists, found) => found.is_some(),
            (Test::Absent, found) => found.is_none(),
            (Test::In(values), Some(found)) => values.iter().any(|value| value == found),
            (Test::In(_), None) => false,
            (Test::NotIn(values), Some(found)) => !values.iter().any(|value| value == found),
            (Test::NotIn(_), None) => true,
        }
    }
}

// === impl Field ===

impl FieldTerm {
    fn matches(&self, body: &Map<String, Value>) -> bool {
        let mut steps = self.path.split('.');
        let mut found = steps.next().and_then(|step| body.get(step));
        for step in steps {
            found = found.and_then(|value| value.get(step));
        }
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None if self.path == "spec.unschedulable" => "false".to_owned(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        (text == self.value) == self.equal
    }
}

/// The grammar of `labels.Parse`, without `<` and `>`.
fn parse_labels(text: &str) -> Option<Vec<Requirement>> {
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        requirements.push(parse_requirement(part)?);
    }
    Some(requirements)
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return requirement(key, Test::Absent);
    }
    if let Some((key, value)) = part.split_once("!=") {
        return requirement(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return requirement(key, Test::In(vec![value.trim().to_owned()]));
    }
    if let Some((head, rest)) = part.split_once('(') {
        let values = rest.trim_end().strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => requirement(key, Test::In(values)),
            "notin" => requirement(key, Test::NotIn(values)),
            _ => None,
        };
    }
    requirement(part, Test::Exists)
}

fn requirement(key: &str, test: Test) -> Option<Requirement> {
    let key = key.trim();
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    plain.then(|| Requirement { key: key.to_owned(), test })
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

fn parse_fields(text: &str) -> Option<Vec<FieldTerm>> {
    let mut fields = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else {
            let (path, value) = part.split_once("==").or_else(|| part.split_once('='))?;
            (path, value, true)
        };
        fields.push(FieldTerm { path: path.trim().to_owned(), value: value.to_owned(), equal });
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str, set: &[(&str, &str)]) -> Option<bool> {
        let set: Map<String, Value> = set.iter().map(|(key, value)| (key.to_string(), Value::from(*value))).collect();
        let parsed = parse_labels(text)?;
        Some(parsed.iter().all(|one| one.matches(Some(&set))))
    }

    #[test]
    fn label_selectors_read_as_kubernetes_reads_them() {
        let set = [("app", "dns"), ("tier", "edge")];
        for (text, expected) in [
            ("", Some(true)),
            ("app=dns", Some(true)),
            ("app==dns,tier!=core", Some(true)),
            ("app in (web, dns),tier", Some(true)),
            ("app notin (dns)", Some(false)),
            ("!app", Some(false)),
            ("!service.kubernetes.io/headless", Some(true)),
            ("missing", Some(false)),
            ("missing!=x", Some(true)),
            ("app of (dns)", None),
            ("app=dns,a b", None),
        ] {
            assert_eq!(labels(text, &set), expected, "{text}");
        }
    }

    #[test]
    fn field_selectors_compare_any_path_as_text() {
        let body = serde_json::json!({"metadata": {"name": "a"}, "spec": {"port": 3}});
        let body = body.as_object().unwrap();
        for (text, expected) in [
            ("metadata.name=a", true),
            ("spec.port==3,spec.nodeName=", true),
            ("metadata.name!=a", false),
            ("spec.unschedulable=false", true),
        ] {
            let fields = parse_fields(text).unwrap();
            assert_eq!(fields.iter().all(|field| field.matches(body)), expected, "{text}");
        }
        assert!(parse_fields("metadata.name").is_none());
    }
}
