//! Why a request is refused before a handler gets it.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use weir_front::HeadError;
use weir_wire::headers::NotHopByHop;

use super::websocket::handshake::HandshakeError;
use crate::serve::respond::{ApiStatus, StatusError};

/// Why a request is refused before a handler gets it.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// 400, 414 or 431: the head of the request is not HTTP, or too large. 429 with Retry-After: its client has too many requests.
    #[error("weir rejects the request: {0}")]
    Head(#[from] HeadError),
    /// 400: `Connection` names a header that must reach the API server.
    #[error("weir rejects the request: {0}")]
    Connection(#[from] NotHopByHop),
    /// 400 or 401: the request asks for a WebSocket that cannot be opened.
    #[error("weir cannot open the WebSocket: {0}")]
    Handshake(#[from] HandshakeError),
    /// 405: TRACE.
    #[error("the method is not supported")]
    Method,
    /// 429 with Retry-After: the client has too many requests on their way.
    #[error("too many requests of this client are in flight: at most {0}")]
    TooMany(usize),
    /// What a handler would respond.
    #[error(transparent)]
    Handler(#[from] StatusError),
}

impl ApiStatus for RequestError {
    fn code(&self) -> StatusCode {
        match self {
            Self::Head(error) => error.code(),
            Self::Connection(_) => StatusCode::BAD_REQUEST,
            Self::Handshake(error) => error.code(),
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Handler(error) => error.code(),
        }
    }

    fn passed_on(&self) -> Option<&dyn ApiStatus> {
        match self {
            Self::Handler(error) => Some(error),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<u16> {
        match self {
            Self::TooMany(_) | Self::Head(HeadError::Share) => Some(1),
            _ => self.passed_on()?.retry_after(),
        }
    }

    fn add_headers(&self, headers: &mut HeaderMap) {
        if matches!(self, Self::Handshake(HandshakeError::Version)) {
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_kube::Encoding;

    use super::*;

    #[test]
    fn a_refused_head_has_the_code_of_its_status() {
        for (error, code, reason) in [
            (HeadError::Invalid, 400, json!("BadRequest")),
            (HeadError::LongTarget, 414, Value::Null),
            (HeadError::TooLarge, 431, Value::Null),
            (HeadError::Share, 429, json!("TooManyRequests")),
        ] {
            let error = RequestError::Head(error);
            let status = serde_json::to_value(error.status()).unwrap();
            assert_eq!((&status["code"], &status["reason"]), (&json!(code), &reason), "{error}");
            assert_eq!(error.response(Encoding::Json).status().as_u16(), code);
        }
    }

    #[test]
    fn a_refusal_that_ends_by_itself_says_when_to_retry() {
        for (error, expected) in [
            (RequestError::TooMany(400), Some("1")),
            (HeadError::Share.into(), Some("1")),
            (StatusError::Stopping.into(), Some("1")),
            (StatusError::Starting.into(), Some("1")),
            (RequestError::Method, None),
        ] {
            let response = error.response(Encoding::Json);
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, expected, "{error}");
            let details = error.status().details;
            assert_eq!(details.and_then(|details| details.retry_after_seconds), expected.map(|_| 1), "{error}");
        }
    }
}
