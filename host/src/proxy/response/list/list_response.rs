//! A filtered list in progress: upstream bytes are decoded to batches of items, filtered, and encoded again.
//!
//! The response body polls it. So a slow client slows the upstream response down, and a client that is gone releases it.
//! Memory: one batch and the largest item.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use weir_document::Document;

use crate::codec::list::{ItemBatch, ListDecoder, ListEncoder, ListPiece};
use crate::codec::{CodecError, EncodeError};
use crate::proxy::Proxy;
use crate::proxy::body::AbortError;
use crate::proxy::respond::StatusError;
use crate::proxy::response::read::ReadRequest;
use crate::proxy::resume::ListProgress;
use weir_kube::Encoding;
use weir_runtime::Failure;
use weir_upstream::{DecodedBody, error_report};

/// The largest item.
const ITEM: usize = 32 << 20;
/// Input that is decoded together if it has arrived already: larger batches mean fewer calls.
const INPUT: usize = 128 << 10;

/// A list in progress.
pub(super) struct ListResponse {
    proxy: Arc<Proxy>,
    read: Arc<ReadRequest>,
    upstream: Box<DecodedBody>,
    decoder: ListDecoder,
    encoder: ListEncoder,
    progress: ListProgress,
    upstream_ended: bool,
}

/// A reason why a list fails.
#[derive(Debug)]
pub(super) enum ListError {
    /// A filter with policy Fail failed on the object at this path.
    Filter(Failure, Option<PathAndQuery>),
    /// The API server's response is not a list.
    InvalidResponse(String),
    /// The API server's response was interrupted.
    Upstream(AbortError),
}

impl<E: Into<CodecError>> From<E> for ListError {
    fn from(error: E) -> Self {
        Self::InvalidResponse(error_report(&error.into()))
    }
}

/// The error as a response, if the response head was not sent yet.
impl From<ListError> for StatusError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Filter(failure, _) => Self::Filter(failure),
            ListError::InvalidResponse(reason) => Self::InvalidResponse(reason),
            ListError::Upstream(error) => error.into(),
        }
    }
}

impl ListResponse {
    pub(super) fn new(
        proxy: Arc<Proxy>,
        read: Arc<ReadRequest>,
        encoding: Encoding,
        upstream: Box<DecodedBody>,
    ) -> Self {
        let decoder = ListDecoder::new(encoding, read.object_type.clone(), read.resource.api_version(), ITEM);
        Self {
            progress: ListProgress::begin(&proxy.resume, read.client, read.any_read, read.chain_version, &read.query),
            proxy,
            encoder: ListEncoder::new(encoding, read.media_type.transform),
            decoder,
            read,
            upstream,
            upstream_ended: false,
        }
    }

    /// Returns the next bytes of the response; none at its end. Callers must not call it again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, ListError> {
        loop {
            match self.decoder.next()? {
                Some(ListPiece::Head(bytes)) => return Ok(Some(self.encoder.head(bytes))),
                Some(ListPiece::Items(items)) => return self.filter(items).await.map(Some),
                Some(ListPiece::Tail(bytes)) => {
                    let meta = self.decoder.meta();
                    let (proxy, resource) = (&self.proxy, &self.read.resource.resource);
                    proxy.hand_out(&self.read, meta.resource_version.as_deref());
                    self.progress.save(&proxy.resume, &proxy.chain_starts, resource, meta);
                    return Ok(Some(self.encoder.tail(bytes)?));
                }
                None if self.upstream_ended => return Ok(None),
                None => self.receive().await?,
            }
        }
    }

    /// Returns the bytes that go before all that [`ListResponse::next`] has returned, once that is complete.
    pub(super) fn prefix(&self) -> Result<Bytes, ListError> {
        Ok(self.encoder.prefix()?)
    }

    /// Waits for input and takes as much as has arrived, up to [`INPUT`].
    async fn receive(&mut self) -> Result<(), ListError> {
        let mut taken = 0;
        let mut next = self.upstream.next_with_timeout().await;
        loop {
            match next.map_err(|error| ListError::Upstream(error.into()))? {
                Some(bytes) => {
                    taken += bytes.len();
                    self.decoder.push(bytes);
                }
                None => {
                    self.decoder.finish();
                    self.upstream_ended = true;
                    return Ok(());
                }
            }
            if taken >= INPUT {
                return Ok(());
            }
            match self.upstream.next().now_or_never() {
                Some(more) => next = more,
                None => return Ok(()),
            }
        }
    }

    async fn filter(&mut self, items: ItemBatch) -> Result<Vec<Bytes>, ListError> {
        let outcomes = self.read.chain.run(items.documents()?).await;
        let encoded = self.encoder.items(&items, outcomes).map_err(|error| match error {
            EncodeError::Filter(failure, object) => ListError::Filter(failure, self.path_of(&object)),
            EncodeError::Codec(error) => error.into(),
        })?;
        for object in &encoded.hidden {
            self.progress.hide(object);
        }
        Ok(encoded.chunks)
    }

    fn path_of(&self, object: &Document) -> Option<PathAndQuery> {
        let namespace = object.namespace().ok()?;
        self.read.resource.object_path(namespace.as_deref(), &object.name().ok()?)
    }

    /// Turns the error into the end of a body that has begun. Remembers an object on which a filter failed, so that the
    /// client's next list fails early.
    pub(super) fn abort(&self, error: ListError) -> AbortError {
        let request: (&dyn std::fmt::Display, &str) = (&self.read.path, &self.read.component);
        let warn = |what, error: &dyn std::fmt::Display| self.proxy.failures.warn(what, request, None, error);
        match error {
            ListError::Filter(failure, object) => {
                warn(
                    "list aborted: a filter failed on an object; retries fail early until the object changes",
                    &failure,
                );
                if let Some(object) = object {
                    self.proxy.failed_objects.insert(self.read.client, self.read.chain_version, object);
                }
                AbortError::Filter(failure)
            }
            ListError::InvalidResponse(error) => {
                warn("list aborted: the API server's response is invalid", &error);
                AbortError::InvalidResponse(error)
            }
            ListError::Upstream(error) => {
                warn("list aborted: the API server's response was interrupted", &error);
                error
            }
        }
    }
}
