//! Errors and their causes as Go's wrapped errors print them: `what failed: why`. `weir_upstream::error_report` does so for errors
//! of kube, too, whose answers of an API server need more.

use std::error::Error;

/// Formats an error and its chain of sources as `error: source: source`. It skips a source whose text is there already, because
/// some libraries repeat their source in `Display`.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut chain = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !chain.contains(&text) {
            chain = format!("{chain}: {text}");
        }
        source = cause.source();
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn each_cause_is_there_once() {
        let third = Layer("os error 2", None);
        let second = Layer("read", Some(Box::new(third)));
        let first = Layer("cannot start: read", Some(Box::new(second)));
        assert_eq!(error_chain(&first), "cannot start: read: os error 2");
    }
}
