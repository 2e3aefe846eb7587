//! A request body that can be sent again as long as nobody has read from it.
//!
//! If connecting to a server fails, the body is still unread, and the next server can get it. Weir does not buffer it, so
//! the first read uses it up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tower::BoxError;

use crate::request::RequestBody;

/// A request body between two attempts to send it.
#[derive(Clone)]
pub(super) struct ReplayBody(Arc<Mutex<Option<RequestBody>>>);

/// The body during one attempt. Dropping it unread returns it to its origin.
struct AttemptBody {
    body: Option<RequestBody>,
    read: bool,
    origin: ReplayBody,
}

impl ReplayBody {
    /// Wraps a body that nobody has read from.
    pub(super) fn new(body: RequestBody) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// Takes the body for one attempt. Returns `None` if an earlier attempt still holds it or has read from it.
    pub(super) fn take(&self) -> Option<RequestBody> {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(AttemptBody { body: Some(body), read: false, origin: self.clone() }.boxed_unsync())
    }
}

impl Body for AttemptBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.read = true;
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for AttemptBody {
    fn drop(&mut self) {
        if !self.read {
            *self.origin.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::request::no_request_body;

    fn whole_request_body(bytes: Bytes) -> RequestBody {
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    }

    #[tokio::test]
    async fn an_unread_body_can_be_sent_again_but_not_one_that_was_read() {
        let replay = ReplayBody::new(whole_request_body(Bytes::from_static(b"abc")));
        let first = replay.take().unwrap();
        assert_eq!(first.size_hint().exact(), Some(3));
        assert!(replay.take().is_none(), "one attempt at a time");
        drop(first);
        let second = replay.take().unwrap();
        assert_eq!(second.collect().await.unwrap().to_bytes(), "abc");
        assert!(replay.take().is_none());
    }

    #[test]
    fn an_empty_body_is_known_to_be_empty() {
        assert!(ReplayBody::new(no_request_body()).take().unwrap().is_end_stream());
    }
}
