//! Kubernetes field selectors, for example `metadata.name=a,spec.nodeName!=b`.
//!
//! The API server knows a few fields of each kind. [`FieldSelector::is_supported`] tells which ones Weir evaluates as the
//! server does (`pkg/registry/core/*/strategy.go`, `pkg/apis/core/v1/conversion.go`); requests with others go upstream.

use crate::GroupResource;

/// Requirements on the fields of an object. The empty selector matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    field: String,
    value: String,
    equal: bool,
}

/// A syntax error in a field selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field selector: {0:?} is not a requirement of the form field=value or field!=value")]
pub struct FieldSelectorError(String);

impl FieldSelector {
    /// Parses comma-separated requirements: `field=value`, `field==value`, `field!=value`. A backslash escapes a comma,
    /// an equals sign and a backslash.
    ///
    /// # Errors
    /// A requirement has no operator or no field.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let requirements = split_unescaped(text).into_iter().filter(|part| !part.trim().is_empty());
        requirements.map(|part| requirement(&part).ok_or(FieldSelectorError(part))).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the fields meet every requirement. `field` returns the value of a field, empty if it is absent.
    pub fn matches<V: AsRef<str>>(&self, mut field: impl FnMut(&str) -> V) -> bool {
        self.0.iter().all(|requirement| (field(&requirement.field).as_ref() == requirement.value) == requirement.equal)
    }

    /// Whether the selector has no requirement and matches every object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether Weir evaluates all requirements as the API server does.
    #[must_use]
    pub fn is_supported(&self, resource: &GroupResource) -> bool {
        self.0.iter().all(|requirement| supported(resource, &requirement.field))
    }
}

/// Whether the value of the field is the text at the same path of the object, on the API server, too.
fn supported(resource: &GroupResource, field: &str) -> bool {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return true;
    }
    let fields: &[&str] = match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        _ => &[],
    };
    fields.contains(&field)
}

/// Splits at commas that no backslash escapes. Keeps the escapes.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for char in text.chars() {
        if char == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = char == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(char);
        }
    }
    parts
}

fn requirement(text: &str) -> Option<FieldRequirement> {
    let (field, value, equal) = if let Some((field, value)) = text.split_once("!=") {
        (field, value, false)
    } else if let Some((field, value)) = text.split_once("==") {
        (field, value, true)
    } else {
        let (field, value) = text.split_once('=')?;
        (field, value, true)
    };
    let field = field.trim();
    (!field.is_empty()).then(|| FieldRequirement { field: field.to_owned(), value: unescaped(value.trim()), equal })
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        out.push(if char == '\\' { chars.next().unwrap_or('\\') } else { char });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str) -> bool {
        let field = |field: &str| match field {
            "metadata.name" => "a,b",
            "spec.nodeName" => "edge",
            _ => "",
        };
        FieldSelector::parse(selector).unwrap().matches(field)
    }

    #[test]
    fn requirements_are_joined_by_and() {
        for (selector, expected) in [
            ("", true),
            ("spec.nodeName=edge", true),
            ("spec.nodeName==edge", true),
            ("spec.nodeName!=edge", false),
            (r"metadata.name=a\,b,spec.nodeName=edge", true),
            (r"metadata.name=a\,b,spec.nodeName=other", false),
            ("status.phase=", true),
            ("spec.clusterIP!=None", true),
        ] {
            assert_eq!(matches(selector), expected, "{selector}");
        }
    }

    #[test]
    fn a_requirement_without_operator_is_an_error() {
        for selector in ["a", "=b", "a=b,c"] {
            assert!(FieldSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn fields_that_the_server_computes_are_not_supported() {
        let selector = |text| FieldSelector::parse(text).unwrap();
        let (pods, services) = (GroupResource::new("pods", ""), GroupResource::new("services", ""));
        assert!(selector("spec.nodeName=a,metadata.name=b").is_supported(&pods));
        assert!(!selector("spec.nodeName=a").is_supported(&services));
        assert!(!selector("spec.hostNetwork=true").is_supported(&pods), "absent means false");
    }
}
