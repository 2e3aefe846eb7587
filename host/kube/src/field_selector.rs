//! Kubernetes field selectors, for example `metadata.name=a,spec.nodeName!=b`, parsed as `fields.ParseSelector` of
//! apimachinery does.
//!
//! The API server knows a few fields of each kind. [`FieldSelector::support`] returns which ones Weir evaluates as the server
//! does; requests with others go upstream. Kept by hand: kube has no field selectors but text.

mod support;

use std::fmt;

pub use self::support::FieldSupport;
use crate::label_selector::ALLOCATION;

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
#[error(
    "{0:?} is not a requirement of the form field=value or field!=value, with a backslash before each , = and \\ of the value"
)]
pub struct FieldSelectorError(String);

impl FieldSelectorError {
    /// Clients choose the length of a term.
    fn of(term: &str) -> Self {
        Self(term.chars().take(100).collect())
    }
}

impl FieldSelector {
    /// Parses comma-separated requirements: `field=value`, `field==value`, `field!=value`. Spaces count. In a value, a
    /// backslash escapes a comma, an equals sign and a backslash, and must.
    ///
    /// # Errors
    /// A requirement has no operator, or its value an invalid escape or an unescaped equals sign.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms: Vec<&str> = split_unescaped(text).into_iter().filter(|term| !term.is_empty()).collect();
        // In this order, as the server: the first requirement of `metadata.name` decides what is authorized.
        terms.sort_unstable();
        let requirements = terms.into_iter().map(|term| requirement(term).ok_or_else(|| FieldSelectorError::of(term)));
        // `=` requires nothing.
        let is_empty = |found: &FieldRequirement| found.field.is_empty() && found.value.is_empty();
        let requirements = requirements.filter(|found| !found.as_ref().is_ok_and(is_empty));
        requirements.collect::<Result<_, _>>().map(Self)
    }

    /// The selector `field=value`.
    #[must_use]
    pub(crate) fn equal(field: &str, value: &str) -> Self {
        Self(vec![FieldRequirement { field: field.to_owned(), value: value.to_owned(), equal: true }])
    }

    /// The value that the selector demands of a field, by its first requirement with `=`.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        let demands = |requirement: &&FieldRequirement| requirement.equal && requirement.field == field;
        self.0.iter().find(demands).map(|requirement| requirement.value.as_str())
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

    /// The bytes that it takes in memory, which are many times its text where requirements are short.
    #[must_use]
    pub fn size(&self) -> usize {
        let text = |text: &String| text.capacity() + ALLOCATION;
        let texts = self.0.iter().map(|FieldRequirement { field, value, .. }| text(field) + text(value));
        self.0.capacity() * size_of::<FieldRequirement>() + texts.sum::<usize>()
    }

    /// The fields of the requirements.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.field.as_str())
    }
}

/// The normal form: equal selectors have the same, and parsing it gives the selector again.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { field, value, equal }) in self.0.iter().enumerate() {
            let (comma, operator) = (if index == 0 { "" } else { "," }, if *equal { "=" } else { "!=" });
            write!(f, "{comma}{field}{operator}")?;
            for char in value.chars() {
                let escape = if matches!(char, '\\' | ',' | '=') { "\\" } else { "" };
                write!(f, "{escape}{char}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that no backslash escapes. Keeps the escapes.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|char| {
        let splits = char == ',' && !escaped;
        escaped = char == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Splits at the first operator. The text before it is the field, in any form.
fn requirement(term: &str) -> Option<FieldRequirement> {
    let equals = term.find('=')?;
    // A `!` counts only directly before the first `=`.
    let (field, rest) = term.split_at_checked(equals)?;
    let (field, value, equal) = match (field.strip_suffix('!'), rest.strip_prefix("==")) {
        (Some(field), _) => (field, rest.strip_prefix('=')?, false),
        (None, Some(value)) => (field, value, true),
        (None, None) => (field, rest.strip_prefix('=')?, true),
    };
    Some(FieldRequirement { field: field.to_owned(), value: unescaped(value)?, equal })
}

/// Resolves the escapes of a value; `None` if one is invalid or missing.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => chars.next().filter(|escaped| matches!(escaped, '\\' | ',' | '='))?,
            ',' | '=' => return None,
            char => char,
        });
    }
    Some(out)
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
            (",,", true),
            ("=", true),
            ("spec.nodeName=edge", true),
            ("spec.nodeName==edge", true),
            ("spec.nodeName!=edge", false),
            (r"metadata.name=a\,b,spec.nodeName=edge", true),
            (r"metadata.name=a\,b,spec.nodeName=other", false),
            ("status.phase=", true),
            ("spec.clusterIP!=None", true),
            ("spec.nodeName= edge", false),
            (" spec.nodeName=edge", false),
            ("spec.nodeName=ed\nge", false),
        ] {
            assert_eq!(matches(selector), expected, "{selector}");
        }
    }

    #[test]
    fn what_apimachinery_does_not_parse_is_an_error() {
        for selector in ["a", " ", "a=b,c", "a!==b", "a===b", "a=b=c", r"a=b\", r"a=\b", r"a=b\,c\", "a!b"] {
            assert!(FieldSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn equal_selectors_have_the_same_normal_form() {
        for (selector, normal) in [
            ("a==b", "a=b"),
            ("b=1,a!=2", "a!=2,b=1"),
            (r"a=x\=y\,z\\", r"a=x\=y\,z\\"),
            ("a!b=c", "a!b=c"),
            ("=b", "=b"),
            (",a=b,=,", "a=b"),
        ] {
            let parsed = FieldSelector::parse(selector).unwrap();
            assert_eq!(parsed.to_string(), normal, "{selector}");
            assert_eq!(FieldSelector::parse(normal).unwrap(), parsed, "{selector}");
        }
    }

    #[test]
    fn the_smallest_requirement_of_a_field_is_the_one_that_is_authorized() {
        let exact = |text| FieldSelector::parse(text).unwrap().exact("metadata.name").map(str::to_owned);
        assert_eq!(exact("metadata.name=b,metadata.name=a").as_deref(), Some("a"));
        assert_eq!(exact("metadata.name=b,metadata.name==c").as_deref(), Some("c"), "`=` is before `b`");
        assert_eq!(exact("metadata.name!=b"), None);
        assert_eq!(exact("metadata.name=").as_deref(), Some(""));
    }
}
