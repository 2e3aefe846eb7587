//! How many streams a server allows on one HTTP/2 connection, read from its own words as they pass by.
//!
//! hyper knows the number and waits, unseen, when it is reached: a watch would wait for ever behind others. Its pooled
//! client does not pass the number on, and a server's first frame must be the SETTINGS that say it (RFC 9113, 3.4): so
//! that frame is looked at here. Whoever changes the limit later is not followed. Memory: that frame, until it is whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::sync::watch;

/// Streams of a server that sets no limit, or that does not say in time. Also the share of an HTTP/1.1 pool.
pub(super) const UNSAID: usize = 80;
/// More than this is not asked of one connection.
pub(super) const MOST: usize = 1000;

/// Who is told how many streams there may be; 0: nobody knows yet.
pub(super) type Told = watch::Sender<usize>;

const HEAD: usize = 9;
/// Its type, on stream 0.
const SETTINGS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// A longer first frame is none that could be waited for.
const LONGEST: usize = 1024;

/// A connection that tells the limit of streams once it is known.
pub(super) struct Listening<T> {
    inner: T,
    /// The beginning of what the server sent; none once it has told.
    begun: Option<Vec<u8>>,
    told: Told,
}

impl<T: Connection> Listening<T> {
    pub(super) fn new(inner: T, told: Told) -> Self {
        let begun = if inner.connected().is_negotiated_h2() {
            Some(Vec::new())
        } else {
            told.send_replace(UNSAID);
            None
        };
        Self { inner, begun, told }
    }
}

/// What the first bytes of a server say; none: they are not enough.
fn limit(begun: &[u8]) -> Option<usize> {
    let (head, rest) = begun.split_first_chunk::<HEAD>()?;
    let [a, b, c, kind, _flags, stream @ ..] = head;
    let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    if *kind != SETTINGS || *stream != [0; 4] || length > LONGEST {
        return Some(UNSAID);
    }
    let settings = rest.get(..length)?;
    let mut said = settings.chunks_exact(6).filter_map(|setting| match setting {
        [a, b, value @ ..] if u16::from_be_bytes([*a, *b]) == MAX_CONCURRENT_STREAMS => {
            Some(u32::from_be_bytes(value.try_into().ok()?))
        }
        _ => None,
    });
    // Said twice, the last one counts. A server that allows none now is asked all the same: hyper waits for its leave.
    Some(said.next_back().map_or(UNSAID, |said| usize::try_from(said).unwrap_or(MOST).clamp(1, MOST)))
}

impl<T: Read + Unpin> Read for Listening<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(begun) = &mut this.begun else { return Pin::new(&mut this.inner).poll_read(cx, to) };
        let mut bytes = [0; 256];
        let room = bytes.len().min(to.remaining());
        let mut read = ReadBuf::new(bytes.get_mut(..room).unwrap_or_default());
        std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, read.unfilled()))?;
        to.put_slice(read.filled());
        begun.extend_from_slice(read.filled());
        if let Some(limit) = limit(begun) {
            this.told.send_replace(limit);
            this.begun = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for Listening<T> {
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

impl<T: Connection> Connection for Listening<T> {
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
    fn the_limit_is_read_from_the_first_frame_once_it_is_whole() {
        let whole = frame(SETTINGS, &[(5, 16384), (3, 100), (4, 1 << 20)]);
        for end in 0..whole.len() {
            assert_eq!(limit(&whole[..end]), None);
        }
        assert_eq!(limit(&whole), Some(100));
        assert_eq!(limit(&[whole, vec![1, 2, 3]].concat()), Some(100), "what follows is not looked at");
        assert_eq!(limit(&frame(SETTINGS, &[(3, 20), (3, 30)])), Some(30));
    }

    #[test]
    fn a_server_without_a_limit_and_one_that_speaks_something_else_have_the_usual_one() {
        assert_eq!(limit(&frame(SETTINGS, &[])), Some(UNSAID));
        assert_eq!(limit(&frame(6, &[(3, 20)])), Some(UNSAID));
        assert_eq!(limit(b"HTTP/1.1 400 Bad Request"), Some(UNSAID));
        assert_eq!(limit(&frame(SETTINGS, &[(3, u32::MAX)])), Some(MOST));
        assert_eq!(limit(&frame(SETTINGS, &[(3, 0)])), Some(1));
    }
}
