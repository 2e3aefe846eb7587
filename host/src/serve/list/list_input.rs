//! A list of the API server, cut into pieces as it arrives. Memory: one batch and the largest item.

use futures_util::FutureExt as _;
use weir_kube::Encoding;
use weir_runtime::Failure;
use weir_upstream::{DecodedBody, error_report};

use crate::serve::body::AbortError;
use crate::serve::read::ReadRequest;
use crate::serve::respond::StatusError;
use weir_wire::CodecError;
use weir_wire::list::{ListDecoder, ListPiece};

/// The largest item.
const ITEM: usize = 32 << 20;
/// Input that is decoded together if it has arrived already: larger batches mean fewer calls.
const INPUT: usize = 128 << 10;

/// A list that arrives.
pub(crate) struct ListInput {
    upstream: Box<DecodedBody>,
    decoder: ListDecoder,
    ended: bool,
}

/// A reason why a list fails.
#[derive(Debug)]
pub(crate) enum ListError {
    /// A filter with policy Fail failed on an object.
    Filter(Failure),
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
            ListError::Filter(failure) => Self::Filter(failure),
            ListError::InvalidResponse(reason) => Self::InvalidResponse(reason),
            ListError::Upstream(error) => error.into(),
        }
    }
}

impl ListInput {
    /// Reads the body of the response to a list of the objects of a read.
    pub(crate) fn new(read: &ReadRequest, encoding: Encoding, upstream: Box<DecodedBody>) -> Self {
        let decoder = ListDecoder::new(encoding, read.object_type.clone(), read.resource.api_version(), ITEM);
        Self { upstream, decoder, ended: false }
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// It is no list, or was interrupted.
    pub(crate) async fn next(&mut self) -> Result<Option<ListPiece>, ListError> {
        loop {
            match self.decoder.next_piece()? {
                Some(piece) => return Ok(Some(piece)),
                None if self.ended => return Ok(None),
                None => self.receive().await?,
            }
        }
    }

    /// The version of the list, once it has been read and if it is a number.
    pub(crate) fn version(&self) -> Option<u64> {
        self.decoder.meta().resource_version.as_deref()?.parse().ok()
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
                    self.ended = true;
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
}
