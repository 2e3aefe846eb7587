//! The condition `WeirFiltersReady` of the Node, as the health of [`crate::admin`] gives it: True while nothing is wrong.
//!
//! Each write of a Node goes to all clients that watch Nodes, so the condition has nothing that changes while the fault stays
//! the same: no numbers and no errors, but the names of faults, and of the filters and lookups that they are about. Its
//! message has at most [`MAX_NOTE`] bytes.

use std::collections::BTreeSet;

use weir_process::one_line;

use super::event_log::{MAX_NOTE, note_of};
use crate::admin::status::Missing;
use crate::admin::{HealthReport, NodeHealth};

/// The most filters, lookups or resources that a fault names.
const MAX_SUBJECTS: usize = 8;
/// The longest name of one of them, in bytes: a source may be a long path.
const MAX_SUBJECT: usize = 100;
/// Where the reasons are.
const HINT: &str = "see weir status on the node";
/// The reason while the newest configuration is refused.
const REFUSED: &str = "Refused";

/// The state that the condition shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterCondition {
    pub(crate) status: String,
    /// `FiltersActive`, `NotReady`, or the name of the worst fault.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl FilterCondition {
    /// The condition that shows this health; `None` while no API server answers that could take it.
    pub(crate) fn of(health: &HealthReport) -> Option<Self> {
        let (status, reason, message) = match (health.state, &health.not_ready) {
            (NodeHealth::Offline, _) => return None,
            (NodeHealth::NotReady, reason) => {
                let missing = reason.as_ref().map(|reason| &reason.missing);
                let subjects = missing.map(Missing::subjects).unwrap_or_default();
                let subjects = subjects.iter().map(String::as_str).collect();
                let missing: Vec<_> = missing.map(|missing| (missing.name(), subjects)).into_iter().collect();
                ("False", "NotReady".to_owned(), message("requests that a filter may match get 503: ", &missing))
            }
            (NodeHealth::Ready, _) => (
                "True",
                "FiltersActive".to_owned(),
                "the newest configuration is active, and nothing is wrong".to_owned(),
            ),
            (NodeHealth::Degraded, _) => {
                let faults = faults(health);
                let worst = faults.first().map(|(name, _)| camel_case(name)).unwrap_or_default();
                ("False", worst, message("", &faults))
            }
        };
        Some(Self { status: status.to_owned(), reason, message: note_of(&message) })
    }

    /// Whether the newest configuration is refused.
    pub(super) fn is_refused(&self) -> bool {
        self.reason == REFUSED
    }
}

/// What is wrong, with as many subjects of each fault as there is room for: no fault and no hint is lost.
fn message(start: &str, faults: &[(&str, BTreeSet<&str>)]) -> String {
    let with = |most: usize| {
        let named: Vec<_> = faults.iter().map(|(name, subjects)| fault(name, subjects, most)).collect();
        format!("{start}{}; {HINT}", named.join(", "))
    };
    (1..=MAX_SUBJECTS).rev().map(with).find(|message| message.len() <= MAX_NOTE).unwrap_or_else(|| with(0))
}

/// Each fault once, the worst first, with all that it is about.
fn faults(health: &HealthReport) -> Vec<(&'static str, BTreeSet<&str>)> {
    let mut faults: Vec<(&'static str, BTreeSet<&str>)> = Vec::new();
    for notice in health.notices.iter().filter(|notice| !notice.is_remark()) {
        let subjects = notice.subjects.iter().map(String::as_str);
        match faults.iter_mut().find(|(name, _)| *name == notice.name) {
            Some((_, known)) => known.extend(subjects),
            None => faults.push((notice.name, subjects.collect())),
        }
    }
    faults
}

/// A fault, with so many of its subjects at most.
fn fault(name: &str, subjects: &BTreeSet<&str>, most: usize) -> String {
    if subjects.is_empty() {
        return name.to_owned();
    }
    let named = subjects.iter().take(most).map(|subject| one_line(subject, MAX_SUBJECT));
    let more = (subjects.len() > most).then(|| "…".to_owned());
    format!("{name} ({})", named.chain(more).collect::<Vec<_>>().join(", "))
}

/// `failing-lookups` as `FailingLookups`, the form of reasons.
fn camel_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(word).collect()
}
