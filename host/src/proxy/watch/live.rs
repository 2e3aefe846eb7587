//! A filtered watch while it is open.
//!
//! Events are taken together only if they are there already, and what a batch has to tell leaves together. Memory:
//! [`ROOM`] of events, one frame, the set of hidden keys. Pulled by the answer's body: a client that is gone frees the
//! API server's stream, a slow one slows it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::FutureExt as _;
use weir_document::json::EventType;
use weir_document::{Document, Path};

use super::transitions::{Step, Transitions};
use super::wire::{Event, Wire, WireError};
use crate::proxy::Proxy;
use crate::proxy::ledger::Hidden;
use crate::proxy::read::Read;
use crate::proxy::respond::Refusal;
use weir_kube::Encoding;
use weir_runtime::{Outcome, Serving};
use weir_upstream::{AnswerError, Plain};

/// The largest event.
const FRAME: usize = 32 << 20;
/// Events that go through the chain together, at most.
const BATCH: usize = 64;
/// Bytes of a batch after which no more are waited for.
const ROOM: usize = 128 << 10;
/// Shorter ones in a row are copied together; the rest goes as it is.
const SHORT: usize = 4 << 10;

/// Why an open watch is ended by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The filters, or what they look up, have changed: 410, with a word for people and one for the metric.
    Changed(&'static str, &'static str),
    /// The daemon stops.
    Stopping,
}

/// An open watch.
pub(super) struct Live {
    proxy: Arc<Proxy>,
    read: Arc<Read>,
    plain: Box<Plain>,
    wire: Wire,
    transitions: Transitions,
    /// What the client is to be told next.
    told: VecDeque<Bytes>,
    /// The object delivered last; its version is read when the watch is over.
    last: Option<Document>,
    end: Pin<Box<dyn Future<Output = End> + Send>>,
    upstream_ended: bool,
    over: bool,
    /// The client was told to list again: nothing goes on from this watch.
    relisted: bool,
}

impl Live {
    pub(super) fn new(
        proxy: Arc<Proxy>,
        read: Read,
        encoding: Encoding,
        plain: Box<Plain>,
        hidden: Arc<Hidden>,
    ) -> Self {
        proxy.metrics.watches().inc();
        let read = Arc::new(read);
        Self {
            end: Box::pin(end(proxy.clone(), read.clone())),
            proxy,
            wire: Wire::new(encoding, read.media_type.transform, read.object_type.clone(), FRAME),
            read,
            plain,
            transitions: Transitions::new(hidden),
            told: VecDeque::new(),
            last: None,
            upstream_ended: false,
            over: false,
            relisted: false,
        }
    }

    /// The next events, whole lines; none at the end. A failure is an event, too.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Asked before anything is sent: what was decided by filters that are no longer in force stays here.
            if !self.over
                && let Some(end) = self.end.as_mut().now_or_never()
            {
                self.finish(end);
            }
            if let Some(events) = self.told.pop_front() {
                return Some(events);
            }
            if self.over {
                return None;
            }
            let (events, broken) = self.take_events().await;
            self.filter(events).await;
            if let Some(error) = broken
                && !self.over
            {
                self.fail(&Refusal::Garbage(error.to_string()));
            }
            if !self.told.is_empty() || self.over {
                continue;
            }
            if self.upstream_ended {
                self.over = true;
                return None;
            }
            tokio::select! {
                biased;
                end = self.end.as_mut() => self.finish(end),
                next = self.plain.next() => self.take(next),
            }
        }
    }

    /// What is there of whole events, at most a batch, and what is wrong after them.
    async fn take_events(&mut self) -> (Vec<Event>, Option<WireError>) {
        let mut events = Vec::new();
        let (mut room, mut waited) = (ROOM, false);
        while events.len() < BATCH && room > 0 {
            match self.wire.next() {
                Ok(Some(event)) => {
                    room = room.saturating_sub(event.length());
                    events.push(event);
                }
                Err(error) => return (events, Some(error)),
                Ok(None) if self.upstream_ended => break,
                Ok(None) => match self.plain.next().now_or_never() {
                    Some(next) => {
                        self.take(next);
                        waited = false;
                    }
                    // The connection hands over a piece at a time, and may have the next one already.
                    None if !waited && !events.is_empty() => {
                        give_way().await;
                        waited = true;
                    }
                    None => break,
                },
            }
        }
        (events, None)
    }

    fn take(&mut self, next: Result<Option<Bytes>, AnswerError>) {
        match next {
            Ok(Some(bytes)) => self.wire.push(bytes),
            Ok(None) => {
                self.wire.finish();
                self.upstream_ended = true;
            }
            Err(error) => {
                // Between two events this is an end like another: the client comes back and goes on. Within one the
                // wire will tell.
                tracing::debug!(path = %self.read.path, %error, "the API server's side of a watch broke off");
                self.wire.finish();
                self.upstream_ended = true;
            }
        }
    }

    async fn filter(&mut self, events: Vec<Event>) {
        let judged = events.iter().filter(|event| event.is_judged());
        let documents: Vec<_> = judged.filter_map(Event::document).cloned().collect();
        let mut outcomes: VecDeque<Outcome> =
            if documents.is_empty() { VecDeque::new() } else { self.read.chain.run(documents).await.into() };
        let (mut lines, mut refused) = (Vec::with_capacity(events.len()), None);
        for event in events {
            let outcome =
                if event.is_judged() { outcomes.pop_front().unwrap_or(Outcome::Hidden) } else { Outcome::Unchanged };
            self.over |= event.kind == EventType::Error;
            match self.apply(&event, outcome) {
                Ok(line) => lines.extend(line),
                Err(refusal) => refused = Some(refusal),
            }
            if self.over || refused.is_some() {
                break;
            }
        }
        let runs = lines.chunk_by(|one, next| one.len().max(next.len()) < SHORT);
        self.told.extend(runs.map(|run| if let [line] = run { line.clone() } else { run.concat().into() }));
        if let Some(refusal) = refused {
            self.fail(&refusal);
        }
    }

    /// What the client is told of an event; an error ends the watch.
    fn apply(&mut self, event: &Event, outcome: Outcome) -> Result<Option<Bytes>, Refusal> {
        let garbage = |error: WireError| Refusal::Garbage(error.to_string());
        let key = match event.document().filter(|_| event.is_judged() && self.transitions.needs_key(&outcome)) {
            Some(document) => Hidden::key_of(document).map_err(|error| garbage(error.into()))?,
            None => 0,
        };
        let line = match (self.transitions.step(event.kind, key, &outcome), outcome) {
            (Step::Silence, _) => return Ok(None),
            (Step::Original, _) => self.wire.tell(event, event.kind, None),
            (Step::Filtered(kind), Outcome::Edited(bytes)) => self.wire.tell(event, kind, Some(&bytes)),
            (Step::Filtered(kind), _) => self.wire.tell(event, kind, None),
            (Step::Relist, _) => {
                self.proxy.metrics.relist("hidden");
                return Err(Refusal::Expired("an object is no longer shown"));
            }
            (Step::Fail(failure), _) => return Err(Refusal::Filter(failure)),
        };
        let line = line.map_err(garbage)?;
        if let Some(document) = event.document() {
            self.last = Some(document.clone());
        }
        Ok(Some(line))
    }

    /// Ends the watch with an ERROR event after what was decided before it.
    fn fail(&mut self, refusal: &Refusal) {
        self.over = true;
        if matches!(refusal, Refusal::Expired(_)) {
            self.relisted = true;
            tracing::debug!(path = %self.read.path, component = self.read.component, reason = %refusal, "a watch ends with 410, its client lists again");
        } else {
            tracing::warn!(path = %self.read.path, component = self.read.component, error = %refusal, "a watch ends with an ERROR event");
        }
        self.told.push_back(refusal.event(self.wire.encoding()));
    }

    /// Ends the watch: what was decided is told before the daemon stops, and stays here if it no longer holds.
    fn finish(&mut self, end: End) {
        self.over = true;
        if let End::Changed(why, reason) = end {
            self.told.clear();
            self.proxy.metrics.relist(reason);
            self.fail(&Refusal::Expired(why));
        }
    }
}

impl Drop for Live {
    /// However the watch ended, its client may go on from the last version that was handed out.
    fn drop(&mut self) {
        self.proxy.metrics.watches().dec();
        if self.relisted {
            return;
        }
        let start = self.read.query.first("resourceVersion").unwrap_or_default();
        let last = self.last.take();
        let version = Path::parse("metadata.resourceVersion")
            .ok()
            .zip(last.as_ref())
            .and_then(|(path, last)| last.text(&path).ok().flatten().map(|version| version.into_owned()));
        let version = version.as_deref().unwrap_or(start);
        self.proxy.ledger.ended(self.read.key, self.read.stamp, version, self.transitions.hidden().clone());
    }
}

/// Resolves when the watch must end. What filters look up is followed from the stamp with which the watch began.
async fn end(proxy: Arc<Proxy>, read: Arc<Read>) -> End {
    let mut serving = proxy.serving.clone();
    let swapped = async {
        loop {
            if let Serving::Live(set) = &*serving.borrow_and_update() {
                match set.chain(&read.component, &read.resource.resource, weir_kube::VerbClass::Read) {
                    Some(chain) if chain.same_filters(&read.chain) => {}
                    Some(_) => return End::Changed("the filters have changed", "swap"),
                    None => return End::Changed("no filter matches this resource any more", "unmatched"),
                }
            }
            if serving.changed().await.is_err() {
                return End::Stopping;
            }
        }
    };
    tokio::select! {
        end = swapped => end,
        () = read.chain.changed_since(read.stamp) => End::Changed("what the filters look up has changed", "lookup"),
        () = proxy.tasks.stopping() => End::Stopping,
    }
}

/// Lets what else is ready on this thread run first: once for the connection to hear that its last piece was taken, once
/// for it to hand over the next.
async fn give_way() {
    let mut turns = 2_u8;
    poll_fn(|cx| match turns.checked_sub(1) {
        None => Poll::Ready(()),
        Some(left) => {
            turns = left;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
