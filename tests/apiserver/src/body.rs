//! Bodies of answers: small ones with their length, large ones streamed in pieces, gzipped where client and policy say so.
//!
//! A large body is put together piece by piece as the client reads it: memory is one piece (and the objects, which the
//! store holds anyway). As with Go's server, JSON bodies over 2 KiB carry no Content-Length; protobuf ones, which are
//! sized before they are written, do.

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

/// Why a body ended early: hyper then breaks the connection or resets the stream.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// When answers are gzipped for clients that accept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gzip {
    /// Bodies over 128 KiB, as kube-apiserver does. Watches never.
    #[default]
    Large,
    /// Every body of a get or list, whatever its size, and watch-lists with one member per event as Kubernetes 1.37 sends them.
    Always,
    /// None.
    Never,
}

/// From which size on kube-apiserver compresses.
const LARGE: usize = 128 * 1024;
/// Go's server knows the length of what fits its first buffer.
const SIZED: usize = 2048;
/// What is given to the socket at once of bytes that are all there.
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

/// Bytes as they lie in memory, at most 1 MiB at a time.
pub(crate) fn slices(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send + 'static {
    std::iter::from_fn(move || {
        let next = bytes.split_to(bytes.len().min(WRITE));
        (!next.is_empty()).then_some(next)
    })
}

/// A body of whatever comes; an error breaks it off.
pub(crate) fn streamed(pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Body {
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}

/// A JSON answer with its length.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", full(value.to_string()))
}

/// A plain text answer.
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

/// A rendered answer, in pieces if it is large; `gzip` is the policy if the client accepts gzip.
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

/// One gzip member over all pieces, at the level that kube-apiserver uses.
fn compressed(
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let steps = pieces.map(Some).chain(std::iter::once(None));
    stream::iter(steps).scan(Some(encoder), |encoder, piece| std::future::ready(compress(encoder, piece.as_ref())))
}

fn compress(encoder: &mut Option<GzEncoder<Vec<u8>>>, piece: Option<&Bytes>) -> Option<Result<Bytes, BodyError>> {
    let done = match piece {
        Some(bytes) => {
            let encoder = encoder.as_mut()?;
            encoder.write_all(bytes).map(|()| std::mem::take(encoder.get_mut()))
        }
        None => encoder.take()?.finish(),
    };
    Some(done.map(Bytes::from).map_err(BodyError::from))
}

/// A gzip member of its own: one event of a compressed watch-list.
pub(crate) fn gzip_member(bytes: &Bytes) -> Result<Bytes, BodyError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}
