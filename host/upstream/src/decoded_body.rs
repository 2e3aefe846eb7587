//! Response bodies of the API server with gzip decoded as it arrives: the one place that decodes a body, of requests of clients
//! ([`UpstreamBody`]) and of the daemon's own (kube's).
//!
//! Memory: that of [`Gunzip`], and one frame of the response.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::{Gunzip, UpstreamBody};

/// How long a response other than a watch may stall. kube-apiserver itself aborts such responses after a minute.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A low estimate of how well gzip compresses a list.
const COMPRESSION_RATIO: usize = 5;

/// A response body that decodes its content encoding.
#[derive(Debug)]
pub struct DecodedBody<B = UpstreamBody> {
    body: B,
    gunzip: Option<Gunzip>,
}

/// The body of a response ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseBodyError {
    /// The connection or the stream broke.
    #[error("the response of the API server broke off")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// The API server sent nothing more for this time. Does not apply to watches.
    #[error("the response of the API server stalled for {0:?}")]
    Stalled(Duration),
    /// The body does not match its headers, or exceeds a limit.
    #[error("the response of the API server is not usable: {0}")]
    Invalid(String),
}

impl<B> DecodedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    /// Wraps a body. The headers of its response name the content encoding.
    ///
    /// # Errors
    /// A message with the encoding if Weir does not support it.
    pub fn new(headers: &HeaderMap, body: B) -> Result<Self, String> {
        Ok(Self { body, gunzip: Gunzip::of(headers)? })
    }

    /// Returns the next chunk, which is never empty, or `None` at the end. Cancel safe: no bytes are lost.
    ///
    /// # Errors
    /// The body broke off, or its gzip data is not valid.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ResponseBodyError> {
        loop {
            if let Some(gunzip) = &mut self.gunzip
                && let Some(chunk) =
                    gunzip.next_chunk().map_err(|error| ResponseBodyError::Invalid(error.to_string()))?
            {
                return Ok(Some(chunk));
            }
            let Some(frame) = self.body.frame().await else {
                return match &self.gunzip {
                    Some(gunzip) => {
                        gunzip.finish().map(|()| None).map_err(|error| ResponseBodyError::Invalid(error.to_string()))
                    }
                    None => Ok(None),
                };
            };
            let Ok(data) = frame.map_err(|error| ResponseBodyError::Broken(error.into()))?.into_data() else {
                continue;
            };
            match &mut self.gunzip {
                Some(gunzip) => gunzip.feed(data),
                None if data.is_empty() => {}
                None => return Ok(Some(data)),
            }
        }
    }

    /// Like [`DecodedBody::next`], for responses other than watches. Fails if nothing arrives for [`STALL_TIMEOUT`].
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`DecodedBody::next`], or [`ResponseBodyError::Stalled`].
    pub async fn next_with_timeout(&mut self) -> Result<Option<Bytes>, ResponseBodyError> {
        tokio::time::timeout(STALL_TIMEOUT, self.next()).await.unwrap_or(Err(ResponseBodyError::Stalled(STALL_TIMEOUT)))
    }

    /// Estimates the number of decoded bytes from `Content-Length` and the usual compression ratio of lists.
    pub fn estimated_size(&self) -> usize {
        let length = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if self.gunzip.is_some() { length.saturating_mul(COMPRESSION_RATIO) } else { length }
    }

    /// Reads the whole body. Cancelling loses the bytes read so far.
    ///
    /// # Errors
    /// As [`DecodedBody::next_with_timeout`], or [`ResponseBodyError::Invalid`] if the body exceeds `limit` bytes.
    pub async fn collect(self, limit: usize) -> Result<Bytes, ResponseBodyError> {
        let whole = self.collect_at_most(limit).await?;
        whole.ok_or_else(|| ResponseBodyError::Invalid(format!("the object exceeds {limit} bytes")))
    }

    /// Reads the whole body, or returns `None` if it exceeds `limit` bytes. Cancelling loses the bytes read so far.
    ///
    /// # Errors
    /// As [`DecodedBody::next_with_timeout`].
    pub async fn collect_at_most(mut self, limit: usize) -> Result<Option<Bytes>, ResponseBodyError> {
        let hint = usize::try_from(self.body.size_hint().lower()).unwrap_or(0).min(limit);
        let mut whole = Vec::with_capacity(hint);
        while let Some(chunk) = self.next_with_timeout().await? {
            if chunk.len() > limit - whole.len() {
                return Ok(None);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(Some(whole.into()))
    }
}
