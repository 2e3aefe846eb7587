//! A request's body that survives an attempt in which nothing of it was read: connecting had failed, and another server
//! may have it. Once a byte was asked for it is spent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tower::BoxError;

use crate::body::RequestBody;

/// The body between attempts.
#[derive(Clone)]
pub(super) struct Kept(Arc<Mutex<Option<RequestBody>>>);

/// The body in an attempt. Gives itself back when it is dropped unread.
struct Attempt {
    body: Option<RequestBody>,
    read: bool,
    home: Kept,
}

impl Kept {
    pub(super) fn new(body: RequestBody) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// The body for one attempt; none when an earlier one has it still, or has begun to read it.
    pub(super) fn take(&self) -> Option<RequestBody> {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Attempt { body: Some(body), read: false, home: self.clone() }.boxed_unsync())
    }
}

impl Body for Attempt {
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

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.read {
            *self.home.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::body::no_request_body;

    fn whole_request_body(bytes: Bytes) -> RequestBody {
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    }

    #[tokio::test]
    async fn an_unread_body_can_be_sent_again_and_a_read_one_can_not() {
        let kept = Kept::new(whole_request_body(Bytes::from_static(b"abc")));
        let first = kept.take().unwrap();
        assert_eq!(first.size_hint().exact(), Some(3));
        assert!(kept.take().is_none(), "one attempt at a time");
        drop(first);
        let second = kept.take().unwrap();
        assert_eq!(second.collect().await.unwrap().to_bytes(), "abc");
        assert!(kept.take().is_none());
    }

    #[test]
    fn an_empty_body_is_known_to_be_empty() {
        assert!(Kept::new(no_request_body()).take().unwrap().is_end_stream());
    }
}
