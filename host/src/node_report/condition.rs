//! The condition `WeirFiltersReady` of the Node, as the verdict of [`crate::admin`] gives it: True while nothing is wrong.
//!
//! Each write of a Node goes to all clients that watch Nodes, so the condition has nothing that changes while the fault stays
//! the same: no numbers and no last errors, but the names of faults, and of the filters and lookups that they are about.

use std::collections::BTreeSet;

use super::event_log::note_of;
use crate::admin::{NodeHealth, Verdict};

/// The most filters, lookups or resources that a fault names.
const MAX_SUBJECTS: usize = 8;

/// The state that the condition shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterCondition {
    pub(crate) status: String,
    /// `FiltersActive`, `NotReady`, or the name of the worst fault.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl FilterCondition {
    /// The condition of a verdict; `None` while no API server answers that could take it.
    pub(crate) fn of(verdict: &Verdict) -> Option<Self> {
        let (status, reason, message) = match (verdict.state, &verdict.not_ready) {
            (NodeHealth::Offline, _) => return None,
            (NodeHealth::NotReady, reason) => {
                let missing = reason.as_ref().map(|reason| reason.missing.as_str()).unwrap_or_default();
                ("False", "NotReady".to_owned(), format!("requests that a filter may match get 503: {missing}"))
            }
            (NodeHealth::Ready, _) => (
                "True",
                "FiltersActive".to_owned(),
                "the newest configuration is active, and nothing is wrong".to_owned(),
            ),
            (NodeHealth::Degraded, _) => {
                let faults = faults(verdict);
                let worst = faults.first().map(|(name, _)| camel_case(name)).unwrap_or_default();
                let named: Vec<_> = faults.iter().map(|(name, subjects)| fault(name, subjects)).collect();
                ("False", worst, format!("{}; see weir status on the node", named.join(", ")))
            }
        };
        Some(Self { status: status.to_owned(), reason, message: note_of(&message) })
    }
}

/// Each fault once, the worst first, with all that it is about.
fn faults(verdict: &Verdict) -> Vec<(&'static str, BTreeSet<&str>)> {
    let mut faults: Vec<(&'static str, BTreeSet<&str>)> = Vec::new();
    for notice in verdict.notices.iter().filter(|notice| !notice.is_remark()) {
        let subjects = notice.subjects.iter().map(String::as_str);
        match faults.iter_mut().find(|(name, _)| *name == notice.name) {
            Some((_, known)) => known.extend(subjects),
            None => faults.push((notice.name, subjects.collect())),
        }
    }
    faults
}

fn fault(name: &str, subjects: &BTreeSet<&str>) -> String {
    if subjects.is_empty() {
        return name.to_owned();
    }
    let named: Vec<_> = subjects.iter().copied().take(MAX_SUBJECTS).collect();
    let more = if subjects.len() > MAX_SUBJECTS { ", …" } else { "" };
    format!("{name} ({}{more})", named.join(", "))
}

/// `failing-lookups` as `FailingLookups`, the form of reasons.
fn camel_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(word).collect()
}
