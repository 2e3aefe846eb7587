//! Why a registry did not give or take something.

use oci_client::errors::{OciDistributionError, OciEnvelope, OciErrorCode};
use weir_runtime::Digest;

use crate::artifact::ArtifactError;

/// The longest text of a registry in a message.
const MAX_TEXT: usize = 300;

/// Why a registry did not give or take something. The message begins with its host.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {problem}")]
pub struct RegistryError {
    pub(crate) host: String,
    pub(crate) problem: Problem,
}

/// What the problem is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("401: {0}")]
    Unauthorized(&'static str),
    #[error("403: {0}")]
    Forbidden(String),
    #[error("404: it does not have {0}")]
    NotFound(String),
    #[error("429: it has had too many requests: {0}")]
    TooManyRequests(String),
    #[error("{code}: {text}")]
    Status { code: u16, text: String },
    #[error("{0}")]
    Unreachable(String),
    #[error("it answered what is not {0}, but has another digest: is it a registry?")]
    WrongDigest(String),
    #[error("the answer ended after {0} of {1} bytes: {2}")]
    Truncated(u64, u64, String),
    #[error("the answer is longer than the {0} bytes that the manifest says")]
    TooLong(u64),
    #[error("{0}")]
    Artifact(#[from] ArtifactError),
    #[error("{0}")]
    File(#[from] std::io::Error),
    #[error("{0}")]
    Other(String),
}

impl Problem {
    /// Whether the registry does not have it.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    pub(crate) fn at(self, host: &str) -> RegistryError {
        RegistryError { host: host.to_owned(), problem: self }
    }

    /// Says what a library error is. `what` was asked for, with a credential or without.
    pub(crate) fn of(error: OciDistributionError, what: &str, has_credential: bool) -> Self {
        match error {
            OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => {
                Self::Unauthorized(match has_credential {
                    true => "it does not accept the credential, or this may not read the repository",
                    false => "it wants a credential: name one in --registry-auth",
                })
            }
            OciDistributionError::RegistryError { envelope, .. } => envelope_problem(&envelope, what),
            OciDistributionError::ServerError { code, message, .. } => match code {
                403 => Self::Forbidden(text(&message)),
                404 => Self::NotFound(what.to_owned()),
                429 => Self::TooManyRequests(text(&message)),
                code => Self::Status { code, text: text(&message) },
            },
            OciDistributionError::ImageManifestNotFoundError(_) => Self::NotFound(what.to_owned()),
            OciDistributionError::DigestError(_) => Self::WrongDigest(what.to_owned()),
            OciDistributionError::RequestError(error) => Self::Unreachable(chain(&error)),
            error => Self::Other(text(&chain(&error))),
        }
    }

    pub(crate) fn digest(digest: Digest) -> Self {
        Self::WrongDigest(digest.to_string())
    }
}

fn envelope_problem(envelope: &OciEnvelope, what: &str) -> Problem {
    let message = text(&envelope.errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; "));
    match envelope.errors.first().map(|error| &error.code) {
        Some(
            OciErrorCode::ManifestUnknown
            | OciErrorCode::NameUnknown
            | OciErrorCode::BlobUnknown
            | OciErrorCode::ManifestBlobUnknown
            | OciErrorCode::NotFound,
        ) => Problem::NotFound(what.to_owned()),
        Some(OciErrorCode::Unauthorized) => Problem::Unauthorized("it does not accept the credential"),
        Some(OciErrorCode::Denied) => Problem::Forbidden(message),
        Some(OciErrorCode::Toomanyrequests) => Problem::TooManyRequests(message),
        _ => Problem::Other(format!("it refuses: {message}")),
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(|error| error.to_string());
    let mut texts: Vec<String> = Vec::new();
    for cause in causes {
        // Some errors repeat their cause.
        if !texts.iter().any(|text| text.contains(&cause)) {
            texts.push(cause);
        }
    }
    text(&texts.join(": "))
}

/// A text of a registry, on one line. HTML is none of a registry's.
fn text(text: &str) -> String {
    let start = text.trim_start().as_bytes().get(..1);
    if start == Some(b"<") {
        return "an HTML page: is it a registry?".to_owned();
    }
    weir_runtime::one_line(text, MAX_TEXT)
}
