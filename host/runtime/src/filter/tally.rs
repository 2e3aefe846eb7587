//! Counts the outcomes of a filter since it is active, and runs its trial: the first time after a change, in which bounds of the
//! configuration hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::BatchCounts;
use weir_spec::{Rollback, Share};

/// The least objects for a decision about a filter.
const FEWEST: u64 = 10;

/// The number of objects by what a filter has made of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OutcomeCounts {
    /// Objects that passed unchanged.
    pub(crate) kept: u64,
    /// Objects that passed edited.
    pub(crate) edited: u64,
    /// Hidden objects.
    pub(crate) hidden: u64,
    /// Objects that the filter failed on, with any failure policy.
    pub(crate) failed: u64,
}

impl OutcomeCounts {
    /// Returns the number of objects.
    #[must_use]
    pub(crate) fn objects(&self) -> u64 {
        self.kept + self.edited + self.hidden + self.failed
    }
}

/// The counts of one filter, and its trial.
#[derive(Debug)]
pub(super) struct Tally {
    kept: AtomicU64,
    edited: AtomicU64,
    hidden: AtomicU64,
    failed: AtomicU64,
    trial: Mutex<Option<Trial>>,
    /// Why the filter is to be taken back.
    exceeded: watch::Sender<Option<Arc<str>>>,
}

#[derive(Debug)]
struct Trial {
    bounds: Rollback,
    until: Instant,
    /// The share of objects that the filter before it hid.
    hidden_before: Share,
}

impl Default for Tally {
    fn default() -> Self {
        let [kept, edited, hidden, failed] = Default::default();
        Self { kept, edited, hidden, failed, trial: Mutex::default(), exceeded: watch::Sender::new(None) }
    }
}

impl Tally {
    pub(super) fn counts(&self) -> OutcomeCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OutcomeCounts {
            kept: of(&self.kept),
            edited: of(&self.edited),
            hidden: of(&self.hidden),
            failed: of(&self.failed),
        }
    }

    /// Begins the trial of a filter that becomes active. `hidden_before`: the share that the filter before it hid.
    pub(super) fn begin_trial(&self, bounds: Rollback, hidden_before: Share) {
        *self.trial() = Some(Trial { bounds, until: Instant::now() + bounds.within, hidden_before });
    }

    /// Resolves to the reason when a bound is exceeded.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.exceeded.subscribe()
    }

    /// Counts a batch, and ends the trial if a bound is exceeded or its time is over.
    pub(super) fn add(&self, batch: BatchCounts) {
        for (count, more) in [
            (&self.kept, batch.kept),
            (&self.edited, batch.edited),
            (&self.hidden, batch.hidden),
            (&self.failed, batch.failed),
        ] {
            if more > 0 {
                count.fetch_add(more, Ordering::Relaxed);
            }
        }
        let mut trial = self.trial();
        let Some(Trial { bounds, until, hidden_before }) = &*trial else { return };
        if Instant::now() > *until {
            *trial = None;
            return;
        }
        if let Some(reason) = exceeded(&self.counts(), bounds, *hidden_before) {
            *trial = None;
            self.exceeded.send_replace(Some(reason.into()));
        }
    }

    fn trial(&self) -> std::sync::MutexGuard<'_, Option<Trial>> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns which bound is exceeded.
fn exceeded(counts: &OutcomeCounts, bounds: &Rollback, hidden_before: Share) -> Option<String> {
    let objects = counts.objects();
    if objects < FEWEST {
        return None;
    }
    let (failed, hidden) = (Share::of(counts.failed, objects), Share::of(counts.hidden, objects));
    if let Some(bound) = bounds.failed.filter(|bound| failed > *bound) {
        return Some(format!("it failed on {} of {objects} objects ({failed}), more than {bound}", counts.failed));
    }
    let bound = bounds.hidden.filter(|bound| hidden > hidden_before.plus(*bound))?;
    let hid = counts.hidden;
    Some(format!("it hid {hid} of {objects} objects ({hidden}), more than {bound} beyond the {hidden_before} before"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn share(text: &str) -> Share {
        text.parse().unwrap()
    }

    fn bounds(failed: Option<&str>, hidden: Option<&str>) -> Rollback {
        Rollback { failed: failed.map(share), hidden: hidden.map(share), within: Duration::from_secs(60) }
    }

    fn batch(kept: u64, hidden: u64, failed: u64) -> BatchCounts {
        BatchCounts { kept, hidden, failed, ..BatchCounts::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bound_ends_the_trial_with_a_reason_once_there_are_enough_objects() {
        let tally = Tally::default();
        tally.begin_trial(bounds(Some("10%"), None), share("0%"));
        let seen = tally.subscribe();
        tally.add(batch(0, 0, FEWEST - 1));
        assert_eq!(*seen.borrow(), None);
        tally.add(batch(1, 0, 0));
        let reason = seen.borrow().clone().unwrap();
        assert_eq!(&*reason, "it failed on 9 of 10 objects (90%), more than 10%");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_filter_before_hid_does_not_count() {
        let tally = Tally::default();
        tally.begin_trial(bounds(None, Some("20%")), share("50%"));
        tally.add(batch(30, 70, 0));
        assert_eq!(*tally.subscribe().borrow(), None);
        tally.add(batch(0, 10, 0));
        let reason = tally.subscribe().borrow().clone().unwrap();
        assert_eq!(&*reason, "it hid 80 of 110 objects (72.72%), more than 20% beyond the 50% before");
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_time_and_without_bounds_nothing_is_taken_back() {
        let tally = Tally::default();
        tally.add(batch(0, 0, 100));
        assert_eq!(*tally.subscribe().borrow(), None);
        tally.begin_trial(bounds(Some("0%"), Some("0%")), share("0%"));
        tokio::time::advance(Duration::from_secs(61)).await;
        tally.add(batch(0, 100, 100));
        assert_eq!(*tally.subscribe().borrow(), None);
        assert_eq!(tally.counts(), OutcomeCounts { hidden: 100, failed: 200, ..OutcomeCounts::default() });
    }
}
