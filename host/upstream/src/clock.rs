//! The time of day, as far as Weir knows it.
//!
//! Small devices have no clock of their own: after a power cut it may be 1970. The API server tells the time with each
//! response. The latest such time, and what has passed since, is a lower bound for [`now`]. It outlives the process in a
//! file, because a node may start without the API server.
//!
//! The time of the machine's clock is never kept. So a clock that was years ahead does no harm once it is set.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, header};
use jiff::fmt::rfc2822::DateTimeParser;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// How often a response is asked for the time.
const INTERVAL: Duration = Duration::from_secs(10);

/// The process has one clock, as the machine has.
static KNOWN: Mutex<Option<KnownTime>> = Mutex::new(None);

/// A time that was known at a moment.
#[derive(Debug, Clone, Copy)]
struct KnownTime {
    time: SystemTime,
    at: Instant,
    /// Whether the API server has told it, and not the file.
    is_confirmed: bool,
}

/// The time of day: that of the machine's clock, or the one that Weir knows, whichever is later.
#[must_use]
pub fn now() -> SystemTime {
    let machine = machine_time();
    known().map_or(machine, |known| known.time_now().max(machine))
}

/// The same as a timestamp.
#[must_use]
pub fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(now()).unwrap_or(jiff::Timestamp::MAX)
}

/// Takes a time that a former process knew.
pub fn restore(time: SystemTime) {
    let mut known = known();
    if known.is_none() {
        *known = Some(KnownTime { time, at: Instant::now(), is_confirmed: false });
    }
}

/// The time that the API server has told, and what has passed since; `None` if it has not told any.
#[must_use]
pub fn confirmed() -> Option<SystemTime> {
    known().filter(|known| known.is_confirmed).map(|known| known.time_now())
}

/// Takes the time from the head of a response of the API server.
pub(crate) fn observe(headers: &HeaderMap) {
    let mut known = known();
    if known.is_some_and(|known| known.is_confirmed && known.at.elapsed() < INTERVAL) {
        return;
    }
    if let Some(time) = date(headers) {
        *known = Some(KnownTime { time, at: Instant::now(), is_confirmed: true });
    }
}

fn date(headers: &HeaderMap) -> Option<SystemTime> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let text = headers.get(header::DATE)?.to_str().ok()?;
    Some(PARSER.parse_timestamp(text).ok()?.into())
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn machine_time() -> SystemTime {
    SystemTime::now()
}

fn known() -> MutexGuard<'static, Option<KnownTime>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KnownTime {
    fn time_now(&self) -> SystemTime {
        self.time.checked_add(self.at.elapsed()).unwrap_or(self.time)
    }
}

/// Verifies certificates by [`now`].
#[derive(Debug)]
pub struct CertificateClock;

impl TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        now().duration_since(SystemTime::UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the clock belongs to the process.
    #[test]
    fn the_api_servers_time_is_a_lower_bound_and_replaces_that_of_the_file() {
        let (before, hour) = (machine_time(), Duration::from_secs(3600));
        restore(before - hour);
        assert!(now() < before + hour && confirmed().is_none(), "the machine's clock is later");
        let later = jiff::Timestamp::try_from(before + hour).unwrap();
        let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&later).unwrap();
        observe(&HeaderMap::from_iter([(header::DATE, text.parse().unwrap())]));
        assert!(now() >= before + hour - Duration::from_secs(1) && confirmed().is_some());
        restore(before + 2 * hour);
        assert!(now() < before + 2 * hour, "what the API server says is newer than the file");
        assert_eq!(date(&HeaderMap::from_iter([(header::DATE, "soon".parse().unwrap())])), None);
        assert!(CertificateClock.current_time().is_some());
    }
}
