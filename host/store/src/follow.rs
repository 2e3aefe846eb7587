//! The life of one feed: find the kind, list it, watch it, and again from the right place after whatever ends that.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch::Sender;

use super::discover::{Served, discover};
use super::error::FeedError;
use super::feeds::{FeedState, Server, Timing};
use super::hub::{FeedId, Hub};
use super::list::{Listed, list};
use super::request::{Asker, Failure};
use super::store::Delta;
use super::watch::{Sink, watch};
use weir_kube::Lookup;
use weir_upstream::Returns;
use weir_upstream::{BackOff, spread};

/// The task of one feed.
pub(super) struct Follower {
    asker: Asker,
    lookup: Arc<Lookup>,
    timing: Timing,
    returns: Returns,
    output: Output,
}

/// Where a feed writes.
struct Output {
    lookup: Arc<Lookup>,
    id: FeedId,
    hub: Arc<Hub>,
    state: Sender<FeedState>,
}

/// Where a feed is.
enum Step {
    /// Nothing is known of the kind.
    Discover,
    /// Its place is known; its objects are not, or no longer surely.
    List(Served),
    /// All is known up to a version.
    Watch(Served, String),
}

impl Follower {
    pub(super) fn new(
        Server { client, reach }: Server,
        lookup: Arc<Lookup>,
        id: FeedId,
        hub: Arc<Hub>,
        state: Sender<FeedState>,
        timing: Timing,
    ) -> Self {
        let asker = Asker { client, resource: lookup.resource.clone(), patience: timing.answer };
        Self {
            asker,
            lookup: lookup.clone(),
            timing,
            returns: reach.returns(),
            output: Output { lookup, id, hub, state },
        }
    }

    /// Follows for ever.
    pub(super) async fn run(mut self) {
        let mut back_off = BackOff::new(self.timing.back_off, self.timing.back_off_most);
        let mut step = Step::Discover;
        loop {
            step = match step {
                Step::Discover => match discover(&self.asker, &self.lookup).await {
                    Ok(served) => Step::List(served),
                    Err(failure) => self.failed(failure, Step::Discover, &mut back_off).await,
                },
                Step::List(served) => match list(&self.asker, &self.lookup, &served).await {
                    Ok(listed) => {
                        back_off.reset();
                        let version = listed.version.clone();
                        self.output.replace(listed);
                        Step::Watch(served, version)
                    }
                    Err(failure) => self.failed(failure, Step::List(served), &mut back_off).await,
                },
                Step::Watch(served, version) => self.watch(served, version, &mut back_off).await,
            };
        }
    }

    async fn watch(&mut self, served: Served, mut version: String, back_off: &mut BackOff) -> Step {
        let began = tokio::time::Instant::now();
        let before = version.clone();
        let time = self.timing.watch;
        match watch(&self.asker, &self.lookup, &served, &mut version, time, &mut self.output).await {
            Ok(()) => {
                // A server that accepts watches and ends them at once must not be asked in a loop.
                if version != before || began.elapsed() > self.timing.back_off {
                    back_off.reset();
                } else {
                    back_off.wait_or_return(&mut self.returns).await;
                }
                Step::Watch(served, version)
            }
            Err(Failure::Expired) => {
                tracing::debug!(resource = %self.lookup.resource, version, "watch is too old: listing again");
                // No reset: the list that follows resets it, and a server that expires at once is not asked in a loop.
                if version == before {
                    back_off.wait_or_return(&mut self.returns).await;
                }
                Step::List(served)
            }
            Err(Failure::Missing) => Step::Discover,
            Err(failure @ Failure::Other(FeedError::Malformed { .. })) => {
                self.failed(failure, Step::List(served), back_off).await
            }
            Err(failure) => self.failed(failure, Step::Watch(served, version), back_off).await,
        }
    }

    /// Says what is wrong, waits, and goes on at `again`.
    async fn failed(&mut self, failure: Failure, again: Step, back_off: &mut BackOff) -> Step {
        match failure {
            Failure::Missing => {
                self.output.missing();
                back_off.wait_for(spread(self.timing.missing), &mut self.returns).await;
                Step::Discover
            }
            Failure::Expired => {
                back_off.wait_or_return(&mut self.returns).await;
                again
            }
            Failure::Other(problem) => {
                self.output.problem(problem);
                back_off.wait_or_return(&mut self.returns).await;
                again
            }
        }
    }
}

impl Output {
    /// A complete list: the difference to what is held is published.
    fn replace(&self, listed: Listed) {
        let mut listed: BTreeMap<_, _> = listed.objects.into_iter().collect();
        let held = self.hub.objects(&self.lookup, self.id);
        let gone = held.iter().flat_map(|held| held.keys()).filter(|key| !listed.contains_key(*key));
        let mut deltas: Vec<Delta> = gone.map(|key| Delta::Remove(key.clone())).collect();
        while let Some((key, held)) = listed.pop_first() {
            deltas.push(Delta::Put(key, held));
        }
        self.hub.apply(&self.lookup, self.id, deltas);
        self.working();
    }

    /// The server lacks the kind: it has none of it.
    fn missing(&self) {
        if self.lookup.optional {
            tracing::debug!(resource = %self.lookup.resource, "the server does not serve this kind: it counts as empty");
        } else {
            tracing::warn!(resource = %self.lookup.resource, "the server does not serve this kind, which a filter looks up: it counts as empty until it is served");
        }
        let held = self.hub.objects(&self.lookup, self.id);
        let deltas = held.iter().flat_map(|held| held.keys()).map(|key| Delta::Remove(key.clone())).collect();
        self.hub.apply(&self.lookup, self.id, deltas);
        self.working();
    }

    fn working(&self) {
        self.state.send_if_modified(|state| {
            let new = FeedState { synced: true, problem: None };
            let changed = *state != new;
            *state = new;
            changed
        });
    }

    fn problem(&self, problem: FeedError) {
        self.state.send_if_modified(|state| {
            let changed = state.problem.as_ref() != Some(&problem);
            if changed {
                tracing::warn!(%problem, synced = state.synced, "a lookup does not follow the server; trying again");
                state.problem = Some(problem);
            }
            changed
        });
    }
}

impl Sink for Output {
    fn begun(&mut self) {
        self.working();
    }

    fn apply(&mut self, deltas: Vec<Delta>) {
        self.hub.apply(&self.lookup, self.id, deltas);
    }
}
