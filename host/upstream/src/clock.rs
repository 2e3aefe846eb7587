//! The time of day, as far as Weir knows it.
//!
//! Small devices have no clock of their own: after a power cut it may be 1970. The API server reports the time with each
//! response to a probe of Weir's own. Responses to clients do not count: a client that may use `pods/proxy` chooses their
//! headers. [`known_time`] decides which times are accepted. The latest one, plus the time since, is a lower bound for [`now`].
//! A file keeps it across restarts, because a node may start without the API server. That file alone never makes a certificate
//! expired, and a time from a single response never deletes anything on disk: see [`agreed`].
//!
//! The time of the machine's clock is never saved. So a clock that was years ahead does no harm once it is set.

mod known_time;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, header};
use jiff::fmt::rfc2822::DateTimeParser;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

pub(crate) use self::known_time::TimeReport;
use self::known_time::{KnownTime, Moment};

/// The process has one clock, as the machine has.
static KNOWN: Mutex<Option<KnownTime>> = Mutex::new(None);

/// The time of day: that of the machine's clock, or the one that Weir knows, whichever is later.
#[must_use]
pub fn now() -> SystemTime {
    let now = moment();
    with_known(|known| known.time(now)).map_or(now.machine, |known| known.max(now.machine))
}

/// Returns [`now`] as a timestamp.
#[must_use]
pub fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(now()).unwrap_or(jiff::Timestamp::MAX)
}

/// Takes a time that a former process knew.
pub fn restore(time: SystemTime) {
    with_known(|known| known.restore(time, moment()));
}

/// The time that two witnesses agree on, and what has passed since; `None` if they do not. Witnesses are API servers, one of
/// them minutes apart, and the machine's clock.
#[must_use]
pub fn agreed() -> Option<SystemTime> {
    with_known(|known| known.agreed(moment()))
}

/// A time at which to verify a certificate again that seemed to have expired: the file alone says so, and the machine's clock
/// does not. `None`: it has expired, or something else is wrong with it.
#[must_use]
pub fn despite_file(error: &rustls::Error) -> Option<UnixTime> {
    let rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) = error else {
        return None;
    };
    let now = moment();
    let is_reported = with_known(|known| known.reported(now).is_some());
    (!is_reported && unix_time(now.machine) <= *not_after).then_some(*not_after)
}

/// Whether a server is to be asked for the time now. The caller asks one.
pub(crate) fn is_due() -> bool {
    with_known(|known| known.is_due(moment()))
}

/// Whether only a server's certificate can confirm the time that it reports.
pub(crate) fn needs_certificate(time: SystemTime) -> bool {
    with_known(|known| known.needs_certificate(time, moment()))
}

/// Takes the time that a server reported to a probe. `is_certified`: its certificate is valid then.
pub(crate) fn report(time: SystemTime, server: &Arc<str>, is_certified: bool) -> TimeReport {
    with_known(|known| known.report(time, server, is_certified, moment()))
}

/// Whether two times agree within the precision of a `Date` header.
pub(crate) fn agree(one: SystemTime, other: SystemTime) -> bool {
    known_time::agree(one, other)
}

/// The `Date` of a response.
pub(crate) fn date(headers: &HeaderMap) -> Option<SystemTime> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let text = headers.get(header::DATE)?.to_str().ok()?;
    Some(PARSER.parse_timestamp(text).ok()?.into())
}

fn moment() -> Moment {
    Moment { instant: Instant::now(), machine: machine_time() }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn machine_time() -> SystemTime {
    SystemTime::now()
}

fn with_known<T>(use_it: impl FnOnce(&mut KnownTime) -> T) -> T {
    let mut known: MutexGuard<'_, Option<KnownTime>> = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(known.get_or_insert_default())
}

/// The time as certificates have it.
pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

/// Verifies certificates by [`now`].
#[derive(Debug)]
pub struct CertificateClock;

impl TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(now()))
    }
}

/// Verifies certificates by one time.
#[derive(Debug)]
pub(crate) struct CertificateTime(pub(crate) UnixTime);

impl TimeProvider for CertificateTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the clock belongs to the process.
    #[test]
    fn the_reported_time_is_a_lower_bound_and_the_file_alone_ends_no_certificate() {
        let (before, year) = (machine_time(), Duration::from_secs(365 * 24 * 3600));
        let expired = |not_after| {
            let time = unix_time(now());
            rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })
        };
        restore(before + 9 * year);
        assert!(now() >= before + 9 * year && agreed().is_none());
        let soon = unix_time(before + year);
        assert_eq!(despite_file(&expired(soon)), Some(soon));
        assert_eq!(despite_file(&expired(unix_time(before - year))), None, "the machine says so, too");
        assert_eq!(despite_file(&rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)), None);

        let server: Arc<str> = "server".into();
        assert_eq!(report(before + 10 * year, &server, true), TimeReport::Accepted);
        assert!(now() >= before + 10 * year && agreed().is_none(), "one response reported it");
        assert_eq!(despite_file(&expired(soon)), None, "a server says so");
        assert_eq!(date(&HeaderMap::from_iter([(header::DATE, "soon".parse().unwrap())])), None);
        let text = "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap();
        assert!(date(&HeaderMap::from_iter([(header::DATE, text)])).is_some());
        assert!(CertificateClock.current_time().is_some());
    }
}
