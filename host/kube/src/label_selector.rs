//! Kubernetes label selectors, for example `app=web,tier in (a,b),!canary`.
//!
//! A selector is parsed once and owns its text.

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
    /// Parses comma-separated requirements: `key`, `!key`, `key=value`, `key==value`, `key!=value`,
    /// `key in (a,b)`, `key notin (a,b)`.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut parser = SelectorParser { text, at: 0 };
        let mut all = Vec::new();
        parser.space();
        if parser.rest().is_empty() {
            return Ok(LabelSelector(all));
        }
        loop {
            all.push(parser.requirement()?);
            parser.space();
            if parser.rest().is_empty() {
                return Ok(LabelSelector(all));
            }
            if !parser.eat(",") {
                return parser.refuse("expected a comma");
            }
        }
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
            }
        })
    }

    /// Whether the selector has no requirement and matches every object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct SelectorParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> SelectorParser<'a> {
    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        self.space();
        let absent = self.eat("!");
        self.space();
        let key = self.word();
        if key.is_empty() {
            return self.refuse("expected a label key");
        }
        let key = key.to_owned();
        if absent {
            return Ok(LabelRequirement { key, operator: LabelOperator::DoesNotExist });
        }
        let spaced = self.space();
        let operator = if self.eat("==") || self.eat("=") {
            LabelOperator::In(vec![self.value()?])
        } else if self.eat("!=") {
            LabelOperator::NotIn(vec![self.value()?])
        } else if spaced && self.keyword("in") {
            LabelOperator::In(self.set()?)
        } else if spaced && self.keyword("notin") {
            LabelOperator::NotIn(self.set()?)
        } else {
            LabelOperator::Exists
        };
        Ok(LabelRequirement { key, operator })
    }

    /// Parses `(a,b)`. A value may be empty.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        self.space();
        if !self.eat("(") {
            return self.refuse("expected (");
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.eat(")") {
                return Ok(values);
            }
            if !self.eat(",") {
                return self.refuse("expected , or )");
            }
        }
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        self.space();
        let value = self.word().to_owned();
        self.space();
        match self.rest().chars().next() {
            None | Some(',' | ')') => Ok(value),
            _ => self.refuse("not a label value"),
        }
    }

    fn keyword(&mut self, word: &str) -> bool {
        let start = self.at;
        let found = self.word() == word;
        if !found {
            self.at = start;
        }
        found
    }

    /// Parses a label key or value; the result may be empty.
    fn word(&mut self) -> &'a str {
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let rest = self.rest();
        let word = rest.get(..rest.find(|c| !part(c)).unwrap_or(rest.len())).unwrap_or_default();
        self.at += word.len();
        word
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) -> bool {
        let rest = self.rest();
        let skipped = rest.len() - rest.trim_start().len();
        self.at += skipped;
        skipped > 0
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn refuse<T>(&self, reason: &'static str) -> Result<T, SelectorError> {
        Err(SelectorError { position: self.at, reason })
    }
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
        let labels = [("app", "web"), ("tier", "a"), ("empty", ""), ("x.io/in", "1")];
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
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_position() {
        for (text, position) in [
            (",", 0),
            ("app=web,", 8),
            ("a b", 2),
            ("a in", 4),
            ("a in b", 5),
            ("a in (b", 7),
            ("=a", 0),
            ("!", 1),
            ("a=b=c", 3),
            ("a>1", 1),
            ("a in (b))", 8),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().position, position, "{text}");
        }
    }
}
