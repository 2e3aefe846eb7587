//! Reads the maximum number of concurrent streams from the SETTINGS frame of an HTTP/2 server.
//!
//! At that limit hyper queues requests without a sign, and a watch could wait behind other watches for ever. hyper-util's
//! pooled client does not expose the limit. The first frame of a server must be its SETTINGS (RFC 9113, section 3.4), so
//! [`SettingsReader`] parses that frame as it passes.
//!
//! Later changes of the limit are not followed. Memory: the first frame until it is complete, at most
//! [`MAX_FRAME_LENGTH`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::sync::watch;

/// The limit for a server that sets none or does not send it in time. It also divides the pool with HTTP/1.1.
pub(super) const DEFAULT_STREAM_LIMIT: usize = 80;
/// The upper bound on the limit that Weir accepts from a server.
pub(super) const MAX_STREAM_LIMIT: usize = 1000;

/// Publishes the stream limit of a connection. 0 means that it is not known yet.
pub(super) type StreamLimit = watch::Sender<usize>;

/// The length of a frame header.
const FRAME_HEADER: usize = 9;
/// The frame type of SETTINGS.
const SETTINGS: u8 = 4;
/// The identifier of `SETTINGS_MAX_CONCURRENT_STREAMS`.
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// Weir does not parse longer frames, and uses the default limit.
const MAX_FRAME_LENGTH: usize = 1024;

/// A connection that publishes its stream limit once the SETTINGS frame has arrived.
pub(super) struct SettingsReader<T> {
    inner: T,
    /// The bytes received so far. `None` once the limit is published.
    received: Option<Vec<u8>>,
    limit: StreamLimit,
}

impl<T: Connection> SettingsReader<T> {
    /// Wraps a connection. Without HTTP/2 it publishes the default limit at once.
    pub(super) fn new(inner: T, limit: StreamLimit) -> Self {
        let received = if inner.connected().is_negotiated_h2() {
            Some(Vec::new())
        } else {
            limit.send_replace(DEFAULT_STREAM_LIMIT);
            None
        };
        Self { inner, received, limit }
    }
}

/// Parses the limit from the first bytes of a server. Returns `None` if the frame is incomplete.
fn parse_limit(received: &[u8]) -> Option<usize> {
    let (head, rest) = received.split_first_chunk::<FRAME_HEADER>()?;
    let [a, b, c, kind, _flags, stream @ ..] = head;
    let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    if *kind != SETTINGS || *stream != [0; 4] || length > MAX_FRAME_LENGTH {
        return Some(DEFAULT_STREAM_LIMIT);
    }
    let settings = rest.get(..length)?;
    let mut limits = settings.chunks_exact(6).filter_map(|setting| match setting {
        [a, b, value @ ..] if u16::from_be_bytes([*a, *b]) == MAX_CONCURRENT_STREAMS => {
            Some(u32::from_be_bytes(value.try_into().ok()?))
        }
        _ => None,
    });
    // The last value of a repeated setting counts. With a limit of 0, hyper queues the request until the server raises it.
    Some(limits.next_back().map_or(DEFAULT_STREAM_LIMIT, |limit| {
        usize::try_from(limit).unwrap_or(MAX_STREAM_LIMIT).clamp(1, MAX_STREAM_LIMIT)
    }))
}

impl<T: Read + Unpin> Read for SettingsReader<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(received) = &mut this.received else { return Pin::new(&mut this.inner).poll_read(cx, to) };
        let mut bytes = [0; 256];
        let room = bytes.len().min(to.remaining());
        let mut read = ReadBuf::new(bytes.get_mut(..room).unwrap_or_default());
        std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, read.unfilled()))?;
        to.put_slice(read.filled());
        received.extend_from_slice(read.filled());
        if let Some(limit) = parse_limit(received) {
            this.limit.send_replace(limit);
            this.received = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for SettingsReader<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

impl<T: Connection> Connection for SettingsReader<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let length = u8::try_from(settings.len() * 6).unwrap();
        let mut bytes = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        for (name, value) in settings {
            bytes.extend_from_slice(&name.to_be_bytes());
            bytes.extend_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn the_limit_is_read_from_the_first_frame_once_it_is_complete() {
        let whole = frame(SETTINGS, &[(5, 16384), (3, 100), (4, 1 << 20)]);
        for end in 0..whole.len() {
            assert_eq!(parse_limit(&whole[..end]), None);
        }
        assert_eq!(parse_limit(&whole), Some(100));
        assert_eq!(parse_limit(&[whole, vec![1, 2, 3]].concat()), Some(100), "later frames are ignored");
        assert_eq!(parse_limit(&frame(SETTINGS, &[(3, 20), (3, 30)])), Some(30));
    }

    #[test]
    fn a_server_without_a_limit_or_without_http2_gets_the_default_one() {
        assert_eq!(parse_limit(&frame(SETTINGS, &[])), Some(DEFAULT_STREAM_LIMIT));
        assert_eq!(parse_limit(&frame(6, &[(3, 20)])), Some(DEFAULT_STREAM_LIMIT));
        assert_eq!(parse_limit(b"HTTP/1.1 400 Bad Request"), Some(DEFAULT_STREAM_LIMIT));
        assert_eq!(parse_limit(&frame(SETTINGS, &[(3, u32::MAX)])), Some(MAX_STREAM_LIMIT));
        assert_eq!(parse_limit(&frame(SETTINGS, &[(3, 0)])), Some(1));
    }
}
