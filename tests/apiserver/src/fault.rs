//! Fault injection: a hook sees each request first and returns an action.
//!
//! Memory: the hook. A hook that holds a request open also holds the memory of that request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::Frame;

use crate::body::{self, Body, ResponseBodyError};
use crate::record::Recorded;

/// What the server does with a request.
pub enum Action {
    /// Serve it.
    Serve,
    /// Return this response unchanged.
    Answer(Response<Bytes>),
    /// The same, with a body that the test sends.
    Stream(Response<Body>),
    /// Never respond, and keep the connection open.
    Hang,
    /// Close the connection without a response. Over HTTP/2, reset the stream.
    Reset,
    /// Serve it, but end the body after this many bytes.
    Cut {
        /// The number of bytes that are sent.
        after: usize,
        /// How the body ends. `Clean` gives a well-formed response with truncated content.
        end: End,
    },
    /// Serve it, with a `Warning` header, as for a deprecated resource.
    Warn(HeaderValue),
    /// Await the future, then take the other action.
    After(BoxFuture<'static, ()>, Box<Action>),
}

/// How a truncated body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// As if it were complete.
    #[default]
    Clean,
    /// With a closed connection. Over HTTP/2, with a reset stream.
    Abort,
}

/// A hook. It must not block.
pub(crate) type Hook = std::sync::Arc<dyn Fn(&Recorded) -> Action + Send + Sync>;

/// A request or body that a hook ends on purpose.
#[derive(Debug, thiserror::Error)]
#[error("ended by the test")]
pub struct Broken;

/// A body that ends early.
struct TruncatedBody {
    inner: Body,
    left: usize,
    end: End,
    done: bool,
    /// hyper discards unflushed bytes when a body fails. This pause lets it send the bytes before the cut.
    linger: Option<Pin<Box<tokio::time::Sleep>>>,
}

const LINGER: Duration = Duration::from_millis(50);

// === impl Action ===

impl Action {
    /// Serve it after a delay.
    pub fn delay(time: Duration) -> Self {
        Self::After(Box::pin(tokio::time::sleep(time)), Box::new(Self::Serve))
    }

    /// Return a JSON response.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::answer(status, "application/json", body)
    }

    /// Return a response of this media type. An invalid status becomes 500.
    pub fn answer(status: u16, media: &str, body: impl Into<Bytes>) -> Self {
        let mut response = Response::new(body.into());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        if let Ok(media) = media.parse() {
            response.headers_mut().insert(http::header::CONTENT_TYPE, media);
        }
        Self::Answer(response)
    }
}

/// End a body early.
pub(crate) fn cut(response: Response<Body>, after: usize, end: End) -> Response<Body> {
    let (mut parts, inner) = response.into_parts();
    parts.headers.remove(http::header::CONTENT_LENGTH);
    let body = TruncatedBody { inner, left: after, end, done: false, linger: None };
    Response::from_parts(parts, body.boxed_unsync())
}

/// The body of an injected response.
pub(crate) fn answer(response: Response<Bytes>) -> Response<Body> {
    response.map(body::full)
}

// === impl TruncatedBody ===

impl hyper::body::Body for TruncatedBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        if self.left == 0 {
            if self.end == End::Abort {
                let sleep = || Box::pin(tokio::time::sleep(LINGER));
                ready!(self.linger.get_or_insert_with(sleep).as_mut().poll(context));
            }
            self.done = true;
            return Poll::Ready(match self.end {
                End::Clean => None,
                End::Abort => Some(Err(Broken.into())),
            });
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut data) => {
                    data.truncate(self.left);
                    self.left -= data.remaining();
                    Some(Ok(Frame::data(data)))
                }
                Err(trailers) => Some(Ok(trailers)),
            },
            other => other,
        })
    }
}
