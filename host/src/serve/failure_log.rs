//! The log lines of requests that fail: once a minute for each client and reason, with the number of those since, so that an
//! outage does not push the line that says how it began out of the log. The first line of each is kept for `/status`.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use weir_process::LogLimit;
use weir_upstream::clock;

/// How often a line is logged.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the first line of a reason is kept after the last request that failed for it.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The most reasons. Clients choose their names, and paths in errors.
const MAX_REASONS: usize = 256;
/// The most reasons that are shown: those that came first.
const SHOWN: usize = 32;
/// The longest text of an error that distinguishes reasons, and of a path.
const MAX_TEXT: usize = 512;

/// What has failed, and how often.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    reasons: Mutex<HashMap<Reason, Failures>>,
    /// Names that clients choose do not fill the log.
    lines: LogLimit,
}

/// The reasons why requests have failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Reason {
    component: String,
    /// The response; `None` if it had begun.
    code: Option<u16>,
    what: &'static str,
    error: String,
}

#[derive(Debug)]
struct Failures {
    first: SystemTime,
    /// The path of the first request.
    path: String,
    count: u64,
    last: Instant,
    logged: Option<Instant>,
    /// Those since the last line.
    unlogged: u64,
}

/// A reason, as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailureStatus {
    /// Since when.
    pub(crate) first: SystemTime,
    /// The client.
    pub(crate) component: String,
    /// The response; `None` if it had begun.
    pub(crate) code: Option<u16>,
    /// What failed.
    pub(crate) what: &'static str,
    /// The path of the first request.
    pub(crate) path: String,
    /// Why.
    pub(crate) error: String,
    /// How many requests.
    pub(crate) count: u64,
}

impl FailureLog {
    /// Notes that a request has failed, and logs it if that is due.
    pub(crate) fn warn(
        &self,
        what: &'static str,
        (path, component): (&dyn Display, &str),
        code: Option<u16>,
        error: &dyn Display,
    ) {
        let [error, path] = [error, path].map(|text| {
            let mut text = text.to_string();
            text.truncate(text.floor_char_boundary(MAX_TEXT));
            text
        });
        let reason = Reason { component: component.to_owned(), code, what, error: error.clone() };
        let Some((repeated, omitted)) = self.note(reason, &path) else { return };
        // Without a number there were no others.
        let [repeated, omitted] = [repeated, omitted].map(|count| (count > 0).then_some(count));
        tracing::warn!(%path, component, code, %error, repeated, omitted, "{what}");
    }

    /// Counts a failure. If it is to be logged, returns how many were not logged before it: of its reason, and for lack of room.
    fn note(&self, reason: Reason, path: &str) -> Option<(u64, u64)> {
        let now = Instant::now();
        let mut reasons = self.reasons();
        if let Some(found) = reasons.get_mut(&reason) {
            found.count += 1;
            found.last = now;
            let is_due = found.logged.is_none_or(|logged| now.duration_since(logged) >= PERIOD);
            let Some(omitted) = is_due.then(|| self.lines.permit()).flatten() else {
                found.unlogged += 1;
                return None;
            };
            found.logged = Some(now);
            return Some((std::mem::take(&mut found.unlogged), omitted));
        }
        if reasons.len() >= MAX_REASONS {
            reasons.retain(|_, found| now.duration_since(found.last) < KEPT);
        }
        if reasons.len() >= MAX_REASONS {
            // The newest go: how it began stays.
            let newest = reasons.iter().max_by_key(|(_, found)| found.first).map(|(reason, _)| reason.clone());
            newest.map(|newest| reasons.remove(&newest));
        }
        let (first, path) = (clock::now(), path.to_owned());
        let omitted = self.lines.permit();
        let (logged, unlogged) = (omitted.map(|_| now), u64::from(omitted.is_none()));
        reasons.insert(reason, Failures { first, path, count: 1, last: now, logged, unlogged });
        omitted.map(|omitted| (0, omitted))
    }

    /// The reasons of the last day, in the order in which they came.
    pub(crate) fn status(&self) -> Vec<FailureStatus> {
        let now = Instant::now();
        let reasons = self.reasons();
        let recent = reasons.iter().filter(|(_, found)| now.duration_since(found.last) < KEPT);
        let mut shown: Vec<_> = recent
            .map(|(reason, found)| FailureStatus {
                first: found.first,
                component: reason.component.clone(),
                code: reason.code,
                what: reason.what,
                path: found.path.clone(),
                error: reason.error.clone(),
                count: found.count,
            })
            .collect();
        drop(reasons);
        shown.sort_by_key(|found| found.first);
        shown.truncate(SHOWN);
        shown
    }

    fn reasons(&self) -> MutexGuard<'_, HashMap<Reason, Failures>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(component: &str, error: &str) -> Reason {
        Reason { component: component.to_owned(), code: Some(503), what: "failed", error: error.to_owned() }
    }

    #[test]
    fn a_reason_is_logged_once_a_minute_with_the_number_of_those_between() {
        let log = FailureLog::default();
        assert_eq!(log.note(reason("kubelet", "gone"), "/first"), Some((0, 0)));
        for _ in 0..1000 {
            assert_eq!(log.note(reason("kubelet", "gone"), "/later"), None);
        }
        assert_eq!(log.note(reason("kubelet", "other"), "/"), Some((0, 0)));
        assert_eq!(log.note(reason("kube-proxy", "gone"), "/"), Some((0, 0)));
        for found in log.reasons().values_mut() {
            found.logged = None;
        }
        assert_eq!(log.note(reason("kubelet", "gone"), "/later"), Some((1000, 0)));
        let shown = log.status();
        assert_eq!((shown[0].path.as_str(), shown[0].count), ("/first", 1002));
        assert_eq!(shown.len(), 3);
    }

    #[test]
    fn names_that_clients_choose_do_not_push_out_how_it_began() {
        let log = FailureLog::default();
        log.note(reason("kubelet", "gone"), "/first");
        for n in 0..2 * MAX_REASONS {
            let logged = log.note(reason(&n.to_string(), "gone"), "/");
            assert_eq!(logged.is_some(), n < 9, "they do not fill the log");
        }
        assert_eq!(log.reasons().len(), MAX_REASONS);
        assert_eq!((log.status().len(), log.status()[0].component.as_str()), (SHOWN, "kubelet"));
    }
}
