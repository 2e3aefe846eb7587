//! Gathers what a TLS connection sends in one go. HTTP/2 writes and flushes every frame of 16 KiB by itself, each of which
//! would be a system call and a packet on its way; here they wait until the connection has nothing more to say at this
//! moment, or enough to be worth it. Nothing waits longer than that: no timer is involved.
//!
//! Memory: up to [`ROOM`] a connection while it sends, none while it is idle.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is gathered at most.
const ROOM: usize = 64 << 10;
/// What is large enough to go by itself.
const LARGE: usize = 32 << 10;

/// A stream whose writes are gathered while its connection is served by [`Gatherer::serve`]. Afterwards, as that of an
/// upgraded connection, it is a stream like any other.
#[derive(Debug)]
pub(in crate::proxy) struct Gathered<S>(Arc<Mutex<State<S>>>);

/// Serves the connection of a [`Gathered`].
#[derive(Debug)]
pub(in crate::proxy) struct Gatherer<S>(Arc<Mutex<State<S>>>);

#[derive(Debug)]
struct State<S> {
    stream: S,
    /// Written, not sent.
    waiting: Vec<u8>,
    /// How much of that is sent.
    sent: usize,
    /// The connection is at work and will be followed by a flush.
    serving: bool,
}

/// Both ends of the same stream.
pub(in crate::proxy) fn gather<S>(stream: S) -> (Gathered<S>, Gatherer<S>) {
    let state = Arc::new(Mutex::new(State { stream, waiting: Vec::new(), sent: 0, serving: false }));
    (Gathered(state.clone()), Gatherer(state))
}

fn lock<S>(state: &Mutex<State<S>>) -> MutexGuard<'_, State<S>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncWrite + Unpin> Gatherer<S> {
    /// Runs what reads and writes the stream, and sends what it has written whenever it has to wait. Cancel-safe as that is.
    pub(in crate::proxy) async fn serve<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        poll_fn(|cx| {
            lock(&self.0).serving = true;
            let result = connection.as_mut().poll(cx);
            let mut state = lock(&self.0);
            state.serving = false;
            // An error is the connection's when it reads or writes next. What has no room wakes us when it has.
            let _ = state.send(cx);
            result
        })
        .await
    }
}

impl<S: AsyncWrite + Unpin> State<S> {
    /// Sends all that waits.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        // An idle connection keeps no room.
        self.waiting = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Room for more, after sending if there is none.
    fn room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= ROOM {
            ready!(self.send(cx))?;
        }
        Poll::Ready(Ok(ROOM - self.waiting.len()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0);
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        if state.waiting.is_empty() && (all >= LARGE || !state.serving) {
            return Pin::new(&mut state.stream).poll_write_vectored(cx, slices);
        }
        let mut room = ready!(state.room(cx))?;
        let mut taken = 0;
        for slice in slices {
            let part = slice.get(..slice.len().min(room)).unwrap_or_default();
            state.waiting.extend_from_slice(part);
            room -= part.len();
            taken += part.len();
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0);
        if state.serving {
            return Poll::Ready(Ok(()));
        }
        ready!(state.send(cx))?;
        Pin::new(&mut state.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0);
        ready!(state.send(cx))?;
        Pin::new(&mut state.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Counts writes.
    #[derive(Debug)]
    struct Counted<S>(S, Arc<Mutex<Vec<usize>>>);

    impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = ready!(Pin::new(&mut self.0).poll_write(cx, bytes))?;
            self.1.lock().unwrap().push(count);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn small_writes_leave_together_when_the_connection_waits_and_in_order() {
        let (near, mut far) = duplex(1 << 20);
        let writes = Arc::default();
        let (mut stream, gatherer) = gather(Counted(near, Arc::clone(&writes)));
        let pause = Arc::new(tokio::sync::Notify::new());
        let served = gatherer.serve({
            let pause = pause.clone();
            async move {
                for n in 0..10u8 {
                    stream.write_all(&[n; 1000]).await.unwrap();
                    stream.flush().await.unwrap();
                }
                pause.notified().await;
                stream.write_all(&vec![10; 100_000]).await.unwrap();
                stream
            }
        });
        let read = async {
            let mut bytes = vec![0; 10_000];
            far.read_exact(&mut bytes).await.unwrap();
            assert!(bytes.chunks(1000).enumerate().all(|(n, chunk)| chunk.iter().all(|byte| usize::from(*byte) == n)));
            assert_eq!(*writes.lock().unwrap(), [10_000]);
            pause.notify_one();
            far.read_exact(&mut vec![0; 100_000]).await.unwrap();
        };
        let (mut stream, ()) = tokio::join!(served, read);
        assert!(writes.lock().unwrap().len() <= 3, "{writes:?}");
        // Afterwards it is a stream like any other.
        stream.write_all(b"upgraded").await.unwrap();
        stream.flush().await.unwrap();
        let mut bytes = [0; 8];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"upgraded");
        assert_eq!(lock(&stream.0).waiting.capacity(), 0);
    }

    #[tokio::test]
    async fn who_does_not_read_stops_the_writer_at_the_bound_and_loses_nothing() {
        let (near, mut far) = duplex(1000);
        let (mut stream, gatherer) = gather(near);
        let state = gatherer.0.clone();
        let served = gatherer.serve(async move {
            for n in 0..200u8 {
                stream.write_all(&[n; 1000]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let read = async {
            while lock(&state).waiting.len() < ROOM {
                tokio::task::yield_now().await;
            }
            // It can not go on, and takes no more.
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert_eq!(lock(&state).waiting.len(), ROOM);
            }
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            assert!(
                all.len() == 200_000 && all.chunks(1000).enumerate().all(|(n, chunk)| usize::from(chunk[999]) == n)
            );
        };
        tokio::join!(served, read);
    }
}
