//! What is wrong with a configuration: every problem at once, each with the key it is about, so that one edit mends all.

use std::fmt;

/// One thing that must be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: `filters.yaml: filters[2].limits.memory`, `filter_endpoints`.
    pub key: String,
    /// What is wrong there.
    pub reason: String,
}

/// A configuration that can not be used. Never retryable: the text must change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigurationError {
    source_name: String,
    problems: Vec<Problem>,
}

/// Problems as they are found; bounded, so that a huge broken file makes no huge message.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    left_off: usize,
}

const MAX_PROBLEMS: usize = 50;
const MAX_REASON: usize = 600;

impl Problems {
    pub(super) fn add(&mut self, key: impl Into<String>, reason: impl fmt::Display) {
        if self.found.len() == MAX_PROBLEMS {
            self.left_off += 1;
            return;
        }
        let reason = reason.to_string().chars().take(MAX_REASON).collect();
        self.found.push(Problem { key: key.into(), reason });
    }

    /// Takes a value or its problem.
    pub(super) fn keep<T, E: fmt::Display>(&mut self, key: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add(key, error)).ok()
    }

    /// The value if nothing was wrong.
    pub(super) fn finish<T>(mut self, source_name: &str, value: T) -> Result<T, ConfigurationError> {
        if self.found.is_empty() {
            return Ok(value);
        }
        if self.left_off > 0 {
            self.found.push(Problem { key: "…".into(), reason: format!("and {} more problems", self.left_off) });
        }
        Err(ConfigurationError { source_name: source_name.to_owned(), problems: self.found })
    }
}

impl ConfigurationError {
    /// The file or ConfigMap: `/etc/weir/filters.yaml`, `ConfigMap kube-system/weir-filters`.
    #[must_use]
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Every problem, in the order of the text.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.key, self.reason) }
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source_name)?;
        for (i, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}
