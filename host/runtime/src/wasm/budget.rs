//! The time of one call of a guest: counted in ticks, and charged at the end of each.

use std::thread::{self, ThreadId};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::engine::{Clock, TICK};

/// The remaining time of a call in ticks. The guest is charged for each tick that ends while it runs or during a host call, and no
/// more than its thread has run: on a busy node the system suspends a thread for many ticks, which is no fault of the filter.
#[derive(Debug)]
pub(super) struct Budget {
    clock: Clock,
    left: u64,
    /// The number of ticks that ended during host calls since the last charge.
    host: u64,
    /// At the last charge of this call. A call that yields may continue on another thread.
    charged: Option<CpuTime>,
}

/// How long a thread has run.
#[derive(Debug, Clone, Copy)]
struct CpuTime {
    thread: ThreadId,
    time: Duration,
}

impl Budget {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, left: 0, host: 0, charged: None }
    }

    /// Begins a call that may take this many ticks.
    pub(super) fn begin(&mut self, ticks: u64) {
        (self.left, self.host, self.charged) = (ticks, 0, None);
    }

    /// Runs a host call, and notes its ticks.
    pub(super) fn host_call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = self.clock.ticks();
        let result = call();
        self.host += self.clock.ticks().wrapping_sub(began);
        result
    }

    /// Charges the guest at the end of a tick. Returns false if its time is used up.
    pub(super) fn charge(&mut self) -> bool {
        self.charge_at(CpuTime::now())
    }

    /// A call's first charge is one tick, as are those of guest code: nothing says for how many of them the thread ran. Host calls are
    /// short, so that their time only counts where they are many, and charged again and again.
    fn charge_at(&mut self, now: CpuTime) -> bool {
        let ran = match self.charged.replace(now) {
            Some(last) if last.thread == now.thread => now.time.saturating_sub(last.time),
            _ => Duration::ZERO,
        };
        let ran = u64::try_from(ran.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX);
        let ticks = std::mem::take(&mut self.host).min(ran).max(1);
        match self.left.checked_sub(ticks) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

impl CpuTime {
    fn now() -> Self {
        let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        Self { thread: thread::current().id(), time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(ticks: u64) -> Budget {
        let mut budget = Budget::new(Clock::default());
        budget.begin(ticks);
        budget
    }

    /// How long this thread has run, in ticks.
    fn at(ticks: u32) -> CpuTime {
        CpuTime { thread: thread::current().id(), time: TICK * ticks }
    }

    #[test]
    fn the_ticks_of_host_calls_are_charged_as_far_as_the_thread_ran() {
        let mut budget = budget(10);
        assert!(budget.charge_at(at(100)));
        budget.host = 4;
        assert!(budget.charge_at(at(104)));
        assert_eq!(budget.left, 5);
        // The system suspended the thread for the rest.
        budget.host = 50;
        assert!(budget.charge_at(at(106)));
        assert_eq!(budget.left, 3);
        budget.host = 4;
        assert!(!budget.charge_at(at(110)), "used up");
    }

    #[test]
    fn guest_code_is_charged_one_tick_each_time() {
        let mut budget = budget(2);
        assert!(budget.charge_at(at(100)) && budget.charge_at(at(100)));
        assert!(!budget.charge_at(at(100)));
    }

    #[test]
    fn another_thread_or_call_begins_at_one_tick() {
        let mut budget = budget(10);
        assert!(budget.charge_at(at(100)));
        budget.host = 50;
        let other = thread::spawn(|| at(900)).join().unwrap();
        assert!(budget.charge_at(other));
        assert_eq!(budget.left, 8);
        budget.begin(3);
        budget.host = 50;
        assert!(budget.charge_at(at(900)));
        assert_eq!(budget.left, 2);
    }
}
