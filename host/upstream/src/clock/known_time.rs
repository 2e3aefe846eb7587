//! Decides which of the times that API servers report Weir accepts. No I/O, and time is injected.
//!
//! Times come from Weir's own probes alone (`upstream/time.rs`). A time is accepted at once if the server's certificate on the
//! same connection is valid then, and if it is not before the known time. It may jump by any amount, because a machine without
//! a clock starts in 1970. Any other time needs a second witness: another server, the same one minutes later, or the machine's
//! clock.
//!
//! Memory: one entry for each API server.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Times that differ by this much agree: a `Date` has whole seconds, and takes its time on a slow link.
const TOLERANCE: Duration = Duration::from_secs(30);
/// How far apart two answers of one server are that count as two.
pub(super) const APART: Duration = Duration::from_secs(120);
/// The interval of requests while all servers agree.
const INTERVAL: Duration = Duration::from_secs(600);
/// The interval of requests until a server reports a time.
const RETRY: Duration = Duration::from_secs(10);

/// What Weir knows of the time of day.
#[derive(Debug, Default)]
pub(super) struct KnownTime {
    /// Of a former process.
    restored: Option<Running>,
    reported: Option<AcceptedTime>,
    /// Reported times that are not accepted yet.
    pending: Vec<PendingTime>,
    asked: Option<Instant>,
}

/// A moment, by the clock that never jumps and by that of the machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) machine: SystemTime,
}

/// A time that was right at a moment, if it ever was.
#[derive(Debug, Clone, Copy)]
struct Running {
    time: SystemTime,
    at: Instant,
}

#[derive(Debug)]
struct AcceptedTime {
    time: Running,
    /// The server that reported it first, and when.
    server: Arc<str>,
    since: Instant,
    /// Whether a second witness agrees.
    is_agreed: bool,
}

#[derive(Debug)]
struct PendingTime {
    time: Running,
    server: Arc<str>,
}

/// The result of a time that a server reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeReport {
    /// It is the known time.
    Known,
    /// It is accepted.
    Accepted,
    /// It waits for a second witness.
    Pending,
    /// It waits for a second witness, and this server has reported it before.
    PendingAgain,
}

impl KnownTime {
    /// Takes a time that a former process knew.
    pub(super) fn restore(&mut self, time: SystemTime, now: Moment) {
        self.restored.get_or_insert(Running { time, at: now.instant });
    }

    /// Returns the known time: a reported one, or else that of a former process.
    pub(super) fn time(&self, now: Moment) -> Option<SystemTime> {
        self.reported.as_ref().map(|reported| reported.time).or(self.restored).map(|time| time.now(now))
    }

    /// Returns the accepted time of a server.
    pub(super) fn reported(&self, now: Moment) -> Option<SystemTime> {
        self.reported.as_ref().map(|reported| reported.time.now(now))
    }

    /// Returns the accepted time of a server if a second witness agrees.
    pub(super) fn agreed(&self, now: Moment) -> Option<SystemTime> {
        self.reported.as_ref().filter(|reported| reported.is_agreed).map(|reported| reported.time.now(now))
    }

    /// Whether a server is to be asked now. The caller asks one.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        let interval = match &self.reported {
            None if self.pending.is_empty() => RETRY,
            Some(reported) if reported.is_agreed && self.pending.is_empty() => INTERVAL,
            _ => APART,
        };
        let is_due = self.asked.is_none_or(|asked| now.since(asked) >= interval);
        if is_due {
            self.asked = Some(now.instant);
        }
        is_due
    }

    /// Whether only a certificate that is valid at a time can confirm it.
    pub(super) fn needs_certificate(&self, time: SystemTime, now: Moment) -> bool {
        let is_known = self.reported(now).is_some_and(|known| agree(known, time));
        !is_known && self.is_not_before(time, now) && !agree(now.machine, time)
    }

    /// Takes a time that a server reported. `is_certified`: its certificate is valid then.
    pub(super) fn report(
        &mut self,
        time: SystemTime,
        server: &Arc<str>,
        is_certified: bool,
        now: Moment,
    ) -> TimeReport {
        let running = Running { time, at: now.instant };
        if let Some(known) = self.reported.as_mut().filter(|known| agree(known.time.now(now), time)) {
            known.is_agreed |= known.server != *server || now.since(known.since) >= APART || agree(now.machine, time);
            known.time = running;
            self.pending.retain(|entry| entry.server != *server);
            return TimeReport::Known;
        }
        let is_not_before = self.is_not_before(time, now);
        let is_second = self.pending.iter().any(|entry| {
            let is_other = entry.server != *server || now.since(entry.time.at) >= APART;
            is_other && agree(entry.time.now(now), time)
        });
        let is_agreed = is_second || (is_not_before && agree(now.machine, time));
        if is_agreed || (is_certified && is_not_before) {
            self.pending.clear();
            self.reported = Some(AcceptedTime { time: running, server: server.clone(), since: now.instant, is_agreed });
            return TimeReport::Accepted;
        }
        if self.pending.iter().any(|entry| entry.server == *server && agree(entry.time.now(now), time)) {
            return TimeReport::PendingAgain;
        }
        self.pending.retain(|entry| entry.server != *server);
        self.pending.push(PendingTime { time: running, server: server.clone() });
        TimeReport::Pending
    }

    fn is_not_before(&self, time: SystemTime, now: Moment) -> bool {
        self.time(now).is_none_or(|known| time.checked_add(TOLERANCE).is_none_or(|time| time >= known))
    }
}

impl Running {
    fn now(&self, now: Moment) -> SystemTime {
        self.time.checked_add(now.since(self.at)).unwrap_or(self.time)
    }
}

impl Moment {
    fn since(self, earlier: Instant) -> Duration {
        self.instant.saturating_duration_since(earlier)
    }
}

/// Whether two times agree within the precision of a `Date` header.
pub(super) fn agree(one: SystemTime, other: SystemTime) -> bool {
    one.duration_since(other).unwrap_or_else(|error| error.duration()) <= TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    const SECOND: Duration = Duration::from_secs(1);

    /// A machine whose clock runs, and two servers.
    struct World {
        known: KnownTime,
        start: Instant,
        passed: Duration,
        machine: SystemTime,
        one: Arc<str>,
        two: Arc<str>,
    }

    /// The right time at the start.
    fn right() -> SystemTime {
        SystemTime::UNIX_EPOCH + 50 * YEAR
    }

    impl World {
        fn new(machine: SystemTime) -> Self {
            let (start, passed) = (Instant::now(), Duration::ZERO);
            Self { known: KnownTime::default(), start, passed, machine, one: "one".into(), two: "two".into() }
        }

        fn now(&self) -> Moment {
            Moment { instant: self.start + self.passed, machine: self.machine + self.passed }
        }

        fn report(&mut self, server: u8, ahead: Duration, is_certified: bool) -> TimeReport {
            let server = if server == 1 { self.one.clone() } else { self.two.clone() };
            let time = right() + self.passed + ahead;
            self.known.report(time, &server, is_certified, self.now())
        }

        fn reported_ahead(&self) -> Option<Duration> {
            self.known.reported(self.now()).map(|time| time.duration_since(right() + self.passed).unwrap())
        }
    }

    #[test]
    fn a_machine_in_1970_believes_the_first_server_with_a_certificate_of_that_time() {
        let mut world = World::new(SystemTime::UNIX_EPOCH);
        assert!(world.known.needs_certificate(right(), world.now()));
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Accepted);
        assert_eq!((world.reported_ahead(), world.known.agreed(world.now())), (Some(Duration::ZERO), None));
        world.passed += APART;
        assert_eq!(world.report(1, SECOND, true), TimeReport::Known);
        assert!(world.known.agreed(world.now()).is_some(), "minutes later it says the same");
    }

    #[test]
    fn a_time_that_the_machine_confirms_is_agreed_at_once_and_needs_no_certificate() {
        let mut world = World::new(right());
        assert!(!world.known.needs_certificate(right(), world.now()));
        assert_eq!(world.report(1, Duration::ZERO, false), TimeReport::Accepted);
        assert!(world.known.agreed(world.now()).is_some());
    }

    #[test]
    fn a_time_outside_the_certificate_needs_a_second_witness() {
        for second in [1, 2] {
            let mut world = World::new(right());
            world.report(1, Duration::ZERO, true);
            assert_eq!(world.report(1, 73 * YEAR, false), TimeReport::Pending);
            assert_eq!(world.report(1, 73 * YEAR, false), TimeReport::PendingAgain, "it is the same witness");
            assert_eq!(world.reported_ahead(), Some(Duration::ZERO));
            if second == 1 {
                world.passed += APART;
            }
            assert_eq!(world.report(second, 73 * YEAR, false), TimeReport::Accepted);
            assert_eq!(world.reported_ahead(), Some(73 * YEAR));
            assert!(world.known.agreed(world.now()).is_some());
        }
    }

    #[test]
    fn a_single_answer_forwards_is_believed_within_the_certificate_and_taken_back_by_two() {
        let mut world = World::new(right());
        world.report(1, Duration::ZERO, true);
        world.passed += APART;
        assert_eq!(world.report(1, YEAR, true), TimeReport::Accepted);
        assert_eq!(world.known.agreed(world.now()), None, "nothing is deleted by it");
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Pending, "backwards");
        assert_eq!(world.reported_ahead(), Some(YEAR));
        world.passed += APART;
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Accepted);
        assert_eq!(world.reported_ahead(), Some(Duration::ZERO));
    }

    #[test]
    fn a_time_before_that_of_the_file_needs_a_second_witness() {
        let mut world = World::new(right());
        world.known.restore(right() + 73 * YEAR, world.now());
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Pending);
        assert_eq!(world.report(2, Duration::ZERO, true), TimeReport::Accepted);
        assert_eq!(world.known.time(world.now()), Some(right()));
    }

    #[test]
    fn a_server_whose_clock_is_wrong_does_not_stop_the_others() {
        let mut world = World::new(SystemTime::UNIX_EPOCH);
        world.known.restore(right() + YEAR, world.now());
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Pending);
        assert_eq!(world.report(2, SECOND * 3600, true), TimeReport::Pending);
        world.passed += APART;
        assert_eq!(world.report(1, Duration::ZERO, true), TimeReport::Accepted);
    }

    #[test]
    fn servers_are_asked_soon_until_a_time_is_agreed_on() {
        let mut world = World::new(SystemTime::UNIX_EPOCH);
        let next = |world: &mut World| {
            assert!(world.known.is_due(world.now()));
            let before = world.passed;
            while !world.known.is_due(world.now()) {
                world.passed += SECOND;
            }
            world.known.asked = None;
            world.passed - before
        };
        assert_eq!(next(&mut world), RETRY);
        world.report(1, Duration::ZERO, true);
        assert_eq!(next(&mut world), APART);
        world.passed += APART;
        world.report(1, Duration::ZERO, true);
        assert_eq!(next(&mut world), INTERVAL);
        world.report(1, YEAR, false);
        assert_eq!(next(&mut world), APART);
    }
}
