//! What is wrong with a kubeconfig: each error names the file, what it has, and what to do.

use std::path::PathBuf;

use kube::config::KubeconfigError;

use crate::KubeconfigFiles;

/// The most names that an error lists.
const MAX_NAMES: usize = 10;

/// A kubeconfig cannot be used. It is retryable, because files may be fixed or created later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("kubeconfig {}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// `KUBECONFIG` has only empty names.
    #[error("KUBECONFIG names no file: set it to the path of a kubeconfig, or unset it for ~/.kube/config")]
    NoName,
    /// No file of a list exists.
    #[error("{files}: none of these files exists")]
    NoFile {
        /// The list.
        files: KubeconfigFiles,
    },
    /// The text of a file is not a kubeconfig, or contradicts the files before it.
    #[error("kubeconfig {}: {}", path.display(), describe(reason))]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        reason: Box<KubeconfigError>,
    },
    /// No context is selected.
    #[error("{files}: no current-context is set{}: {}", listed(contexts), files.select_a_context())]
    NoCurrentContext {
        /// The files.
        files: KubeconfigFiles,
        /// The names of the contexts.
        contexts: Vec<String>,
    },
    /// The selected context does not exist.
    #[error("{files}: the current-context {name:?} does not exist{}: {}", listed(contexts), files.select_a_context())]
    NoSuchContext {
        /// The files.
        files: KubeconfigFiles,
        /// The selected name.
        name: String,
        /// The names of the contexts.
        contexts: Vec<String>,
    },
    /// The current context names a cluster or a user that does not exist.
    #[error(
        "{files}: the current context {context:?} names the {kind} {name:?}, which does not exist{}: \
         correct it with `kubectl config set-context {context} --{kind}=NAME`, or select another context with \
         `kubectl config use-context NAME`",
        listed(known)
    )]
    Dangling {
        /// The files.
        files: KubeconfigFiles,
        /// The name of the context.
        context: String,
        /// `cluster` or `user`.
        kind: &'static str,
        /// The name that the context has.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The cluster or the user of the current context is not valid.
    #[error("{files}: {}", describe(reason))]
    Unusable {
        /// The files.
        files: KubeconfigFiles,
        /// The cause.
        reason: Box<KubeconfigError>,
    },
}

/// The names that would be right.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => " (there is none)".to_owned(),
        1 => format!(" (there is {shown})"),
        count if count > MAX_NAMES => format!(" (there are {shown} and {} more)", count.saturating_sub(MAX_NAMES)),
        _ => format!(" (there are {shown})"),
    }
}

/// An error of kube in other words: its own say what it failed to do, and not what is wrong.
fn describe(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(reason, _) => reason.to_string(),
        KubeconfigError::MissingClusterUrl => "the cluster of the current context has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(reason) => format!("the server of the current context is no URL: {reason}"),
        KubeconfigError::Parse(reason) => {
            // The lines after the first one show the text, which may have a token in it.
            let text = reason.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let text = text.replace("sequence start", "a list").replace("mapping start", "keys and values");
            format!("it is not valid: {text}")
        }
        KubeconfigError::KindMismatch => "its kind is not that of the files before it".to_owned(),
        KubeconfigError::ApiVersionMismatch => "its apiVersion is not that of the files before it".to_owned(),
        // kube repeats the source of an error in its text.
        other => other.to_string(),
    }
}
