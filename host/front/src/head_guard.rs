//! Answers a request whose head the HTTP parser refuses with a Kubernetes `Status`.
//!
//! hyper answers such a request itself, with 400, 414 or 431 and no body, and closes the connection. kubectl and client-go then
//! show no reason. [`HeadGuard`] stands between hyper and the connection, recognises that answer and sends a Status instead.
//! hyper writes it only while no request is open, and always in the same form, so nothing else is ever replaced.
//!
//! Bounds: the Status, [`DRAINED`] bytes that the client still sends, and [`LINGER`].

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Sleep;
use weir_kube::Encoding;

/// The largest request head. In HTTP/2 a field counts as its name, its value and 32 bytes more (RFC 9113, section 6.5.2).
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// The most header fields of a request. The parser of HTTP/1.1 has a table for each request, so it is no more than needed.
pub(crate) const HEAD_FIELDS: usize = 1024;
/// How long a refused client has to read the Status. Closing at once would reset the connection while it still sends.
const LINGER: Duration = Duration::from_secs(1);
/// The most bytes of a refused client that are read and dropped meanwhile.
const DRAINED: usize = 1 << 20;

/// Why the head of a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It is not HTTP.
    #[error(
        "its head is not valid HTTP, for example because of a raw <, > or \" in its first line, which must be percent-encoded"
    )]
    Invalid,
    /// The parser bounds the first line more narrowly.
    #[error("its URL is longer than {} KiB", HEAD_BYTES >> 10)]
    LongTarget,
    /// It exceeds [`HEAD_BYTES`] or [`HEAD_FIELDS`].
    #[error("its head has more than {} KiB or {HEAD_FIELDS} header fields", HEAD_BYTES >> 10)]
    TooLarge,
    /// The client has too many open requests, or all clients have: [`crate::connections`].
    #[error("the open requests of this client, or of all, take as much memory as they may")]
    Share,
}

impl HeadError {
    /// The HTTP status code.
    #[must_use]
    pub fn code(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::LongTarget => StatusCode::URI_TOO_LONG,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Share => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Checks the size of a head that the parser has accepted, and returns it: its target, and its fields as HTTP/2 counts them. The
    /// parser of HTTP/2 accepts more, because it could answer without a Status only.
    ///
    /// # Errors
    /// [`Self::TooLarge`].
    pub(crate) fn check<B>(request: &http::Request<B>) -> Result<usize, Self> {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let size = target + fields.sum::<usize>();
        let is_large = size > HEAD_BYTES || request.headers().len() > HEAD_FIELDS;
        if request.version() == Version::HTTP_2 && is_large { Err(Self::TooLarge) } else { Ok(size) }
    }
}

/// Renders the response that says why a head is refused: [`Handler::refusal`](crate::Handler::refusal).
pub(crate) type Refusal = fn(HeadError, Encoding) -> Response<Bytes>;

/// What the service of a connection says of its own answers.
#[derive(Debug, Default)]
pub(crate) struct OwnAnswers {
    /// The next answer in the form of hyper's own is one of the service.
    bare: AtomicBool,
    /// The connection may carry another protocol than HTTP/1.1.
    other: AtomicBool,
    /// The last written bytes wait for the client to read.
    unread: AtomicBool,
}

impl OwnAnswers {
    /// Notes an answer of the service before the connection sends it.
    pub(crate) fn note<B: http_body::Body>(&self, version: Version, response: &Response<B>) {
        let code = response.status();
        if version == Version::HTTP_2 || code == StatusCode::SWITCHING_PROTOCOLS {
            self.other.store(true, Ordering::Release);
        }
        let is_bare = response.body().is_end_stream()
            && [StatusCode::BAD_REQUEST, StatusCode::URI_TOO_LONG, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE]
                .contains(&code);
        self.bare.store(is_bare, Ordering::Release);
    }

    /// Whether what was written waits for the client to read it.
    pub(crate) fn are_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    fn note_write<T>(&self, written: Poll<T>) -> Poll<T> {
        self.unread.store(written.is_pending(), Ordering::Release);
        written
    }

    /// Notes that a client asks for a tunnel, whose bytes are not HTTP.
    pub(crate) fn note_tunnel(&self) {
        self.other.store(true, Ordering::Release);
    }
}

/// A connection whose refused requests get a Status.
#[derive(Debug)]
pub(crate) struct HeadGuard<S> {
    stream: S,
    /// The number of open requests.
    active: watch::Receiver<usize>,
    own: Arc<OwnAnswers>,
    refusal: Refusal,
    refused: Option<Box<Refused>>,
}

/// A Status that is being sent. The connection ends after it.
#[derive(Debug)]
struct Refused {
    answer: Vec<u8>,
    sent: usize,
    is_shut_down: bool,
    drained: usize,
    patience: Pin<Box<Sleep>>,
}

impl<S> HeadGuard<S> {
    pub(crate) fn new(stream: S, active: watch::Receiver<usize>, own: Arc<OwnAnswers>, refusal: Refusal) -> Self {
        Self { stream, active, own, refusal, refused: None }
    }

    /// The Status that replaces these bytes, if they are hyper's own answer.
    fn replacement(&self, written: &[u8]) -> Option<Vec<u8>> {
        let (error, head) = own_answer(written)?;
        if self.own.other.load(Ordering::Acquire) || *self.active.borrow() > 0 {
            return None;
        }
        let is_of_service = self.own.bare.swap(false, Ordering::AcqRel);
        // In JSON, because nothing is known of the client.
        (!is_of_service).then(|| sent_bytes(&(self.refusal)(error, Encoding::Json), head))
    }

    fn refuse(&mut self, answer: Vec<u8>) {
        let patience = Box::pin(tokio::time::sleep(LINGER));
        self.refused = Some(Box::new(Refused { answer, sent: 0, is_shut_down: false, drained: 0, patience }));
    }
}

/// What the connection sends of a refusal, instead of hyper's answer with this head.
fn sent_bytes(refusal: &Response<Bytes>, head: &str) -> Vec<u8> {
    let body = refusal.body();
    let line = head.lines().next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(512 + body.len());
    // Writing to memory cannot fail.
    let _ = write!(bytes, "{line}\r\n");
    for (name, value) in refusal.headers() {
        let _ = write!(bytes, "{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    for date in head.lines().filter(|line| line.starts_with("date: ")) {
        let _ = write!(bytes, "{date}\r\n");
    }
    let _ = write!(bytes, "content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    bytes.extend_from_slice(body);
    bytes
}

/// Recognises the whole of an answer that hyper writes by itself: a status line, and no other fields than these.
fn own_answer(written: &[u8]) -> Option<(HeadError, &str)> {
    let error = match written.get(..13)? {
        b"HTTP/1.1 400 " | b"HTTP/1.0 400 " => HeadError::Invalid,
        b"HTTP/1.1 414 " | b"HTTP/1.0 414 " => HeadError::LongTarget,
        b"HTTP/1.1 431 " | b"HTTP/1.0 431 " => HeadError::TooLarge,
        _ => return None,
    };
    let head = std::str::from_utf8(written).ok()?;
    let (_, fields) = head.strip_suffix("\r\n\r\n")?.split_once("\r\n")?;
    let mut is_empty = false;
    for field in fields.split("\r\n") {
        match field {
            "content-length: 0" => is_empty = true,
            "connection: close" => {}
            _ if field.starts_with("date: ") => {}
            _ => return None,
        }
    }
    is_empty.then_some((error, head))
}

impl Refused {
    fn send<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        Pin::new(stream).poll_flush(cx)
    }

    /// Ends the connection: sends the rest, says that nothing follows, and reads until the client closes.
    fn shut_down<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.patience.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.send(stream, cx))?;
        if !self.is_shut_down {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            self.is_shut_down = true;
        }
        let mut scratch = [0; 4096];
        while self.drained < DRAINED {
            let mut buffer = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                break;
            }
            self.drained += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + AsyncRead + Unpin> AsyncWrite for HeadGuard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(answer) = this.replacement(bytes) {
            this.refuse(answer);
            return Poll::Ready(Ok(bytes.len()));
        }
        this.own.note_write(Pin::new(&mut this.stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [bytes] = slices
            && let Some(answer) = this.replacement(bytes)
        {
            this.refuse(answer);
            return Poll::Ready(Ok(bytes.len()));
        }
        this.own.note_write(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.refused {
            Some(refused) => refused.send(&mut this.stream, cx),
            None => this.own.note_write(Pin::new(&mut this.stream).poll_flush(cx)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.refused {
            Some(refused) => refused.shut_down(&mut this.stream, cx),
            None => Pin::new(&mut this.stream).poll_shutdown(cx),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadGuard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests;
