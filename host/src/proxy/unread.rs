//! Bounds what answers hold for clients that do not read.
//!
//! An answer that its client does not take on holds what was handed to the connection, and up to the flow-control window of its
//! upstream stream. Such answers are given up after [`PATIENCE`], and earlier if all of them together exceed what
//! their part of `--memory` has left: those of the peer that holds most, the largest first, of equal ones the oldest. While an answer
//! waits for memory, half of those that hold such is given up at each check. Giving up drops
//! the upstream response at once. The client gets an error when it reads on; if it does not, its connection is closed.
//!
//! If all windows together would exceed the memory, the bodies are asked for what they have: a watch without events holds no
//! window, and is not given up for others.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep};

use crate::serve::body::{AbortError, ResponseBody};
use crate::serve::memory_budget::Leased;
use weir_front::{ActiveRequest, ConnectionPeer};
use weir_process::LogLimit;

/// How long a client may take nothing. A person may have paused `kubectl logs | less`.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same when memory is short, and the time between checks.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a client has to learn that its answer was given up, before its connection is closed.
const CLOSE: Duration = Duration::from_secs(30);
/// The most that one answer holds: the window of its upstream stream, and the send buffer of the connection.
const HELD: usize = 512 << 10;
/// So many bytes of a body are read to see whether it has more. A body that has counts as [`HELD`].
const AHEAD: usize = 16 << 10;
/// The send buffer of an HTTP/1.1 connection, which is full if nothing is taken from the body.
const SEND_BUFFER: usize = 64 << 10;
/// The time of an answer whose client waits for more.
const WANTED: u64 = u64::MAX;

/// The answers that are being sent.
#[derive(Debug)]
pub(super) struct UnreadAnswers {
    answers: Mutex<Vec<Weak<OpenAnswer>>>,
    created: Instant,
    given_up: LogLimit,
}

/// One answer.
#[derive(Debug)]
struct OpenAnswer {
    state: Mutex<AnswerState>,
    /// When the connection got the last bytes, in milliseconds after [`UnreadAnswers::created`], or [`WANTED`].
    unread_since: AtomicU64,
    /// Whether its body holds memory that another answer may wait for.
    is_leased: bool,
    active: ActiveRequest,
}

#[derive(Debug)]
enum AnswerState {
    Sent(SentBody),
    GivenUp(Instant),
}

/// A body of which some may have been read ahead.
#[derive(Debug)]
struct SentBody {
    body: ResponseBody,
    /// What was read ahead: frames, then possibly the end.
    ahead: VecDeque<Option<Result<Frame<Bytes>, AbortError>>>,
    /// The bytes that the connection has got and may not have sent.
    handed: usize,
    /// What the connection holds of each answer that it does not go on with.
    buffer: usize,
}

/// The body of an answer, as its connection reads it.
struct ReadBody {
    answers: Arc<UnreadAnswers>,
    answer: Arc<OpenAnswer>,
    is_known: bool,
}

/// An answer that nobody reads.
#[derive(Clone)]
struct UnreadAnswer {
    waited: Duration,
    held: usize,
    answer: Arc<OpenAnswer>,
}

impl UnreadAnswers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { answers: Mutex::default(), created: Instant::now(), given_up: LogLimit::default() })
    }

    /// Attaches a request to the body of its answer, and notes whether the client reads it.
    pub(super) fn watch(
        self: &Arc<Self>,
        answer: Response<ResponseBody>,
        version: Version,
        active: ActiveRequest,
    ) -> Response<ResponseBody> {
        let buffer = if version == Version::HTTP_2 { 0 } else { SEND_BUFFER };
        let is_leased = answer.extensions().get::<Leased>().is_some();
        answer.map(|body| {
            let sent = SentBody { body, ahead: VecDeque::new(), handed: 0, buffer };
            let (state, unread_since) = (Mutex::new(AnswerState::Sent(sent)), AtomicU64::new(WANTED));
            let answer = Arc::new(OpenAnswer { state, unread_since, is_leased, active });
            ReadBody { answers: self.clone(), answer, is_known: false }.boxed_unsync()
        })
    }

    /// Gives up what is not read, until it is cancelled. `free`: how many bytes all of it may hold, and whether an answer waits for
    /// some of them. Cancel-safe.
    pub(super) async fn give_up(&self, free: impl Fn() -> (usize, bool)) {
        loop {
            sleep(SHORT_PATIENCE).await;
            self.check(free());
        }
    }

    fn check(&self, (free, is_wanted): (usize, bool)) {
        let mut unread = Vec::new();
        for (waited, answer) in self.unread() {
            match answer.given_up() {
                Some(since) if since.elapsed() > CLOSE => answer.active.connection().close().cancel(),
                Some(_) => {}
                None if waited > PATIENCE => answer.give_up("its client reads nothing", &self.given_up),
                None => unread.push(UnreadAnswer { waited, held: HELD, answer }),
            }
        }
        if unread.len() * HELD <= free && !is_wanted {
            return;
        }
        for unread in &mut unread {
            unread.held = unread.answer.held();
        }
        if is_wanted {
            let leased: Vec<_> = unread.iter().filter(|unread| unread.answer.is_leased).cloned().collect();
            let held: usize = leased.iter().map(|unread| unread.held).sum();
            give_up_beyond(leased, held / 2, &self.given_up);
            unread.retain(|unread| unread.answer.given_up().is_none());
        }
        give_up_beyond(unread, free, &self.given_up);
    }

    /// The answers that clients have not taken on for a moment.
    fn unread(&self) -> Vec<(Duration, Arc<OpenAnswer>)> {
        let mut answers = self.answers();
        answers.retain(|answer| answer.strong_count() > 0);
        let waiting = answers.iter().filter_map(Weak::upgrade).filter_map(|answer| {
            let since = Some(answer.unread_since.load(Ordering::Acquire)).filter(|since| *since != WANTED)?;
            let waited = self.created.elapsed().saturating_sub(Duration::from_millis(since));
            (waited >= SHORT_PATIENCE).then_some((waited, answer))
        });
        waiting.collect()
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Weak<OpenAnswer>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives up answers until the others hold no more than this.
fn give_up_beyond(unread: Vec<UnreadAnswer>, free: usize, logged: &LogLimit) {
    let mut held: usize = unread.iter().map(|unread| unread.held).sum();
    let mut of_peer: HashMap<ConnectionPeer, (usize, Vec<UnreadAnswer>)> = HashMap::new();
    for unread in unread.into_iter().filter(|unread| unread.held > 0) {
        let (sum, answers) = of_peer.entry(unread.answer.active.connection().peer()).or_default();
        *sum += unread.held;
        answers.push(unread);
    }
    of_peer.values_mut().for_each(|(_, answers)| answers.sort_by_key(|unread| (unread.held, unread.waited)));
    while held > free {
        let Some((sum, answers)) = of_peer.values_mut().max_by_key(|(sum, _)| *sum) else { return };
        let Some(largest) = answers.pop() else { return };
        largest.answer.give_up(
            "its client does not read it, and the memory for responses is used up (a quarter of --memory)",
            logged,
        );
        *sum -= largest.held;
        held -= largest.held;
    }
}

impl SentBody {
    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.body.is_end_stream()
    }

    /// The bytes that are held for the client, at most [`HELD`]. Reads some of the body ahead, if the connection does not read it.
    fn held(&mut self) -> usize {
        // The connection polls the body again before it waits for it.
        let mut cx = Context::from_waker(Waker::noop());
        let mut ahead: usize = self.ahead.iter().flatten().flatten().filter_map(Frame::data_ref).map(Bytes::len).sum();
        while ahead < AHEAD && !matches!(self.ahead.back(), Some(None | Some(Err(_)))) {
            match Pin::new(&mut self.body).poll_frame(&mut cx) {
                Poll::Pending => return (self.buffer.max(self.handed) + ahead).min(HELD),
                Poll::Ready(frame) => {
                    ahead += frame.iter().flatten().filter_map(Frame::data_ref).map(Bytes::len).sum::<usize>();
                    self.ahead.push_back(frame);
                }
            }
        }
        match self.ahead.back() {
            Some(None | Some(Err(_))) => (self.buffer.max(self.handed) + ahead).min(HELD),
            _ => HELD,
        }
    }
}

impl OpenAnswer {
    fn held(&self) -> usize {
        match &mut *self.state() {
            // Its connection may have gone on meanwhile.
            AnswerState::Sent(sent) if self.unread_since.load(Ordering::Acquire) != WANTED => sent.held(),
            _ => 0,
        }
    }

    fn given_up(&self) -> Option<Instant> {
        match *self.state() {
            AnswerState::Sent(_) => None,
            AnswerState::GivenUp(since) => Some(since),
        }
    }

    fn give_up(&self, reason: &'static str, logged: &LogLimit) {
        if let Some(omitted) = logged.permit() {
            let client = self.active.connection().peer();
            tracing::warn!(%client, reason, omitted, "response given up");
        }
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
        let mut state = answer.state();
        answer.unread_since.store(WANTED, Ordering::Release);
        let AnswerState::Sent(sent) = &mut *state else { return Poll::Ready(Some(Err(AbortError::NotRead))) };
        let frame = match sent.ahead.pop_front() {
            Some(frame) => frame,
            None => ready!(Pin::new(&mut sent.body).poll_frame(cx)),
        };
        // The last bytes belong to the connection alone.
        if let Some(Ok(frame)) = &frame
            && !sent.is_end_stream()
        {
            sent.handed = frame.data_ref().map_or(0, Bytes::len);
            let now = u64::try_from(answers.created.elapsed().as_millis()).unwrap_or(WANTED - 1);
            answer.unread_since.store(now, Ordering::Release);
            if !std::mem::replace(is_known, true) {
                answers.answers().push(Arc::downgrade(answer));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(&*self.answer.state(), AnswerState::Sent(sent) if sent.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.answer.state() {
            AnswerState::Sent(sent) if sent.ahead.is_empty() => sent.body.size_hint(),
            AnswerState::Sent(_) | AnswerState::GivenUp(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
