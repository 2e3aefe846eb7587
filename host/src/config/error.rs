//! Errors of the filters' configuration: all of them at once, each with its key, so that one edit can fix them all.

use std::fmt;

/// An error in one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    /// The key: `filters.yaml: filters[2].limits.memory`, `filter_endpoints`. Empty for the configuration as a whole.
    pub key: String,
    /// What is wrong with its value.
    pub reason: String,
}

/// An invalid configuration. Not retryable: the text must change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigurationError {
    source_name: String,
    errors: Vec<KeyError>,
}

/// Collects errors during validation. Bounded, so that a large invalid file does not cause a large message.
#[derive(Debug, Default)]
pub(super) struct ErrorReport {
    errors: Vec<KeyError>,
    dropped: usize,
}

const MAX_ERRORS: usize = 50;
const MAX_REASON: usize = 600;

impl ErrorReport {
    pub(super) fn add(&mut self, key: impl Into<String>, reason: impl fmt::Display) {
        if self.errors.len() == MAX_ERRORS {
            self.dropped += 1;
            return;
        }
        let reason = reason.to_string().chars().take(MAX_REASON).collect();
        self.errors.push(KeyError { key: key.into(), reason });
    }

    /// Returns the value, or records the error and returns none.
    pub(super) fn ok<T, E: fmt::Display>(&mut self, key: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add(key, error)).ok()
    }

    /// Returns the value if no error was recorded.
    pub(super) fn finish<T>(mut self, source_name: &str, value: T) -> Result<T, ConfigurationError> {
        if self.errors.is_empty() {
            return Ok(value);
        }
        if self.dropped > 0 {
            self.errors.push(KeyError { key: "…".into(), reason: format!("and {} more errors", self.dropped) });
        }
        Err(ConfigurationError { source_name: source_name.to_owned(), errors: self.errors })
    }
}

impl ConfigurationError {
    /// The file or ConfigMap: `/etc/weir/filters.yaml`, `ConfigMap kube-system/weir-filters`.
    #[must_use]
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// All errors, in the order of the text.
    #[must_use]
    pub fn errors(&self) -> &[KeyError] {
        &self.errors
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.key, self.reason) }
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source_name)?;
        for (i, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}
