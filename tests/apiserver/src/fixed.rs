//! Fixed response bodies by path, for any method and query. They serve throughput measurements, whose upstream must
//! cost as little as possible.
//!
//! Memory: the bodies, shared by all responses. They are written to the socket without a copy, 1 MiB at a time.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};

use crate::body::{self, Body};

/// The bodies by path.
#[derive(Debug, Default)]
pub(crate) struct FixedBodies(RwLock<BTreeMap<String, (HeaderValue, Bytes)>>);

// === impl FixedBodies ===

impl FixedBodies {
    pub(crate) fn set(&self, path: &str, media: HeaderValue, bytes: Bytes) {
        let mut bodies = self.0.write().unwrap_or_else(PoisonError::into_inner);
        bodies.insert(path.to_owned(), (media, bytes));
    }

    /// The response for a path, if it has a fixed body.
    pub(crate) fn answer(&self, path: &str) -> Option<Response<Body>> {
        let (media, bytes) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(path)?.clone();
        let length = bytes.len();
        let mut response = Response::new(body::streamed(stream::iter(body::slices(bytes).map(Ok))));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, media);
        headers.insert(header::CONTENT_LENGTH, length.into());
        Some(response)
    }
}
