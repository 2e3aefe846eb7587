//! The errors of `-o json`: a script that reads standard output gets JSON from a command that fails, too. The sentence for people
//! is on standard error, and the exit code is that of the text format.

use serde_json::{Value, json};

use super::CommandError;
use crate::config::operator::OutputFormat;
use weir_upstream::error_report;

/// Prints the error of a command whose JSON is an object: `{"error": "…"}`.
pub(super) fn error_object<T>(is_json: bool, result: Result<T, CommandError>) -> Result<T, CommandError> {
    result.inspect_err(|error| {
        if is_json {
            print_line!("{:#}", json!({"error": error_report(error)}));
        }
    })
}

/// Prints the errors of a command whose JSON is a list, as its items.
pub(super) fn error_items<T>(output: OutputFormat, result: Result<T, CommandError>) -> Result<T, CommandError> {
    result.inspect_err(|error| {
        if output == OutputFormat::Json {
            print_line!("{:#}", Value::Array(items(error)));
        }
    })
}

/// One item, or one for each key of a configuration.
fn items(error: &CommandError) -> Vec<Value> {
    match error {
        CommandError::Configuration(invalid) => {
            let source = invalid.source_name();
            let item =
                |error: &crate::config::KeyError| json!({"source": source, "key": error.key, "error": error.reason});
            invalid.errors().iter().map(item).collect()
        }
        error => vec![json!({"error": error_report(error)})],
    }
}
