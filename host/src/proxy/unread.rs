//! Bounds what answers hold for clients that do not read.
//!
//! An answer that its client does not take on holds the flow-control window of its upstream stream, and what was handed to
//! the connection. Such answers are given up after [`PATIENCE`], and earlier if all of them together exceed what
//! `--response-memory` has left: those of the peer that holds most, the oldest first. Giving up drops the upstream response at
//! once. The client gets an error when it reads on; if it does not, its connection is closed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep};

use super::body::{AbortError, ResponseBody};
use crate::connections::{ActiveRequest, ConnectionPeer};

/// How long a client may take nothing. A person may have paused `kubectl logs | less`.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same when memory is short, and the time between checks.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a client has to learn that its answer was given up, before its connection is closed.
const CLOSE: Duration = Duration::from_secs(30);
/// What one answer holds: the window of its upstream stream, and the send buffer of the connection.
const HELD: usize = 512 << 10;
/// The time of an answer whose client waits for more.
const WANTED: u64 = u64::MAX;

/// The answers that are being sent.
#[derive(Debug)]
pub(super) struct UnreadAnswers {
    answers: Mutex<Vec<Weak<Answer>>>,
    created: Instant,
}

/// One answer.
#[derive(Debug)]
struct Answer {
    state: Mutex<AnswerState>,
    /// When the connection got the last bytes, in milliseconds after [`UnreadAnswers::created`], or [`WANTED`].
    unread_since: AtomicU64,
    active: ActiveRequest,
}

#[derive(Debug)]
enum AnswerState {
    Sent(ResponseBody),
    GivenUp(Instant),
}

/// The body of an answer, as its connection reads it.
struct ReadBody {
    answers: Arc<UnreadAnswers>,
    answer: Arc<Answer>,
    is_known: bool,
}

impl UnreadAnswers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { answers: Mutex::default(), created: Instant::now() })
    }

    /// Attaches a request to the body of its answer, and notes whether the client reads it.
    pub(super) fn watch(
        self: &Arc<Self>,
        answer: Response<ResponseBody>,
        active: ActiveRequest,
    ) -> Response<ResponseBody> {
        answer.map(|body| {
            let (state, unread_since) = (Mutex::new(AnswerState::Sent(body)), AtomicU64::new(WANTED));
            let answer = Arc::new(Answer { state, unread_since, active });
            ReadBody { answers: self.clone(), answer, is_known: false }.boxed_unsync()
        })
    }

    /// Gives up what is not read, until it is cancelled. `free`: how many bytes all of it may hold. Cancel-safe.
    pub(super) async fn give_up(&self, free: impl Fn() -> usize) {
        loop {
            sleep(SHORT_PATIENCE).await;
            self.check(free());
        }
    }

    fn check(&self, free: usize) {
        let mut unread: HashMap<ConnectionPeer, Vec<(Duration, Arc<Answer>)>> = HashMap::new();
        let mut held = 0;
        for (waited, answer) in self.unread() {
            match answer.given_up() {
                Some(since) if since.elapsed() > CLOSE => answer.active.connection().close().cancel(),
                Some(_) => {}
                None if waited > PATIENCE => answer.give_up("its client reads nothing"),
                None => {
                    held += HELD;
                    unread.entry(answer.active.connection().peer()).or_default().push((waited, answer));
                }
            }
        }
        unread.values_mut().for_each(|answers| answers.sort_by_key(|(waited, _)| *waited));
        while held > free {
            let Some((_, oldest)) = unread.values_mut().max_by_key(|answers| answers.len()).and_then(Vec::pop) else {
                return;
            };
            oldest.give_up("its client does not read it, and --response-memory is used up");
            held -= HELD;
        }
    }

    /// The answers that clients have not taken on for a moment.
    fn unread(&self) -> Vec<(Duration, Arc<Answer>)> {
        let mut answers = self.answers();
        answers.retain(|answer| answer.strong_count() > 0);
        let waiting = answers.iter().filter_map(Weak::upgrade).filter_map(|answer| {
            let since = Some(answer.unread_since.load(Ordering::Acquire)).filter(|since| *since != WANTED)?;
            let waited = self.created.elapsed().saturating_sub(Duration::from_millis(since));
            (waited >= SHORT_PATIENCE).then_some((waited, answer))
        });
        waiting.collect()
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Weak<Answer>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn given_up(&self) -> Option<Instant> {
        match *self.state() {
            AnswerState::Sent(_) => None,
            AnswerState::GivenUp(since) => Some(since),
        }
    }

    fn give_up(&self, reason: &'static str) {
        let client = self.active.connection().peer();
        tracing::warn!(%client, reason, "response given up");
        let body = std::mem::replace(&mut *self.state(), AnswerState::GivenUp(Instant::now()));
        drop(body);
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for ReadBody {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let Self { answers, answer, is_known } = self.get_mut();
        answer.unread_since.store(WANTED, Ordering::Release);
        let mut state = answer.state();
        let AnswerState::Sent(body) = &mut *state else { return Poll::Ready(Some(Err(AbortError::NotRead))) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        // The last bytes belong to the connection alone.
        if matches!(frame, Some(Ok(_))) && !body.is_end_stream() {
            let now = u64::try_from(answers.created.elapsed().as_millis()).unwrap_or(WANTED - 1);
            answer.unread_since.store(now, Ordering::Release);
            if !std::mem::replace(is_known, true) {
                answers.answers().push(Arc::downgrade(answer));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(&*self.answer.state(), AnswerState::Sent(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.answer.state() {
            AnswerState::Sent(body) => body.size_hint(),
            AnswerState::GivenUp(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;

    use super::*;
    use crate::connections::{Connection, Connections};

    const TENANT: ConnectionPeer = ConnectionPeer::Local(Some(1000));
    const ROOT: ConnectionPeer = ConnectionPeer::Local(Some(0));

    struct Port {
        answers: Arc<UnreadAnswers>,
        connections: Arc<Connections>,
    }

    impl Port {
        fn new() -> Self {
            Self { answers: UnreadAnswers::new(), connections: Connections::new(64) }
        }

        /// An answer without an end, of which a client has read the first bytes.
        async fn endless(&self, peer: ConnectionPeer) -> (ResponseBody, Connection) {
            let connection = self.connections.try_admit(peer).unwrap();
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"line"))));
            let answer = Response::new(StreamBody::new(frames).boxed_unsync());
            let mut body = self.answers.watch(answer, connection.begin()).into_body();
            assert!(body.frame().await.unwrap().is_ok());
            (body, connection)
        }
    }

    async fn is_given_up(body: &mut ResponseBody) -> bool {
        matches!(body.frame().await, Some(Err(AbortError::NotRead)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_loses_its_answer_and_later_its_connection() {
        let port = Port::new();
        let ((mut read, _open), (mut unread, connection)) = (port.endless(TENANT).await, port.endless(TENANT).await);
        let checked = port.answers.give_up(|| usize::MAX);
        tokio::pin!(checked);
        for _ in 0..PATIENCE.as_secs() + 1 {
            assert!(futures_util::poll!(checked.as_mut()).is_pending());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!is_given_up(&mut read).await);
        }
        assert!(!connection.close().is_cancelled());
        for _ in 0..=CLOSE.as_secs() {
            assert!(futures_util::poll!(checked.as_mut()).is_pending());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(futures_util::poll!(checked.as_mut()).is_pending());
        assert!(connection.close().is_cancelled() && is_given_up(&mut unread).await && !is_given_up(&mut read).await);
    }

    #[tokio::test(start_paused = true)]
    async fn when_memory_is_short_the_peer_that_holds_most_loses_its_oldest_answers() {
        let port = Port::new();
        let (mut of_root, _first) = port.endless(ROOT).await;
        let mut of_tenant = Vec::new();
        for _ in 0..4 {
            tokio::time::advance(Duration::from_secs(1)).await;
            of_tenant.push(port.endless(TENANT).await);
        }
        port.answers.check(0);
        assert!(!is_given_up(&mut of_tenant[3].0).await, "it is new, and its client may be reading");
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut of_tenant = Vec::new();
        for _ in 0..4 {
            tokio::time::advance(Duration::from_secs(1)).await;
            of_tenant.push(port.endless(TENANT).await);
        }
        assert!(is_given_up(&mut of_root).await, "there was no memory at all");
        let (mut of_root, _second) = port.endless(ROOT).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        port.answers.check(2 * HELD);
        let mut given_up = Vec::new();
        for (body, _) in &mut of_tenant {
            given_up.push(is_given_up(body).await);
        }
        assert_eq!(given_up, [true, true, true, false]);
        assert!(!is_given_up(&mut of_root).await);
    }
}
