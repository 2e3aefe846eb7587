//! Reports on the Node what operators look for with `kubectl describe node`: events for refused configurations, circuit
//! breakers and watch caches that differ from the API server, and the condition `WeirFiltersReady`.
//!
//! One task does all of it, so that nothing else waits for it. While the API server cannot be reached it sends nothing and
//! keeps nothing: events of that time are lost, and the condition shows the present state once the server is back. It
//! writes at most [`event_log::BURST`] events at once, then one a minute, and the condition at most every
//! [`schedule::SETTLE`].

mod condition;
mod condition_writer;
mod event_log;
mod events;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use weir_runtime::BreakerChange;
use weir_store::CacheDifference;
use weir_upstream::{Reconnects, Upstream};

#[cfg(test)]
pub(crate) use self::condition::FilterCondition;
use self::condition_writer::ConditionWriter;
use self::event_log::NodeEvent;
use self::events::EventWriter;
use crate::admin::HealthSources;
use crate::admin::status::ReloadError;

/// How often it looks whether the API server is back, beside the notice of a request that succeeded.
const OFFLINE: Duration = Duration::from_secs(30);

/// Reports the state of the filters on the Node.
#[expect(missing_debug_implementations, reason = "kube's client has none")]
pub struct NodeReport {
    sources: HealthSources,
    upstream: Arc<Upstream>,
    results: watch::Receiver<u64>,
    breakers: Receiver<BreakerChange>,
    differences: Option<Receiver<CacheDifference>>,
    reconnects: Reconnects,
    events: EventWriter,
    condition: Option<ConditionWriter>,
}

impl NodeReport {
    /// Subscribes to what it reports. `has_condition`: it sets the condition, with the node credential if there is one, else
    /// with the daemon's own.
    #[must_use]
    pub fn new(
        node: &str,
        sources: HealthSources,
        breakers: &Sender<BreakerChange>,
        upstream: Arc<Upstream>,
        has_condition: bool,
    ) -> Self {
        let mut results = sources.status.subscribe();
        // The first result may be there already.
        results.mark_changed();
        Self {
            results,
            breakers: breakers.subscribe(),
            differences: None,
            reconnects: upstream.connectivity().reconnects(),
            events: EventWriter::new(upstream.client(), node),
            condition: has_condition.then(|| ConditionWriter::new(upstream.node_client(), node)),
            sources,
            upstream,
        }
    }

    /// Also reports watch caches that differ from the API server.
    #[must_use]
    pub fn with_differences(self, differences: Receiver<CacheDifference>) -> Self {
        Self { differences: Some(differences), ..self }
    }

    /// Runs until it is cancelled. Cancel-safe: an event or a condition that is being written may be lost.
    pub async fn run(mut self) {
        loop {
            let event = self.next().await;
            if self.upstream.is_failing() {
                // One request without a response is no outage: a pending change keeps its time.
                if self.upstream.offline_since().is_some() {
                    self.condition.as_mut().map(ConditionWriter::pause);
                }
                continue;
            }
            if let Some(event) = event {
                self.events.write(&event).await;
            }
            self.events.flush().await;
            if let Some(condition) = &mut self.condition {
                condition.look(&self.sources).await;
            }
        }
    }

    /// Waits until there is something to write. Cancel-safe.
    async fn next(&mut self) -> Option<NodeEvent> {
        let due = [self.events.due(), self.condition.as_ref().map(ConditionWriter::due)];
        let offline = self.upstream.is_failing().then(|| Instant::now() + OFFLINE);
        let due = due.into_iter().flatten().min().map(|due| offline.map_or(due, |offline| offline.max(due)));
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.results.changed() => match changed {
                Ok(()) => self.refused(),
                // The daemon is stopping.
                Err(_) => std::future::pending().await,
            },
            change = self.breakers.recv() => match change {
                Ok(change) => Some(self.breaker(&change)),
                // The condition shows the present state.
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => std::future::pending().await,
            },
            found = next_difference(&mut self.differences) => Some(different(&found)),
            () = self.reconnects.next() => None,
            () = due => None,
        }
    }

    /// The event of a refused configuration; `None` if the last one is active.
    fn refused(&self) -> Option<NodeEvent> {
        let last = self.sources.status.last_result().filter(|last| !last.errors().is_empty())?;
        let effect = match self.sources.status.active() {
            Some(_) => "The last valid filter set stays active",
            None => "Requests that a filter may match get 503",
        };
        let errors: Vec<_> = last.errors().iter().map(ReloadError::to_string).collect();
        Some(NodeEvent::warning(
            "ConfigurationRefused",
            "Reload",
            &format!("{effect}. {} was refused: {}", last.source(), errors.join("; ")),
        ))
    }

    fn breaker(&self, change: &BreakerChange) -> NodeEvent {
        let name = &change.filter;
        if !change.is_open {
            let note = format!("Filter {name} works again: its circuit breaker is closed");
            return NodeEvent::normal("CircuitBreakerClosed", "Filter", &note);
        }
        let active = self.sources.status.active().unwrap_or_default();
        let filter = active.iter().find(|filter| filter.name() == name);
        let policy = filter.map_or("", |filter| filter.entry().failure_policy.as_str());
        let error = filter.and_then(|filter| filter.last_error()).unwrap_or_default();
        let note = format!(
            "Filter {name} failed too often: its circuit breaker is open, its failure policy {policy} applies. Last error: {error}"
        );
        NodeEvent::warning("CircuitBreakerOpened", "Filter", &note)
    }
}

/// Waits for a watch cache that differs. Cancel-safe.
async fn next_difference(differences: &mut Option<Receiver<CacheDifference>>) -> CacheDifference {
    let Some(differences) = differences else { return std::future::pending().await };
    loop {
        match differences.recv().await {
            Ok(found) => return found,
            // The log has all of them.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn different(CacheDifference { store, peer, difference, goes_on }: &CacheDifference) -> NodeEvent {
    if *goes_on {
        let note = format!(
            "Watch cache {store} is not of the cluster's present history: {difference}. It is listed again. Was etcd restored from a backup?"
        );
        return NodeEvent::warning("ClusterHistoryChanged", "Compare", &note);
    }
    let source = peer.as_ref().map_or_else(|| "the API server".to_owned(), |peer| format!("the Weir of node {peer}"));
    let effect = match peer {
        Some(_) => ", and not read from that Weir for an hour, or until a restart if that happens again",
        None => "",
    };
    let note = format!(
        "Watch cache {store}, filled by {source}, differed from the API server: {difference}. It is listed again{effect}"
    );
    NodeEvent::warning("CacheDifferent", "Compare", &note)
}

/// The earlier of two times, of which one may be absent.
fn earlier(one: Option<Instant>, two: Instant) -> Instant {
    one.map_or(two, |one| one.min(two))
}
