//! A filtered list in progress: upstream bytes are decoded to batches of items, filtered, and encoded again.
//!
//! The response body polls it. So a slow client slows the upstream response down, and a client that is gone releases it.
//! Memory: one batch and the largest item.

use std::sync::Arc;

use bytes::Bytes;

use super::list_input::{ListError, ListInput};
use crate::serve::Handlers;
use crate::serve::body::AbortError;
use crate::serve::read::ReadRequest;
use weir_kube::Encoding;
use weir_upstream::DecodedBody;
use weir_wire::EncodeError;
use weir_wire::list::{ItemBatch, ListEncoder, ListPiece};

/// A list in progress.
pub(super) struct ListResponse {
    handlers: Arc<Handlers>,
    read: Arc<ReadRequest>,
    input: ListInput,
    encoder: ListEncoder,
}

impl ListResponse {
    pub(super) fn new(
        handlers: Arc<Handlers>,
        read: Arc<ReadRequest>,
        encoding: Encoding,
        upstream: Box<DecodedBody>,
    ) -> Self {
        Self {
            handlers,
            encoder: ListEncoder::new(encoding, read.media_type.transform),
            input: ListInput::new(&read, encoding, upstream),
            read,
        }
    }

    /// Returns the next bytes of the response; none at its end. Callers must not call it again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, ListError> {
        Ok(match self.input.next().await? {
            Some(ListPiece::Head(bytes)) => Some(self.encoder.head(bytes)),
            Some(ListPiece::Items(items)) => Some(self.filter(items).await?),
            Some(ListPiece::Tail(bytes)) => {
                let version = self.input.version();
                if let Some(version) = version {
                    self.read.note_version(&self.handlers, version);
                }
                self.handlers.end_stream(&self.read, version.unwrap_or_default());
                Some(self.encoder.tail(bytes)?)
            }
            None => None,
        })
    }

    /// Returns the bytes that go before all that [`ListResponse::next`] has returned, once that is complete.
    pub(super) fn prefix(&self) -> Result<Bytes, ListError> {
        Ok(self.encoder.prefix()?)
    }

    async fn filter(&mut self, items: ItemBatch) -> Result<Vec<Bytes>, ListError> {
        let outcomes = self.read.filtering.run(items.documents()?).await;
        self.encoder.items(&items, outcomes).map_err(|error| match error {
            EncodeError::Filter(failure) => ListError::Filter(failure),
            EncodeError::Codec(error) => error.into(),
        })
    }

    /// Turns the error into the end of a body that has begun.
    pub(super) fn abort(&self, error: ListError) -> AbortError {
        let request: (&dyn std::fmt::Display, &str) = (&self.read.asked.parsed.forward, &self.read.asked.component);
        let warn = |what, error: &dyn std::fmt::Display| self.handlers.failures.warn(what, request, None, error);
        match error {
            ListError::Filter(failure) => {
                warn("list aborted: a filter failed on an object", &failure);
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
