//! Compresses large responses with gzip, by default only for clients that are not on loopback.
//!
//! Memory: one deflate state (about 256 KiB) and one chunk of output per compressed response.

use std::io::Write as _;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use crate::config::Compression;
use crate::serve::body::{AbortError, ResponseBody};

/// The smallest response that is compressed; the API server has the same threshold.
const THRESHOLD: u64 = 128 << 10;

impl Compression {
    /// Whether responses to a client at this address are compressed if it accepts gzip.
    #[must_use]
    pub(crate) fn is_for(self, client: IpAddr) -> bool {
        match self {
            Self::Never => false,
            Self::Remote => !client.to_canonical().is_loopback(),
            Self::Always => true,
        }
    }
}

/// Compresses a response with gzip if it is a success and large enough, or of unknown length.
#[must_use]
pub(crate) fn compressed(response: Response<ResponseBody>) -> Response<ResponseBody> {
    let known = response.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: Option<u64> = known.or(response.body().size_hint().exact());
    if response.status() != StatusCode::OK || length.is_some_and(|length| length < THRESHOLD) {
        return response;
    }
    let (mut parts, inner) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    // The fastest level, which the API server uses, too.
    let encoder = Some(GzEncoder::new(Vec::new(), Level::fast()));
    Response::from_parts(parts, GzipBody { inner, encoder }.boxed_unsync())
}

/// A body that is compressed as it arrives.
struct GzipBody {
    inner: ResponseBody,
    /// None once the end of the gzip stream was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Body for GzipBody {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let failed = |error: std::io::Error| AbortError::InvalidResponse(error.to_string());
        loop {
            if self.encoder.is_none() {
                return Poll::Ready(None);
            }
            let piece = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match (frame.into_data(), &mut self.encoder) {
                    (Ok(data), Some(encoder)) => {
                        encoder.write_all(&data).map(|()| std::mem::take(encoder.get_mut())).map_err(failed)
                    }
                    // A trailer is dropped: the API server sends none.
                    _ => continue,
                },
                // Without the end of the gzip stream, the client notices that the body is truncated.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.encoder.take().map_or(Ok(Vec::new()), GzEncoder::finish).map_err(failed),
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                piece => return Poll::Ready(Some(piece.map(|piece| Frame::data(piece.into())))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use futures_util::stream;
    use http_body_util::StreamBody;

    use super::*;
    use crate::serve::body::full;

    #[test]
    fn loopback_clients_get_no_gzip_unless_configured() {
        let (near, far) = ("127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
        for (policy, expected) in [
            (Compression::Never, [false, false]),
            (Compression::Remote, [false, true]),
            (Compression::Always, [true, true]),
        ] {
            assert_eq!([policy.is_for(near), policy.is_for(far)], expected, "{policy:?}");
        }
        assert!(!Compression::Remote.is_for("::ffff:127.0.0.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn large_responses_are_compressed_and_small_ones_are_not() {
        let small = compressed(Response::new(full(vec![b'a'; 1000].into())));
        assert!(!small.headers().contains_key(header::CONTENT_ENCODING));
        let text = vec![b'a'; 1 << 20];
        let large = compressed(Response::new(full(text.clone().into())));
        assert_eq!(large.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = large.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() < text.len() / 20, "{}", packed.len());
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, text);
    }

    #[tokio::test]
    async fn an_aborted_body_is_not_a_complete_gzip_stream() {
        let frames = [Ok(Frame::data(Bytes::from(vec![b'a'; 1000]))), Err(AbortError::Stopping)];
        let broken = compressed(Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync()));
        assert!(broken.into_body().collect().await.is_err());
    }
}
