//! The bodies of requests to the API server.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use tower::BoxError;

/// A boxed body of a request to the API server.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// No request body.
#[must_use]
pub fn no_request_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
