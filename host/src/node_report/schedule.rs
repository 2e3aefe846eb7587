//! Decides when the condition of the Node is written. It does no I/O.
//!
//! A fault is written once it has lasted for [`SETTLE`], and its end after [`RECOVERY`] without any fault: a fault that comes
//! and goes costs the watchers of Nodes nothing, and one that returns every few minutes is one write. The end of a refusal
//! takes [`SETTLE`]: an operator has corrected the configuration, and waits for that.
//!
//! Nothing is observed while no API server answers, and nothing is written until [`SETTLE`] after it is back: what fails only
//! until connections are open again is over by then, and what has changed meanwhile is one write. Two writes are at least
//! [`SETTLE`] apart. A heartbeat repeats what is shown, and waits while a change is pending.

use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::jitter;

use super::condition::FilterCondition;

/// How long a fault lasts before it is written.
pub(super) const SETTLE: Duration = Duration::from_secs(30);
/// How long there is no fault before that is written.
const RECOVERY: Duration = Duration::from_secs(300);
/// How often an unchanged condition is written.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3600);

/// When the condition of one Node is written.
#[derive(Debug)]
pub(super) struct ConditionSchedule {
    /// What the Node has.
    shown: Option<FilterCondition>,
    /// The condition that differs from it, and since when.
    change: Option<(FilterCondition, Instant)>,
    /// Nothing is written before that: [`SETTLE`] after the last write, the end of an outage or the start. It is the start itself
    /// if the Node has no condition.
    earliest: Instant,
    /// When it is written although it is the same.
    heartbeat: Instant,
    is_offline: bool,
}

impl ConditionSchedule {
    /// `shown`: the condition that the Node has, possibly from an earlier daemon. `is_recent`: its heartbeat is.
    pub(super) fn new(shown: Option<FilterCondition>, is_recent: bool) -> Self {
        let now = Instant::now();
        let heartbeat = if shown.is_none() || is_recent { now + jitter(HEARTBEAT) } else { now };
        let earliest = if shown.is_none() { now } else { now + SETTLE };
        Self { shown, change: None, earliest, heartbeat, is_offline: false }
    }

    /// No API server answers.
    pub(super) fn pause(&mut self) {
        self.change = None;
        self.is_offline = true;
    }

    /// The condition that the Node has.
    pub(super) fn shown(&self) -> Option<&FilterCondition> {
        self.shown.as_ref()
    }

    /// Whether this condition is to be written now. An API server answers.
    pub(super) fn is_due(&mut self, present: &FilterCondition) -> bool {
        let now = Instant::now();
        if std::mem::take(&mut self.is_offline) {
            self.earliest = now + SETTLE;
        }
        self.note(present, now);
        // A Node without a condition waits for none that is well.
        let is_first = self.shown.is_none() && present.status == "True";
        let is_written = match &self.change {
            Some((change, since)) => now.duration_since(*since) >= self.settling(change),
            None => now >= self.heartbeat,
        };
        now >= self.earliest && (is_first || is_written)
    }

    /// How long a change lasts before it is written.
    fn settling(&self, change: &FilterCondition) -> Duration {
        match &self.shown {
            Some(shown) if change.status == "True" && !shown.is_refused() => RECOVERY,
            _ => SETTLE,
        }
    }

    /// The condition was written.
    pub(super) fn written(&mut self, condition: FilterCondition) {
        let now = Instant::now();
        let heartbeat = now + jitter(HEARTBEAT);
        *self = Self { shown: Some(condition), change: None, earliest: now + SETTLE, heartbeat, is_offline: false };
    }

    fn note(&mut self, present: &FilterCondition, now: Instant) {
        if self.shown.as_ref() == Some(present) {
            self.change = None;
            return;
        }
        let is_other_status = self.shown.as_ref().is_none_or(|shown| shown.status != present.status);
        let since = match &self.change {
            // A fault that follows another one is no end of the fault. Of one status, only what stays the same is written.
            Some((change, since)) if change == present || (is_other_status && change.status == present.status) => {
                *since
            }
            _ => now,
        };
        self.change = Some((present.clone(), since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn condition(status: &str, message: &str) -> FilterCondition {
        FilterCondition { status: status.to_owned(), reason: "R".to_owned(), message: message.to_owned() }
    }

    fn well() -> FilterCondition {
        condition("True", "")
    }

    /// The schedule of a Node that has a condition for a while.
    async fn shown(condition: FilterCondition) -> ConditionSchedule {
        let mut schedule = ConditionSchedule::new(None, false);
        schedule.written(condition);
        tokio::time::advance(SETTLE).await;
        schedule
    }

    /// Shows a condition each second until it is written, and returns after how many seconds.
    async fn written(schedule: &mut ConditionSchedule, present: &FilterCondition) -> u64 {
        let began = Instant::now();
        while !schedule.is_due(present) {
            tokio::time::advance(SECOND).await;
        }
        schedule.written(present.clone());
        began.elapsed().as_secs()
    }

    /// What is written while these conditions take turns, each for so many seconds, until `time` is over.
    async fn written_of(
        schedule: &mut ConditionSchedule,
        turns: &[(FilterCondition, u64)],
        time: Duration,
    ) -> Vec<FilterCondition> {
        let (began, mut writes) = (Instant::now(), Vec::new());
        for (present, seconds) in turns.iter().cycle() {
            for _ in 0..*seconds {
                if began.elapsed() >= time {
                    return writes;
                }
                if schedule.is_due(present) {
                    schedule.written(present.clone());
                    writes.push(present.clone());
                }
                tokio::time::advance(SECOND).await;
            }
        }
        writes
    }

    /// The number of writes while these conditions take turns of equal length.
    async fn writes(
        schedule: &mut ConditionSchedule,
        turns: &[FilterCondition],
        seconds: u64,
        time: Duration,
    ) -> usize {
        let turns: Vec<_> = turns.iter().map(|turn| (turn.clone(), seconds)).collect();
        written_of(schedule, &turns, time).await.len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_written_after_it_has_lasted_and_its_end_after_a_longer_time() {
        let mut schedule = shown(well()).await;
        assert_eq!(written(&mut schedule, &condition("False", "a")).await, SETTLE.as_secs());
        assert_eq!(written(&mut schedule, &well()).await, RECOVERY.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_refusal_is_written_sooner() {
        let refused = FilterCondition { reason: "Refused".to_owned(), ..condition("False", "a") };
        let mut schedule = shown(refused).await;
        assert_eq!(written(&mut schedule, &well()).await, SETTLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_returns_every_few_minutes_stays() {
        let mut schedule = shown(well()).await;
        let (fault, other) = (condition("False", "a"), condition("False", "b"));
        let turns = [(fault.clone(), 60), (well(), RECOVERY.as_secs() - 10)];
        assert_eq!(written_of(&mut schedule, &turns, HEARTBEAT / 4).await, std::slice::from_ref(&fault));
        // Only heartbeats follow.
        let writes = written_of(&mut schedule, &turns, 10 * HEARTBEAT).await;
        assert!((8..=20).contains(&writes.len()) && writes.iter().all(|write| *write == fault), "{writes:?}");
        // Another fault ends the time without a fault, too, although it is over before it is written.
        let turns = [(other.clone(), 5), (well(), RECOVERY.as_secs() - 10)];
        assert!(!written_of(&mut schedule, &turns, HEARTBEAT).await.contains(&well()));
        assert!(!schedule.is_due(&other));
        assert_eq!(written(&mut schedule, &well()).await, RECOVERY.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_writes_no_change_that_has_not_lasted() {
        for (present, other) in [(well(), condition("False", "a")), (condition("False", "a"), condition("False", "b"))]
        {
            let mut schedule = shown(present.clone()).await;
            let turns = [(present.clone(), SETTLE.as_secs() - 1), (other, SETTLE.as_secs() - 1)];
            let writes = written_of(&mut schedule, &turns, 10 * HEARTBEAT).await;
            assert!((9..=20).contains(&writes.len()) && writes.iter().all(|write| *write == present), "{writes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_and_goes_is_not_written() {
        let mut schedule = shown(well()).await;
        let turns = [condition("False", "a"), well()];
        assert_eq!(writes(&mut schedule, &turns, SETTLE.as_secs() - 1, HEARTBEAT / 4).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_that_take_turns_are_one_write() {
        let mut schedule = shown(well()).await;
        let turns = [condition("False", "a"), condition("False", "b")];
        assert_eq!(writes(&mut schedule, &turns, 7, HEARTBEAT / 4).await, 1);
        assert_eq!(schedule.shown().unwrap().status, "False");
        let lasting = condition("False", "c");
        assert_eq!(written(&mut schedule, &lasting).await, SETTLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_condition_is_written_about_once_an_hour() {
        let mut schedule = shown(well()).await;
        let count = writes(&mut schedule, &[well()], 1, 10 * HEARTBEAT).await;
        assert!((10..=20).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn coming_back_is_one_write_at_most() {
        for (found, expected) in [(well(), 0), (condition("False", "a"), 1)] {
            let mut schedule = shown(well()).await;
            schedule.pause();
            tokio::time::advance(HEARTBEAT / 4).await;
            // Lookups are listed again.
            assert_eq!(writes(&mut schedule, &[condition("False", "lookups")], 20, 20 * SECOND).await, 0);
            assert_eq!(writes(&mut schedule, &[found], 1, HEARTBEAT / 8).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_that_fell_into_an_outage_takes_the_change_with_it() {
        for present in [well(), condition("False", "a")] {
            let mut schedule = shown(well()).await;
            schedule.pause();
            tokio::time::advance(2 * HEARTBEAT).await;
            assert_eq!(writes(&mut schedule, &[present], 1, HEARTBEAT / 4).await, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_a_condition_gets_one_at_once_if_all_is_well() {
        let mut schedule = ConditionSchedule::new(None, false);
        assert!(!schedule.is_due(&condition("False", "the filters are loading")));
        tokio::time::advance(SECOND).await;
        assert!(schedule.is_due(&well()));
        let mut schedule = ConditionSchedule::new(None, false);
        assert_eq!(written(&mut schedule, &condition("False", "a")).await, SETTLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_writes_nothing_if_the_node_has_the_condition() {
        let mut schedule = ConditionSchedule::new(Some(well()), true);
        let loading = condition("False", "the filters are loading");
        assert_eq!(writes(&mut schedule, std::slice::from_ref(&loading), 1, 20 * SECOND).await, 0);
        assert_eq!(writes(&mut schedule, &[well()], 1, HEARTBEAT / 4).await, 0);
        // Its heartbeat is old: it is written, but not while the filters are loading.
        let mut schedule = ConditionSchedule::new(Some(well()), false);
        assert_eq!(writes(&mut schedule, &[loading], 1, 20 * SECOND).await, 0);
        assert_eq!(writes(&mut schedule, &[well()], 1, HEARTBEAT / 4).await, 1);
        assert_eq!(schedule.shown(), Some(&well()));
    }
}
