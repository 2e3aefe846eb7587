//! Response bodies. Small ones carry their length, large ones are streamed in pieces. The gzip policy applies to both.
//!
//! A large body is rendered piece by piece as the client reads it, so that it needs the memory of one piece. Like Go's
//! server, JSON bodies over 2 KiB carry no Content-Length. Protobuf bodies carry one, as their size is known before
//! they are written.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;

use crate::negotiate::Media;
use crate::render::Rendered;

/// The reason that a body ends early. hyper then closes the connection or resets the stream.
pub type ResponseBodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body type of every response.
pub type Body = UnsyncBoxBody<Bytes, ResponseBodyError>;

/// When responses are gzipped for clients that accept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gzip {
    /// Bodies over 128 KiB, as kube-apiserver does. Never watches.
    #[default]
    Large,
    /// Every body of a get or list, of any size. Watch-lists get one gzip member per event, as in Kubernetes 1.37.
    Always,
    /// Never.
    Never,
}

/// The size from which on kube-apiserver compresses.
const LARGE: usize = 128 * 1024;
/// The size of the first buffer of Go's server. It knows the length of a body that fits.
const SIZED: usize = 2048;
/// The most bytes that are written to the socket at once.
const WRITE: usize = 1024 * 1024;

// === impl Gzip ===

impl Gzip {
    fn applies(self, length: usize) -> bool {
        match self {
            Self::Large => length > LARGE,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// A body of known bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Bytes in memory, written at most 1 MiB at a time.
pub(crate) fn slices(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send + 'static {
    std::iter::from_fn(move || {
        let next = bytes.split_to(bytes.len().min(WRITE));
        (!next.is_empty()).then_some(next)
    })
}

/// A body from a stream; an error ends it early.
pub(crate) fn streamed(pieces: impl Stream<Item = Result<Bytes, ResponseBodyError>> + Send + 'static) -> Body {
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}

/// A JSON response with its length.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", full(value.to_string()))
}

/// A plain text response.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = respond(status, "text/plain; charset=utf-8", full(text));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn respond(status: StatusCode, media: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A rendered response, in pieces if it is large. `gzip` is the policy if the client accepts gzip.
pub(crate) fn rendered(rendered: Rendered, gzip: Option<Gzip>) -> Response<Body> {
    let Rendered { media, pieces, length } = rendered;
    if gzip.is_some_and(|policy| policy.applies(length)) {
        let mut response = respond(StatusCode::OK, media.name(), streamed(compressed(pieces)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        return response;
    }
    let body = if length <= SIZED {
        full(Rendered { media, pieces, length }.collect())
    } else {
        streamed(stream::iter(pieces.map(Ok)))
    };
    let mut response = respond(StatusCode::OK, media.name(), body);
    if media == Media::Protobuf {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}

/// One gzip member for all pieces, at the compression level of kube-apiserver.
fn compressed(
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, ResponseBodyError>> + Send + 'static {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let steps = pieces.map(Some).chain(std::iter::once(None));
    let written =
        stream::iter(steps).scan(Some(encoder), |encoder, piece| std::future::ready(compress(encoder, piece.as_ref())));
    // Go writes no empty DATA frame, and clients close an HTTP/2 connection with many of them.
    written.filter(|piece| std::future::ready(!matches!(piece, Ok(bytes) if bytes.is_empty())))
}

fn compress(
    encoder: &mut Option<GzEncoder<Vec<u8>>>,
    piece: Option<&Bytes>,
) -> Option<Result<Bytes, ResponseBodyError>> {
    let done = match piece {
        Some(bytes) => {
            let encoder = encoder.as_mut()?;
            encoder.write_all(bytes).map(|()| std::mem::take(encoder.get_mut()))
        }
        None => encoder.take()?.finish(),
    };
    Some(done.map(Bytes::from).map_err(ResponseBodyError::from))
}

/// One event of a compressed watch-list, as a gzip member of its own.
pub(crate) fn gzip_member(bytes: &Bytes) -> Result<Bytes, ResponseBodyError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}
