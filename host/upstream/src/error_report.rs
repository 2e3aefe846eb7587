//! Formats errors for logs, command output and `Status` messages.

use std::error::Error;

use kube::core::Status;

/// Formats an error and its chain of sources as `error: source: source`.
///
/// Skips a source whose text the report already ends with, because some libraries repeat their source in `Display`. Removes
/// the prefix of `kube::Error::Service`, which names a type of that library.
#[must_use]
pub fn error_report(error: &(dyn Error + 'static)) -> String {
    let mut report = text_of(error);
    let mut outer = error;
    while let Some(inner) = outer.source() {
        let reason = text_of(inner);
        // The source of an answer is the answer again.
        if answer(outer).is_none() && !report.ends_with(&reason) {
            report = format!("{report}: {reason}");
        }
        outer = inner;
    }
    report.replace("ServiceError: ", "")
}

/// The text of one error. kube shows the answer of an API server as a Rust value.
fn text_of(error: &(dyn Error + 'static)) -> String {
    answer(error).map_or_else(|| error.to_string(), status_text)
}

fn answer<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The code of an answer, and what the API server says. What is no `Status`, such as the JSON or the page of a proxy before it, is
/// not shown whole.
fn status_text(status: &Status) -> String {
    let name =
        http::StatusCode::from_u16(status.code).ok().and_then(|code| code.canonical_reason()).unwrap_or_default();
    let answered = format!("the API server answered {} {name}", status.code);
    let text = status.message.trim();
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(body) => match body.get("message").and_then(serde_json::Value::as_str) {
            Some(message) => format!("{}: {message}", answered.trim_end()),
            None => format!("{}, with a body that is no Status of Kubernetes", answered.trim_end()),
        },
        Err(_) if text.starts_with('<') => {
            format!("{}, with a page that is no Status of Kubernetes", answered.trim_end())
        }
        Err(_) if text.is_empty() => answered.trim_end().to_owned(),
        Err(_) => format!("{}: {text}", answered.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_an_api_server_is_its_code_and_message() {
        let report = |message: &str| {
            let status = Status { code: 401, message: message.to_owned(), reason: "x".to_owned(), ..Status::default() };
            error_report(&kube::Error::Api(Box::new(status)))
        };
        let answered = "the API server answered 401 Unauthorized";
        assert_eq!(report("Unauthorized: no token"), format!("{answered}: Unauthorized: no token"));
        assert_eq!(report(""), answered);
        assert_eq!(report(r#"{"message": "no token", "code": 1}"#), format!("{answered}: no token"));
        assert_eq!(report(r#"{"error": 7}"#), format!("{answered}, with a body that is no Status of Kubernetes"));
        assert_eq!(report("<html>"), format!("{answered}, with a page that is no Status of Kubernetes"));
    }
}
