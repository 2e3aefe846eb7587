//! A request body that can be sent again.
//!
//! A server may refuse a request after Weir has sent some of it: with GOAWAY, it names the last request that it
//! processes. Small bodies (at most [`MAX_KEPT`]) stay in memory until the response, so that Weir can send such a request again.
//! A larger body can be sent again only while nobody has read from it.
//!
//! Kept by hand: tower's `Retry` needs a request that can be cloned before it is sent, so every body would be kept whole.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tower::BoxError;

use crate::request::RequestBody;

/// The largest body that is kept.
const MAX_KEPT: u64 = 64 << 10;

/// A request body that attempts to send it share.
#[derive(Clone)]
pub(super) struct ReplayBody(Arc<Mutex<State>>);

struct State {
    /// The part that is not read yet.
    rest: RequestBody,
    /// The part that was read; `None` if it was not kept.
    kept: Option<Vec<Bytes>>,
    /// Whether its sender broke it off.
    is_broken: bool,
    /// The number of the current attempt. An earlier one, whose connection may still hold its body, gets nothing more.
    attempt: u64,
}

/// The body during one attempt.
struct AttemptBody {
    origin: ReplayBody,
    attempt: u64,
    /// The number of kept chunks that this attempt has sent.
    sent: usize,
}

impl ReplayBody {
    /// Wraps a body that nobody has read from.
    pub(super) fn new(body: RequestBody) -> Self {
        Self(Arc::new(Mutex::new(State { rest: body, kept: Some(Vec::new()), is_broken: false, attempt: 0 })))
    }

    /// Takes the body for one attempt, which ends an earlier one. Returns `None` if an earlier attempt has read what was
    /// not kept.
    pub(super) fn take(&self) -> Option<RequestBody> {
        let mut state = self.state();
        state.kept.as_ref()?;
        state.attempt += 1;
        Some(AttemptBody { origin: self.clone(), attempt: state.attempt, sent: 0 }.boxed_unsync())
    }

    /// Returns whether the body can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        self.state().kept.is_some()
    }

    /// Returns whether the body ended with an error, so that no server can get the request.
    pub(super) fn is_broken(&self) -> bool {
        self.state().is_broken
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads on, and keeps what a small body contains.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let is_small = self.rest.size_hint().upper().is_some_and(|size| size <= MAX_KEPT);
        let frame = ready!(Pin::new(&mut self.rest).poll_frame(cx));
        self.is_broken |= matches!(frame, Some(Err(_)));
        match (&frame, &mut self.kept) {
            (Some(Ok(frame)), Some(kept)) if is_small && frame.is_data() => kept.extend(frame.data_ref().cloned()),
            (None, _) => {}
            _ => self.kept = None,
        }
        Poll::Ready(frame)
    }

    /// The kept chunks that an attempt has not sent yet.
    fn unsent(&self, sent: usize) -> &[Bytes] {
        self.kept.as_deref().and_then(|kept| kept.get(sent..)).unwrap_or_default()
    }
}

impl Body for AttemptBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut state = this.origin.state();
        if state.attempt != this.attempt {
            return Poll::Ready(Some(Err("the request is sent again".into())));
        }
        let frame = match state.unsent(this.sent).first() {
            Some(kept) => Some(Ok(Frame::data(kept.clone()))),
            None => ready!(state.poll_rest(cx)),
        };
        this.sent += 1;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let state = self.origin.state();
        state.unsent(self.sent).is_empty() && state.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.origin.state();
        let kept: u64 = state.unsent(self.sent).iter().map(|chunk| chunk.len() as u64).sum();
        let rest = state.rest.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(kept + upper);
        }
        hint.set_lower(kept + rest.lower());
        hint
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
    async fn a_small_body_can_be_sent_again_while_an_earlier_attempt_still_holds_it() {
        let replay = ReplayBody::new(whole_request_body(Bytes::from_static(b"abc")));
        let mut first = replay.take().unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        let second = replay.take().unwrap();
        assert_eq!(second.size_hint().exact(), Some(3));
        assert!(!second.is_end_stream());
        assert_eq!(second.collect().await.unwrap().to_bytes(), "abc");
        assert!(first.frame().await.unwrap().is_err(), "it is not sent twice at a time");
    }

    #[tokio::test]
    async fn a_large_body_can_be_sent_again_only_while_it_is_unread() {
        let large = Bytes::from(vec![0; MAX_KEPT as usize + 1]);
        let replay = ReplayBody::new(whole_request_body(large.clone()));
        drop(replay.take().unwrap());
        assert_eq!(replay.take().unwrap().collect().await.unwrap().to_bytes(), large);
        assert!(replay.take().is_none());
    }

    #[tokio::test]
    async fn a_body_that_its_sender_breaks_off_is_known_to_be_broken() {
        let replay = ReplayBody::new(whole_request_body(Bytes::from_static(b"abc")));
        assert!(replay.take().unwrap().collect().await.is_ok() && !replay.is_broken());
        let frames = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"a"))), Err("broken off".into())]);
        let replay = ReplayBody::new(http_body_util::StreamBody::new(frames).boxed_unsync());
        assert!(replay.take().unwrap().collect().await.is_err() && replay.is_broken());
    }

    #[test]
    fn an_empty_body_is_known_to_be_empty() {
        assert!(ReplayBody::new(no_request_body()).take().unwrap().is_end_stream());
    }
}
