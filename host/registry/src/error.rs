//! Why a registry did not give or take something.

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use reqwest::Response;
use serde::Deserialize;
use weir_spec::Digest;

use crate::artifact::ArtifactError;

/// The longest text of a registry in a message.
const MAX_TEXT: usize = 300;
/// The most of an error's body that is read, in bytes.
const MAX_BODY: usize = 64 << 10;

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
    Unauthorized(String),
    #[error("403: {0}")]
    Forbidden(String),
    #[error("404: it does not have {0}")]
    NotFound(String),
    /// When to come back, as the registry says it with a space before, and its text.
    #[error("429: it has had too many requests{0}: {1}")]
    TooManyRequests(String, String),
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

    /// Names whose answer it is, where it is not the registry's own.
    pub(crate) fn of(self, service: &str) -> Self {
        match self {
            Self::TooManyRequests(retry, text) => Self::TooManyRequests(retry, format!("{service}: {text}")),
            Self::Status { code, text } => Self::Status { code, text: format!("{service}: {text}") },
            Self::NotFound(_) => Self::Status { code: 404, text: format!("{service} is not there") },
            other => other,
        }
    }

    /// Whether it may be the answer to a request without a credential for something that is there.
    pub(crate) fn may_hide(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::NotFound(_))
    }

    /// Adds that the credential was not sent, as nobody asked for it.
    pub(crate) fn without_login(self) -> Self {
        let more = |text: String| format!("{text} (it asked for no credential, and none was sent)");
        match self {
            Self::Forbidden(text) => Self::Forbidden(more(text)),
            Self::NotFound(text) => Self::NotFound(more(text)),
            other => other,
        }
    }

    pub(crate) fn digest(digest: Digest) -> Self {
        Self::WrongDigest(digest.to_string())
    }
}

/// What a registry says in an error.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<EnvelopeError>,
}

#[derive(Deserialize)]
struct EnvelopeError {
    code: Option<String>,
    message: Option<String>,
}

/// Reads a response that is no success. `what` was asked for.
pub(crate) async fn problem_of(response: Response, what: &str) -> Problem {
    let code = response.status().as_u16();
    let retry = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry = retry.map(|retry| format!(" (Retry-After: {})", text(retry))).unwrap_or_default();
    let body = body_of(response, MAX_BODY).await;
    let message = match serde_json::from_slice::<Envelope>(&body) {
        Ok(Envelope { errors }) => {
            let messages = errors.into_iter().filter_map(|error| error.message.or(error.code));
            text(&messages.collect::<Vec<_>>().join("; "))
        }
        Err(_) => text(&String::from_utf8_lossy(&body)),
    };
    match code {
        403 => Problem::Forbidden(message),
        404 => Problem::NotFound(what.to_owned()),
        429 => Problem::TooManyRequests(retry, message),
        code => Problem::Status { code, text: message },
    }
}

/// Reads the beginning of a body.
pub(crate) async fn body_of(mut response: Response, most: usize) -> Bytes {
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(chunk.get(..most.saturating_sub(body.len())).unwrap_or(&chunk));
        if body.len() >= most {
            break;
        }
    }
    body.freeze()
}

/// An error and its causes on one line, shortened.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    text(&weir_kube::error_chain(error))
}

/// A text of a registry, on one line. HTML is none of a registry's.
fn text(text: &str) -> String {
    let start = text.trim_start().as_bytes().get(..1);
    if start == Some(b"<") {
        return "an HTML page: is it a registry?".to_owned();
    }
    weir_process::one_line(text, MAX_TEXT)
}
