//! Kubernetes label selectors, for example `app=web,tier in (a,b),!canary`, parsed as `labels.Parse` of apimachinery does.
//!
//! A selector is parsed once and owns its text. Kept by hand: kube-core's `Selector` matches labels, but parses no text.

mod parser;

use std::fmt;

use self::parser::Parser;

/// What each text takes beside its bytes.
pub(crate) const ALLOCATION: usize = 16;

/// Requirements on the labels of an object. The empty selector matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<LabelRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelOperator {
    /// The object has the label.
    Exists,
    /// The object does not have the label.
    DoesNotExist,
    /// The object has the label with one of these values.
    In(Vec<String>),
    /// The object does not have the label, or has it with another value.
    NotIn(Vec<String>),
    /// The object has the label with a greater integer.
    Greater(i64),
    /// The object has the label with a smaller integer.
    Less(i64),
}

/// A syntax error in a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("label selector, byte {position}: {reason}")]
pub struct SelectorError {
    /// Offset of the first unexpected byte.
    pub position: usize,
    /// What the parser expected there.
    pub reason: &'static str,
}

impl LabelSelector {
    /// Parses comma-separated requirements: `key`, `!key`, `key=value`, `key==value`, `key!=value`, `key in (a,b)`,
    /// `key notin (a,b)`, `key>1`, `key<1`.
    ///
    /// # Errors
    /// What the API server refuses, too: the syntax, or an invalid key or value.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Parser::new(text).requirements()?;
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(LabelSelector(requirements))
    }

    /// Whether the labels meet every requirement. `label` returns the value of a label.
    pub fn matches<V: AsRef<str>>(&self, mut label: impl FnMut(&str) -> Option<V>) -> bool {
        self.0.iter().all(|requirement| {
            let value = label(&requirement.key);
            let value = value.as_ref().map(AsRef::as_ref);
            let among = |values: &[String]| value.is_some_and(|value: &str| values.iter().any(|one| one == value));
            match &requirement.operator {
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
                LabelOperator::In(values) => among(values),
                LabelOperator::NotIn(values) => !among(values),
                LabelOperator::Greater(bound) => integer(value).is_some_and(|value| value > *bound),
                LabelOperator::Less(bound) => integer(value).is_some_and(|value| value < *bound),
            }
        })
    }

    /// The bytes that it takes in memory, which are many times its text where requirements are short.
    pub fn size(&self) -> usize {
        let text = |text: &String| text.capacity() + ALLOCATION;
        let requirement = |LabelRequirement { key, operator }: &LabelRequirement| match operator {
            LabelOperator::In(values) | LabelOperator::NotIn(values) => {
                text(key) + values.capacity() * size_of::<String>() + values.iter().map(text).sum::<usize>()
            }
            LabelOperator::Exists
            | LabelOperator::DoesNotExist
            | LabelOperator::Greater(_)
            | LabelOperator::Less(_) => text(key),
        };
        self.0.capacity() * size_of::<LabelRequirement>() + self.0.iter().map(requirement).sum::<usize>()
    }

    /// Whether the selector has no requirement and matches every object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The normal form: equal selectors have the same, and parsing it gives the selector again.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LabelRequirement { key, operator }) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match operator {
                LabelOperator::Exists => f.write_str(key),
                LabelOperator::DoesNotExist => write!(f, "!{key}"),
                LabelOperator::In(values) => match values.as_slice() {
                    [value] => write!(f, "{key}={value}"),
                    values => write!(f, "{key} in ({})", values.join(",")),
                },
                LabelOperator::NotIn(values) => match values.as_slice() {
                    [value] => write!(f, "{key}!={value}"),
                    values => write!(f, "{key} notin ({})", values.join(",")),
                },
                LabelOperator::Greater(bound) => write!(f, "{key}>{bound}"),
                LabelOperator::Less(bound) => write!(f, "{key}<{bound}"),
            }?;
        }
        Ok(())
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::LabelSelector;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let find = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        LabelSelector::parse(selector).unwrap().matches(find)
    }

    #[test]
    fn each_operator_follows_the_kubernetes_rules() {
        let labels = [("app", "web"), ("tier", "a"), ("empty", ""), ("x.io/in", "1"), ("in", "notin")];
        for yes in [
            "",
            " ",
            "app=web",
            "app==web",
            "app = web , tier=a",
            "app!=db",
            "none!=db",
            "app in (db,web)",
            "app in ( web )",
            "app notin (db)",
            "none notin (db)",
            "app",
            "!none",
            "empty=",
            "empty in (,x)",
            "x.io/in=1",
            "x.io/in in (1)",
            "app,!none",
            "app in (web,,,)",
            "app in (,,web)",
            "empty in ()",
            "empty in (,)",
            "in in (notin)",
            "in=notin",
            "x.io/in>0",
            "x.io/in < 2",
            "app=\0web",
            "app=web\n",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in [
            "app=db",
            "app!=web",
            "app in (db)",
            "app notin (web)",
            "none",
            "!app",
            "none=",
            "none in (a)",
            "app,none",
            "empty=x",
            "x.io/in>1",
            "app>1",
            "none<1",
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_position() {
        let long = "a".repeat(64);
        for (text, position) in [
            (",", 0),
            ("app=web,", 8),
            ("a b", 2),
            ("a in", 4),
            ("a in b", 5),
            ("a in (b", 7),
            ("a in (b c)", 8),
            ("=a", 0),
            ("!", 1),
            ("!a=b", 2),
            ("a=b=c", 3),
            ("a>b", 1),
            ("a>", 1),
            ("a>9223372036854775808", 1),
            ("a>-1", 2),
            ("a in (b))", 8),
            ("a in (b,,)", 9),
            ("a in (,,)", 8),
            ("a/b/c", 0),
            ("/a", 0),
            ("a/", 0),
            ("A/b", 0),
            ("-a", 0),
            ("a=b/c", 2),
            ("a=b-", 2),
            ("a=\u{e4}", 2),
            (long.as_str(), 0),
            ("a\u{a0}=b", 0),
            ("a\0\0b=c,", 0),
        ] {
            match LabelSelector::parse(text) {
                Err(error) => assert_eq!(error.position, position, "{text}"),
                Ok(parsed) => assert_eq!((text, parsed.to_string().as_str()), ("a\0\0b=c,", "a")),
            }
        }
    }

    #[test]
    fn equal_selectors_have_the_same_normal_form() {
        for (text, normal) in [
            ("b , a==1", "a=1,b"),
            ("a in (c, b,c)", "a in (b,c)"),
            ("a in (b)", "a=b"),
            ("a notin ()", "a!="),
            ("!a,b!=c,d>1,e<2", "!a,b!=c,d>1,e<2"),
            ("a notin (,b)", "a notin (,b)"),
        ] {
            let parsed = LabelSelector::parse(text).unwrap();
            assert_eq!(parsed.to_string(), normal, "{text}");
            assert_eq!(LabelSelector::parse(normal).unwrap(), parsed, "{text}");
        }
    }
}
