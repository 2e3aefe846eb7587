//! Coalesces the small writes of a TLS connection. HTTP/2 writes and flushes every frame of 16 KiB by itself, and each
//! flush would cost a system call and a packet. Here writes are held until the connection's task has nothing more to
//! do, or until they fill [`CAPACITY`]. No timer is involved.
//!
//! Memory: up to [`CAPACITY`] per connection while it sends, none while it is idle.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes that wait.
const CAPACITY: usize = 64 << 10;
/// A write of at least this size is passed on at once.
const LARGE: usize = 32 << 10;

/// A stream whose writes are coalesced while [`WriteCoalescer::serve`] runs its connection. Afterwards, for example when the
/// connection was upgraded, it passes every write on.
#[derive(Debug)]
pub(crate) struct CoalescedStream<S>(Arc<Mutex<CoalescerState<S>>>);

/// Runs the connection of a [`CoalescedStream`].
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<CoalescerState<S>>>);

#[derive(Debug)]
struct CoalescerState<S> {
    stream: S,
    /// Written bytes that are not sent yet.
    waiting: Vec<u8>,
    /// How many of these are sent.
    sent: usize,
    /// The connection's task is running; a flush follows.
    serving: bool,
}

/// Splits a stream into the half that a connection uses and the half that runs it.
pub(crate) fn coalesce_writes<S>(stream: S) -> (CoalescedStream<S>, WriteCoalescer<S>) {
    let state = Arc::new(Mutex::new(CoalescerState { stream, waiting: Vec::new(), sent: 0, serving: false }));
    (CoalescedStream(state.clone()), WriteCoalescer(state))
}

fn lock<S>(state: &Mutex<CoalescerState<S>>) -> MutexGuard<'_, CoalescerState<S>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncWrite + Unpin> WriteCoalescer<S> {
    /// Runs the connection that reads and writes the stream, and sends its writes whenever it has to wait. As cancel-safe as
    /// the connection.
    pub(crate) async fn serve<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        poll_fn(|cx| {
            lock(&self.0).serving = true;
            let result = connection.as_mut().poll(cx);
            let mut state = lock(&self.0);
            state.serving = false;
            // The connection gets an error with its next read or write. A full socket wakes this task when it has room.
            let _ = state.send(cx);
            result
        })
        .await
    }
}

impl<S: AsyncWrite + Unpin> CoalescerState<S> {
    /// Sends all waiting bytes.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        // An idle connection holds no memory.
        self.waiting = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Returns how many bytes may wait; sends the waiting ones first if there is no room.
    fn room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= CAPACITY {
            ready!(self.send(cx))?;
        }
        Poll::Ready(Ok(CAPACITY - self.waiting.len()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedStream<S> {
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

impl<S: AsyncRead + Unpin> AsyncRead for CoalescedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Records the size of each write.
    #[derive(Debug)]
    struct RecordedWrites<S>(S, Arc<Mutex<Vec<usize>>>);

    impl<S: AsyncWrite + Unpin> AsyncWrite for RecordedWrites<S> {
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
    async fn small_writes_are_sent_together_and_in_order() {
        let (near, mut far) = duplex(1 << 20);
        let writes = Arc::default();
        let (mut stream, coalescer) = coalesce_writes(RecordedWrites(near, Arc::clone(&writes)));
        let pause = Arc::new(tokio::sync::Notify::new());
        let served = coalescer.serve({
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
        // Afterwards it passes every write on.
        stream.write_all(b"upgraded").await.unwrap();
        stream.flush().await.unwrap();
        let mut bytes = [0; 8];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"upgraded");
        assert_eq!(lock(&stream.0).waiting.capacity(), 0);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_blocks_the_writer_at_the_bound() {
        let (near, mut far) = duplex(1000);
        let (mut stream, coalescer) = coalesce_writes(near);
        let state = coalescer.0.clone();
        let served = coalescer.serve(async move {
            for n in 0..200u8 {
                stream.write_all(&[n; 1000]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let read = async {
            while lock(&state).waiting.len() < CAPACITY {
                tokio::task::yield_now().await;
            }
            // The writer cannot continue, and nothing more waits.
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert_eq!(lock(&state).waiting.len(), CAPACITY);
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
