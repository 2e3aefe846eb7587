//! Compares what a run made of an object with what the case expects, and tells the difference in words and lines.

use std::fmt::Debug;

use bytes::Bytes;
use serde_json::Value;
use similar::TextDiff;

use super::{Case, Expect};

/// What a run, native or in the host, made of a case's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object passed, with these bytes.
    Kept(Bytes),
    /// It was hidden.
    Hidden,
    /// The filter refused its settings.
    ConfigureFailed(String),
    /// The filter failed, by an error or a trap.
    Failed {
        /// How it failed, as whoever ran it classes failures. Not compared with the case.
        class: &'static str,
        /// What it said.
        message: String,
    },
}

impl Case {
    /// Whether the outcome is the expected one; if not, how they differ.
    pub fn judge(&self, outcome: &Outcome) -> Result<(), String> {
        match (&self.expect, outcome) {
            (Expect::Unchanged, Outcome::Kept(bytes)) if *bytes == self.input() => Ok(()),
            (Expect::Unchanged, Outcome::Kept(bytes)) => match serde_json::from_slice::<Value>(bytes) {
                Ok(found) if Value::to_string(&found) != Value::to_string(&self.input) => {
                    Err(difference(&self.input, &found))
                }
                _ => Err(format!("the same values in other bytes: {}", String::from_utf8_lossy(bytes))),
            },
            (Expect::Hidden, Outcome::Hidden) => Ok(()),
            (Expect::Object(expected), Outcome::Kept(bytes)) => match serde_json::from_slice::<Value>(bytes) {
                Ok(found) if found == *expected => Ok(()),
                Ok(found) => Err(difference(expected, &found)),
                Err(error) => Err(format!("no longer JSON: {error}")),
            },
            (Expect::ConfigureError(part), Outcome::ConfigureFailed(message)) => contains(message, part),
            (Expect::Error(part), Outcome::Failed { message, .. }) => contains(message, part),
            (_, Outcome::Kept(bytes)) => Err(format!("it passed as {}", String::from_utf8_lossy(bytes))),
            (_, Outcome::Hidden) => Err("it was hidden".to_owned()),
            (_, Outcome::ConfigureFailed(message)) => Err(format!("the settings were refused: {message}")),
            (_, Outcome::Failed { message, .. }) => Err(format!("the filter failed: {message}")),
        }
        .map_err(|found| match &self.expect {
            Expect::Object(_) | Expect::Unchanged => found,
            expected => format!("expected {expected:?}, but {found}"),
        })
    }
}

fn contains(message: &str, part: &str) -> Result<(), String> {
    if message.contains(part) { Ok(()) } else { Err(format!("the message is `{message}`")) }
}

/// The lines of two JSON values that differ.
pub(super) fn difference(expected: &Value, found: &Value) -> String {
    told(&format!("{expected:#}\n"), &format!("{found:#}\n"))
}

/// The lines of two values that differ, as they print for debugging.
pub(super) fn lines(expected: &impl Debug, found: &impl Debug) -> String {
    told(&format!("{expected:#?}\n"), &format!("{found:#?}\n"))
}

/// The lines that differ: `-` expected, `+` found.
fn told(expected: &str, found: &str) -> String {
    TextDiff::from_lines(expected, found).unified_diff().context_radius(3).header("expected", "found").to_string()
}
