//! `weir status`: what a running daemon does, from its admin port.

mod summary;

use http::StatusCode;
use serde_json::Value;

use self::summary::summary;
use super::CommandError;
use super::admin_port::{AdminPort, Credential};
use super::output::error_object;
use super::workbench::block_on;
use crate::config::operator::{StatusFlags, StatusFormat};

/// Prints the state of a daemon, and returns whether it is well.
///
/// # Errors
/// No daemon answers on the admin port.
pub fn status(flags: &StatusFlags) -> Result<bool, CommandError> {
    let (status, answer) = error_object(flags.output == StatusFormat::Json, ask(flags))?;
    match flags.output {
        StatusFormat::Json => print_line!("{}", answer.trim_end()),
        StatusFormat::Text => print_line!("{}", summary(&status, false).trim_end()),
        StatusFormat::Wide => print_line!("{}", summary(&status, true).trim_end()),
    }
    Ok(is_well(&status))
}

/// Whether the health is `ready`: the exit code is 0 then, and 2 else.
fn is_well(status: &Value) -> bool {
    status.get("health").and_then(Value::as_str) == Some("ready")
}

/// The first line, and whether it is well.
#[cfg(test)]
pub(crate) fn first_line(status: &Value) -> (String, bool) {
    (summary(status, false).lines().next().unwrap_or_default().to_owned(), is_well(status))
}

/// What the daemon answers: parsed, and as it is.
fn ask(flags: &StatusFlags) -> Result<(Value, String), CommandError> {
    let admin = AdminPort::new(flags.admin, Credential::uid());
    let answer = block_on(admin.get("/status"))?;
    if answer.status != StatusCode::OK {
        return Err(admin.unexpected(format!("{}: {}", answer.status, answer.text)));
    }
    let status = serde_json::from_str(&answer.text).map_err(|error| admin.unexpected(error))?;
    Ok((status, answer.text))
}
