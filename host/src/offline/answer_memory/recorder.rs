//! Copies a response while its client receives it, and remembers it once it is complete.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::{Answer, AnswerKey, AnswerMemory, MAX_RESPONSE};
use crate::serve::body::{AbortError, ResponseBody};
use weir_process::ledger::{Charge, Use};

impl AnswerMemory {
    /// Remembers a successful response once its client has received it completely. `prepare` returns the form in which it
    /// is kept; `None` if it is not.
    pub(crate) fn record(
        &self,
        key: AnswerKey,
        response: Response<ResponseBody>,
        prepare: fn(Answer) -> Option<Answer>,
    ) -> Response<ResponseBody> {
        if response.status() != StatusCode::OK {
            return response;
        }
        let Some(place) = self.place(&key) else { return response };
        let (parts, inner) = response.into_parts();
        let head = Answer::of(&parts, Bytes::new(), key.expires);
        let copy = Some(Copy { key, head, body: BytesMut::new(), prepare, place });
        Response::from_parts(parts, Recorder { inner, memory: self.clone(), copy }.boxed_unsync())
    }

    /// A place for a response on its way. `None`: the same one is on its way, or the owner has no share left.
    pub(crate) fn place(&self, key: &AnswerKey) -> Option<CopyPlace> {
        let charge = self.ledger.charge(&key.owner, Use::Answers, 0).ok()?;
        let (name, copies) = (key.full_name(), self.copies.clone());
        let is_first = copies.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        // Dropping a place gives the name back: one is made only of a name that was taken.
        is_first.then(|| CopyPlace { name, copies, charge })
    }

    /// Whether a response of so many bytes has room: what its owner has not read for a while gives way.
    pub(crate) fn has_room(&self, place: &CopyPlace, bytes: usize) -> bool {
        let CopyPlace { name, charge, .. } = place;
        let take = || charge.grow_to(bytes as u64);
        bytes <= MAX_RESPONSE && self.recent().with_room(charge.owner(), name, bytes as u64, take).is_some()
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
    place: CopyPlace,
}

/// The only copy of a name, and what it takes of its owner's share.
pub(crate) struct CopyPlace {
    name: String,
    copies: Arc<Mutex<HashSet<String>>>,
    charge: Charge,
}

impl Drop for CopyPlace {
    fn drop(&mut self) {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl Recorder {
    fn finish(&mut self) {
        let Some(Copy { key, head, body, prepare, place }) = self.copy.take() else { return };
        // The share that it took is what it needs to be remembered.
        drop(place);
        if let Some(answer) = prepare(Answer { body: body.freeze(), ..head }) {
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
                let Self { memory, copy, .. } = &mut *self;
                if let (Some(data), Some(copy)) = (frame.data_ref(), copy) {
                    let length = copy.body.len() + data.len();
                    match memory.has_room(&copy.place, length) {
                        true => copy.body.extend_from_slice(data),
                        false => self.copy = None,
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

    use weir_upstream::clock;

    use super::*;
    use crate::serve::body::full;
    use weir_process::ledger::{Ledger, Owner};

    #[tokio::test]
    async fn a_response_is_remembered_when_it_was_received_completely() {
        let memory = AnswerMemory::new(None, Ledger::new(256 << 20));
        let expires = clock::now() + Duration::from_secs(60);
        let key = AnswerKey {
            name: "/version".to_owned(),
            owner: Owner::Daemon,
            confidential: false,
            expires,
            interval: Duration::ZERO,
        };
        let response = memory.record(key.clone(), Response::new(full(Bytes::from_static(b"{}"))), Some);
        assert!(memory.get(&key).await.is_none());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
        assert_eq!(memory.get(&key).await.unwrap().body, "{}");
        let mut failed = Response::new(full(Bytes::from_static(b"no")));
        *failed.status_mut() = StatusCode::FORBIDDEN;
        memory.record(key.clone(), failed, Some).into_body().collect().await.unwrap();
        assert_eq!(memory.get(&key).await.unwrap().body, "{}");
    }

    /// Kubelet gets new ConfigMaps for months, and others change.
    #[tokio::test]
    async fn a_full_memory_remembers_what_is_new_and_what_has_changed() {
        let ledger = Ledger::new(320 << 20);
        let memory = AnswerMemory::new(None, ledger.clone());
        let key = |n: u8| AnswerKey {
            name: n.to_string(),
            owner: Owner::Client("a".into()),
            confidential: false,
            expires: clock::now() + Duration::from_secs(60),
            interval: Duration::ZERO,
        };
        let receive = async |n: u8, body: Vec<u8>| {
            let response = memory.record(key(n), Response::new(full(Bytes::from(body))), Some);
            response.into_body().collect().await.unwrap();
        };
        for n in 0..30 {
            receive(n, vec![n; 1 << 20]).await;
            assert_eq!(memory.get(&key(n)).await.map(|answer| answer.body.len()), Some(1 << 20), "{n}");
        }
        for n in [29, 27, 28] {
            receive(n, vec![100; 1 << 20]).await;
            assert_eq!(memory.get(&key(n)).await.unwrap().body[0], 100, "{n} has changed");
        }
        receive(29, vec![101; 5 << 20]).await;
        receive(29, vec![102; 6 << 20]).await;
        assert_eq!(memory.get(&key(29)).await.unwrap().body[0], 102, "both do not fit at a time");
        receive(30, vec![1; 9 << 20]).await;
        assert!(memory.get(&key(30)).await.is_none() && memory.get(&key(29)).await.is_some(), "it never fits");
        assert!(ledger.used(&Owner::Client("a".into())) <= ledger.share() / 4);
    }

    /// Fifty clients that ask for the same large document at a time cost one copy of it.
    #[tokio::test]
    async fn copies_are_charged_and_there_is_one_of_each_name() {
        let ledger = Ledger::new(256 << 20);
        let memory = AnswerMemory::new(None, ledger.clone());
        let expires = clock::now() + Duration::from_secs(60);
        let key = |name: &str| AnswerKey {
            name: name.to_owned(),
            owner: Owner::Client("a".into()),
            confidential: false,
            expires,
            interval: Duration::ZERO,
        };
        let body = || Response::new(full(Bytes::from(vec![1; 4 << 20])));
        let mut copies: Vec<_> = (0..50).map(|_| memory.record(key("x"), body(), Some)).collect();
        assert_eq!(memory.copies.lock().unwrap().len(), 1);
        copies.extend((0..50).map(|n| memory.record(key(&n.to_string()), body(), Some)));
        for copy in &mut copies {
            // The last frame is not taken from all: each copy stays as it is.
            let _ = copy.body_mut().frame().await;
        }
        assert!(ledger.used(&Owner::Client("a".into())) <= ledger.share() / 4);
        drop(copies);
        assert!(memory.copies.lock().unwrap().is_empty());
    }
}
