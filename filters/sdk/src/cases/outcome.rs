//! The outcome of a run, and its comparison with what the case expects.

use bytes::Bytes;
use diffy::DiffOptions;
use serde_json::Value;

use super::{Case, Expect};
use crate::Plan;

/// The outcome of a run of a case, native or in the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// The filter kept the object, with these bytes.
    Kept(Bytes),
    /// The filter hid the object.
    Hidden,
    /// The filter rejected its settings.
    ConfigureFailed(String),
    /// The filter failed, by an error or a trap.
    Failed {
        /// The class of the failure, as the runner names it. It is not compared with the case.
        class: &'static str,
        /// The error message.
        message: String,
    },
}

impl Case {
    /// Compares an outcome with the expected one. The error describes the difference.
    pub fn compare(&self, outcome: &CaseOutcome) -> Result<(), String> {
        match (&self.expect, outcome) {
            (Expect::Unchanged, CaseOutcome::Kept(bytes)) if *bytes == self.input() => Ok(()),
            (Expect::Unchanged, CaseOutcome::Kept(bytes)) => match serde_json::from_slice::<Value>(bytes) {
                Ok(found) if Value::to_string(&found) != Value::to_string(&self.input) => {
                    Err(difference(&self.input, &found))
                }
                _ => Err(format!("equal values in different bytes: {}", String::from_utf8_lossy(bytes))),
            },
            (Expect::Hidden, CaseOutcome::Hidden) => Ok(()),
            (Expect::Object(expected), CaseOutcome::Kept(bytes)) => match serde_json::from_slice::<Value>(bytes) {
                Ok(found) if found == *expected => Ok(()),
                Ok(found) => Err(difference(expected, &found)),
                Err(error) => Err(format!("the outcome is not JSON: {error}")),
            },
            (Expect::ConfigureError(part), CaseOutcome::ConfigureFailed(message)) => contains(message, part),
            (Expect::Error(part), CaseOutcome::Failed { message, .. }) => contains(message, part),
            (_, CaseOutcome::Kept(bytes)) => Err(format!("the filter kept it as {}", String::from_utf8_lossy(bytes))),
            (_, CaseOutcome::Hidden) => Err("the filter hid it".to_owned()),
            (_, CaseOutcome::ConfigureFailed(message)) => Err(format!("the filter rejected its settings: {message}")),
            (_, CaseOutcome::Failed { message, .. }) => Err(format!("the filter failed: {message}")),
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

/// Returns a line diff of two JSON values.
pub(super) fn difference(expected: &Value, found: &Value) -> String {
    diff(&format!("{expected:#}\n"), &format!("{found:#}\n"))
}

/// Compares a plan with the expected one. The error describes the difference.
pub fn compare_plans(expected: &Plan, found: &Plan) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(diff(&format!("{expected:#?}\n"), &format!("{found:#?}\n")))
}

/// Returns a unified diff: `-` expected, `+` found.
fn diff(expected: &str, found: &str) -> String {
    let mut options = DiffOptions::new();
    options.set_original_filename("expected").set_modified_filename("found");
    options.create_patch(expected, found).to_string()
}
