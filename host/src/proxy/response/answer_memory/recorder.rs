//! Copies a response while its client receives it, and remembers it once it is complete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::{Answer, AnswerKey, AnswerMemory, MAX_RESPONSE};
use crate::proxy::body::{AbortError, ResponseBody};

impl AnswerMemory {
    /// Remembers a successful response once its client has received it completely. `prepare` returns the form in which it
    /// is kept; `None` if it is not.
    pub(in crate::proxy) fn record(
        &self,
        key: AnswerKey,
        response: Response<ResponseBody>,
        prepare: fn(Answer) -> Option<Answer>,
    ) -> Response<ResponseBody> {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (parts, inner) = response.into_parts();
        let head = Answer::of(&parts, Bytes::new(), key.expires);
        let copy = Some(Copy { key, head, body: BytesMut::new(), prepare });
        Response::from_parts(parts, Recorder { inner, memory: self.clone(), copy }.boxed_unsync())
    }
}

/// A body that is copied while it passes.
struct Recorder {
    inner: ResponseBody,
    memory: AnswerMemory,
    /// `None` once the copy is complete or has grown too large.
    copy: Option<Copy>,
}

struct Copy {
    key: AnswerKey,
    head: Answer,
    body: BytesMut,
    prepare: fn(Answer) -> Option<Answer>,
}

impl Recorder {
    fn finish(&mut self) {
        if let Some(Copy { key, head, body, prepare }) = self.copy.take()
            && let Some(answer) = prepare(Answer { body: body.freeze(), ..head })
        {
            self.memory.put(&key, answer);
        }
    }
}

impl Body for Recorder {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(copy)) = (frame.data_ref(), &mut self.copy) {
                    copy.body.extend_from_slice(data);
                    if copy.body.len() > MAX_RESPONSE {
                        self.copy = None;
                    }
                }
                // hyper does not poll a body again that is known to have ended.
                if self.inner.is_end_stream() {
                    self.finish();
                }
            }
            Some(Err(_)) => self.copy = None,
            None => self.finish(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_upstream::{Tasks, clock};

    use super::*;
    use crate::proxy::body::full;

    #[tokio::test]
    async fn a_response_is_remembered_when_it_was_received_completely() {
        let memory = AnswerMemory::new(None, Tasks::default());
        let expires = clock::now() + Duration::from_secs(60);
        let key = AnswerKey { name: "/version".to_owned(), confidential: false, expires, interval: Duration::ZERO };
        let response = memory.record(key.clone(), Response::new(full(Bytes::from_static(b"{}"))), Some);
        assert!(memory.get(&key).await.is_none());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
        assert_eq!(memory.get(&key).await.unwrap().body, "{}");
        let mut failed = Response::new(full(Bytes::from_static(b"no")));
        *failed.status_mut() = StatusCode::FORBIDDEN;
        memory.record(key.clone(), failed, Some).into_body().collect().await.unwrap();
        assert_eq!(memory.get(&key).await.unwrap().body, "{}");
    }
}
