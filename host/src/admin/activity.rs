//! What the daemon did in each minute of the last hour: requests, events and hidden objects, for the status page.
//!
//! Nothing is counted for it: once a minute, [`Activity::follow`] reads the counters that exist, and keeps how far each has come
//! since. It has [`MINUTES`] numbers of each kind, and one for each filter and cached resource that there was.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use weir_runtime::{Mode, RuntimeMetrics};
use weir_upstream::clock;

use super::Caches;
use super::status::FilterStatus;
use crate::client_table::ClientTable;

/// The minutes that are kept.
const MINUTES: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// The activity of the last hour.
#[derive(Debug, Default)]
pub struct Activity(Mutex<Minutes>);

/// The counters that are read.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "reports only")]
pub struct ActivitySources {
    /// The requests of clients.
    pub clients: Arc<ClientTable>,
    /// The events of watch caches.
    pub caches: Caches,
    /// The filters in force.
    pub status: Arc<FilterStatus>,
    /// What they have hidden.
    pub runtime: Arc<RuntimeMetrics>,
}

#[derive(Debug, Default)]
struct Minutes {
    until: Option<jiff::Timestamp>,
    requests: Series,
    events: Series,
    hidden: Series,
}

/// One number for each minute, of counters that only rise.
#[derive(Debug, Default)]
struct Series {
    /// The oldest first.
    minutes: VecDeque<u64>,
    /// How far each counter was. One that is away for a while, as of a filter that returns, goes on from there.
    before: HashMap<Arc<str>, u64>,
}

impl Activity {
    /// Reads the counters once a minute. Runs until it is dropped.
    pub async fn follow(self: Arc<Self>, sources: ActivitySources) {
        let mut minutes = interval_at(Instant::now() + MINUTE, MINUTE);
        // After a pause of the machine there is one minute that has all of it, not several at once.
        minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            minutes.tick().await;
            self.sample(&sources);
        }
    }

    fn sample(&self, sources: &ActivitySources) {
        let requests = sources.clients.status().iter().map(|client| client.requests).sum();
        let events = sources.caches.events_sent();
        let active = sources.status.active().unwrap_or_default();
        let enforced = active.iter().filter(|filter| filter.entry().mode == Mode::Enforce);
        let hidden: Vec<_> = enforced
            .map(|filter| (filter.name().clone(), sources.runtime.counts(filter.name(), Mode::Enforce).hidden))
            .collect();
        let mut minutes = self.lock();
        minutes.until = Some(clock::timestamp());
        minutes.requests.push([("".into(), requests)]);
        minutes.events.push(events);
        minutes.hidden.push(hidden);
    }

    /// The member of `/status`.
    pub(super) fn to_json(&self) -> Value {
        let minutes = self.lock();
        json!({
            "until": minutes.until.map(|until| until.to_string()),
            "requests": minutes.requests.minutes,
            "events": minutes.events.minutes,
            "hidden": minutes.hidden.minutes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Minutes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    /// Adds a minute: the sum of how far each counter has come since it was read last, or since the start.
    fn push(&mut self, counters: impl IntoIterator<Item = (Arc<str>, u64)>) {
        let mut sum = 0_u64;
        for (name, count) in counters {
            let before = self.before.insert(name, count).unwrap_or_default();
            sum = sum.saturating_add(count.saturating_sub(before));
        }
        if self.minutes.len() == MINUTES {
            self.minutes.pop_front();
        }
        self.minutes.push_back(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> ActivitySources {
        let caches = Caches { upstream: None, views: None, local_status: None, metrics: Arc::default() };
        ActivitySources { clients: Arc::default(), caches, status: Arc::default(), runtime: Arc::default() }
    }

    #[test]
    fn a_minute_is_how_far_the_counters_have_come() {
        let mut series = Series::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        series.push([(a.clone(), 5)]);
        series.push([(a.clone(), 7), (b.clone(), 10)]);
        // A filter that is gone and returns does not count again.
        series.push([(b.clone(), 10)]);
        series.push([(a, 8), (b, 10)]);
        assert_eq!(series.minutes, [5, 12, 0, 1]);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut series = Series::default();
        for n in 1..=100 {
            series.push([("a".into(), n * n)]);
        }
        let squares = |n: u64| n * n - (n - 1) * (n - 1);
        assert_eq!(series.minutes.len(), MINUTES);
        assert_eq!((series.minutes.front(), series.minutes.back()), (Some(&squares(41)), Some(&squares(100))));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_read_once_a_minute() {
        let (activity, sources) = (Arc::<Activity>::default(), sources());
        assert_eq!(activity.to_json(), json!({"until": null, "requests": [], "events": [], "hidden": []}));
        let follow = activity.clone().follow(sources.clone());
        tokio::pin!(follow);
        for requests in [3, 0, 1] {
            for _ in 0..requests {
                drop(sources.clients.begin("kubelet", false));
            }
            assert!(tokio::time::timeout(MINUTE, follow.as_mut()).await.is_err(), "it goes on");
        }
        let json = activity.to_json();
        assert_eq!((&json["requests"], &json["hidden"]), (&json!([3, 0, 1]), &json!([0, 0, 0])));
        assert!(json["until"].is_string());
    }
}
