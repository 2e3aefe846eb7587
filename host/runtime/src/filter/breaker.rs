//! Stops calling a module that fails again and again: every call of it would cost its whole time budget.
//!
//! Only faults of the module count (traps, time, memory, …), not its refusals of single objects and not unreadable
//! objects: one odd object must not switch a filter off for all others. After [`FAULTS`] in a row the breaker is open
//! for one second, then twice as long each time up to a minute; when a pause is over one batch tries the module again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::FailureClass;

/// Faults in a row that open the breaker.
const FAULTS: u32 = 5;
/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The breaker of one filter.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: u32,
    openings: u32,
    open_until: Option<Instant>,
}

/// What the breaker did because of a call's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing changed.
    None,
    /// It opened, for this long.
    Opened(Duration),
    /// It closed: the module works again.
    Closed,
}

impl Breaker {
    /// Whether the module must not be called now.
    pub(super) fn is_open(&self) -> bool {
        self.lock().open_until.is_some_and(|until| Instant::now() < until)
    }

    /// A call came to an answer.
    pub(super) fn answered(&self) -> Turn {
        let mut state = self.lock();
        state.faults = 0;
        state.openings = 0;
        if state.open_until.take().is_some() { Turn::Closed } else { Turn::None }
    }

    /// A call failed.
    pub(super) fn failed(&self, class: FailureClass) -> Turn {
        if matches!(class, FailureClass::Refused | FailureClass::Document | FailureClass::BreakerOpen) {
            return Turn::None;
        }
        let mut state = self.lock();
        state.faults += 1;
        // After a pause the first fault opens it again.
        if state.faults < FAULTS && state.open_until.is_none() {
            return Turn::None;
        }
        let pause = FIRST.saturating_mul(1 << state.openings.min(10)).min(LONGEST);
        state.faults = 0;
        state.openings = state.openings.saturating_add(1);
        state.open_until = Instant::now().checked_add(pause);
        Turn::Opened(pause)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn opens_after_faults_in_a_row_and_backs_off() {
        let breaker = Breaker::default();
        for _ in 1..FAULTS {
            assert_eq!(breaker.failed(FailureClass::Time), Turn::None);
        }
        assert_eq!(breaker.failed(FailureClass::Trap), Turn::Opened(FIRST));
        assert!(breaker.is_open());
        tokio::time::advance(FIRST).await;
        assert!(!breaker.is_open());
        assert_eq!(breaker.failed(FailureClass::Trap), Turn::Opened(2 * FIRST), "one fault after a pause is enough");
        tokio::time::advance(2 * FIRST).await;
        assert_eq!(breaker.answered(), Turn::Closed);
        assert_eq!(breaker.failed(FailureClass::Trap), Turn::None, "an answer begins the count anew");
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_and_bad_objects_do_not_count() {
        let breaker = Breaker::default();
        for _ in 0..100 {
            assert_eq!(breaker.failed(FailureClass::Refused), Turn::None);
            assert_eq!(breaker.failed(FailureClass::Document), Turn::None);
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_never_exceed_the_longest() {
        let breaker = Breaker::default();
        let mut last = Duration::ZERO;
        for _ in 0..64 {
            if let Turn::Opened(pause) = breaker.failed(FailureClass::Memory) {
                last = pause;
                tokio::time::advance(pause).await;
            }
        }
        assert_eq!(last, LONGEST);
    }
}
