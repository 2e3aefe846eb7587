//! A filtered watch while it is open.
//!
//! Events are taken together only if they are there already, and each such batch leaves in one piece at once. Memory:
//! one batch, one frame, the set of hidden keys. Pulled by the answer's body: a client that is gone frees the API
//! server's stream, a slow one slows it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use weir_document::json::{self, EventType, Frame, FrameSplitter, SplitError};
use weir_document::{Document, Path};

use super::transitions::{Step, Transitions};
use crate::filter::{Outcome, Serving};
use crate::proxy::Proxy;
use crate::proxy::encoding::Plain;
use crate::proxy::ledger::Hidden;
use crate::proxy::list::hidden_key;
use crate::proxy::read::Read;
use crate::proxy::respond::Refusal;

/// The largest event.
const FRAME: usize = 32 << 20;
/// Events that go through the chain together, at most.
const BATCH: usize = 64;

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
    splitter: FrameSplitter,
    transitions: Transitions,
    /// The object delivered last; its version is read when the watch is over.
    last: Option<Bytes>,
    end: Pin<Box<dyn Future<Output = End> + Send>>,
    upstream_ended: bool,
    over: bool,
    /// The client was told to list again: nothing goes on from this watch.
    relisted: bool,
}

impl Live {
    pub(super) fn new(proxy: Arc<Proxy>, read: Read, plain: Box<Plain>, hidden: Arc<Hidden>) -> Self {
        proxy.metrics.watches().inc();
        let read = Arc::new(read);
        Self {
            end: Box::pin(end(proxy.clone(), read.clone())),
            proxy,
            read,
            plain,
            splitter: FrameSplitter::with_limit(FRAME),
            transitions: Transitions::new(hidden),
            last: None,
            upstream_ended: false,
            over: false,
            relisted: false,
        }
    }

    /// The next events, whole lines; none at the end. A failure is an event, too.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            // Asked before anything is sent: what was decided by filters that are no longer in force stays here.
            if let Some(end) = self.end.as_mut().now_or_never() {
                return self.finish(end);
            }
            let (frames, broken) = self.frames();
            let events = self.filter(frames).await;
            if let Some(error) = broken
                && !self.over
            {
                return Some(self.fail(events, &Refusal::Garbage(describe(&error))));
            }
            if !events.is_empty() {
                return Some(join(events));
            }
            if self.over || self.upstream_ended {
                self.over = true;
                return None;
            }
            tokio::select! {
                biased;
                end = self.end.as_mut() => return self.finish(end),
                next = self.plain.next() => self.take(next),
            }
        }
        None
    }

    /// What is there of whole frames, at most a batch, and what is wrong after them.
    fn frames(&mut self) -> (Vec<Frame>, Option<SplitError>) {
        let mut frames = Vec::new();
        while frames.len() < BATCH {
            match self.splitter.next() {
                Ok(Some(frame)) => frames.push(frame),
                Err(error) => return (frames, Some(error)),
                Ok(None) if self.upstream_ended => break,
                Ok(None) => match self.plain.next().now_or_never() {
                    Some(next) => self.take(next),
                    None => break,
                },
            }
        }
        (frames, None)
    }

    fn take(&mut self, next: Result<Option<Bytes>, crate::proxy::body::BodyError>) {
        match next {
            Ok(Some(bytes)) => self.splitter.push(bytes),
            Ok(None) => {
                self.splitter.finish();
                self.upstream_ended = true;
            }
            Err(error) => {
                // Between two events this is an end like another: the client comes back and goes on. Within one the
                // splitter will tell.
                tracing::debug!(path = %self.read.path, %error, "the API server's side of a watch broke off");
                self.splitter.finish();
                self.upstream_ended = true;
            }
        }
    }

    async fn filter(&mut self, frames: Vec<Frame>) -> Vec<Bytes> {
        let judged = |event| matches!(event, EventType::Added | EventType::Modified | EventType::Deleted);
        let documents: Vec<_> = frames
            .iter()
            .filter(|frame| judged(frame.event))
            .map(|frame| Document::json(frame.object_bytes()))
            .collect();
        let mut outcomes: VecDeque<Outcome> =
            if documents.is_empty() { VecDeque::new() } else { self.read.chain.run(documents).await.into() };
        let mut events = Vec::with_capacity(frames.len());
        for frame in frames {
            if judged(frame.event) {
                let outcome = outcomes.pop_front().unwrap_or(Outcome::Hidden);
                match self.step(&frame, &outcome) {
                    Ok(step) => self.apply(step, &frame, outcome, &mut events),
                    Err(error) => {
                        let event = self.fail(std::mem::take(&mut events), &Refusal::Garbage(error.to_string()));
                        events.push(event);
                    }
                }
            } else {
                self.over |= frame.event == EventType::Error;
                self.apply(Step::Original, &frame, Outcome::Unchanged, &mut events);
            }
            if self.over {
                break;
            }
        }
        events
    }

    fn step(&mut self, frame: &Frame, outcome: &Outcome) -> Result<Step, weir_document::Error> {
        let key =
            if self.transitions.needs_key(outcome) { hidden_key(&Document::json(frame.object_bytes()))? } else { 0 };
        Ok(self.transitions.step(frame.event, key, outcome))
    }

    fn apply(&mut self, step: Step, frame: &Frame, outcome: Outcome, events: &mut Vec<Bytes>) {
        let event = match (step, outcome) {
            (Step::Silence, _) => return,
            (Step::Original, _) => frame.line(),
            (Step::Filtered(event), Outcome::Edited(bytes)) => json::event(event, &bytes),
            (Step::Filtered(event), _) if event == frame.event => frame.line(),
            (Step::Filtered(event), _) => json::event(event, &frame.object_bytes()),
            (Step::Relist, _) => {
                self.proxy.metrics.relist("hidden");
                let event = self.fail(std::mem::take(events), &Refusal::Expired("an object is no longer shown"));
                events.push(event);
                return;
            }
            (Step::Fail(failure), _) => {
                let event = self.fail(std::mem::take(events), &Refusal::Filter(failure));
                events.push(event);
                return;
            }
        };
        if frame.event != EventType::Error {
            self.last = Some(frame.object_bytes());
        }
        events.push(event);
    }

    /// Ends the watch with an ERROR event after what was decided before it.
    fn fail(&mut self, mut events: Vec<Bytes>, refusal: &Refusal) -> Bytes {
        self.over = true;
        if matches!(refusal, Refusal::Expired(_)) {
            self.relisted = true;
            tracing::debug!(path = %self.read.path, component = self.read.component, reason = %refusal, "a watch ends with 410, its client lists again");
        } else {
            tracing::warn!(path = %self.read.path, component = self.read.component, error = %refusal, "a watch ends with an ERROR event");
        }
        events.push(refusal.event());
        join(events)
    }

    fn finish(&mut self, end: End) -> Option<Bytes> {
        self.over = true;
        match end {
            End::Stopping => None,
            End::Changed(why, reason) => {
                self.proxy.metrics.relist(reason);
                Some(self.fail(Vec::new(), &Refusal::Expired(why)))
            }
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
        let last = self.last.take().map(Document::json);
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
                match set.chain(&read.component, &read.resource.resource, crate::config::Class::Read) {
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

fn join(mut events: Vec<Bytes>) -> Bytes {
    if events.len() == 1 {
        return events.pop().unwrap_or_default();
    }
    let length = events.iter().map(Bytes::len).sum();
    let all = events.into_iter().fold(BytesMut::with_capacity(length), |mut all, event| {
        all.extend_from_slice(&event);
        all
    });
    all.freeze()
}

fn describe(error: &SplitError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
