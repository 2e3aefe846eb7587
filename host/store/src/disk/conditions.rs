//! What is wrong with the cache on disk, in lines for an operator.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use super::aside::Aside;
use super::reading::lock;
use super::state::DiskState;

/// The reasons for which files are set aside.
const ASIDE: [&str; 4] = ["node", "cluster", "format", "damaged"];

/// A condition of the cache on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCondition {
    /// Its name: `disk`, `slow-disk`, `set-aside` or `cache-key`.
    pub name: &'static str,
    /// One line that says what it means, and what to do.
    pub text: String,
}

impl DiskCondition {
    /// Each condition of a file once, so that a test can compare the documentation with their texts.
    #[doc(hidden)]
    #[must_use]
    pub fn samples() -> Vec<Self> {
        let reasons = ["full", "read_only", "io", "locked", "key"].into_iter().chain(ASIDE);
        let conditions = reasons.filter_map(|reason| condition(("/cache", "/key"), "/cache", reason));
        conditions.chain([slow_disk("/cache", format_args!("now"), Duration::ZERO, Duration::ZERO)]).collect()
    }
}

/// The present conditions, for those who do not wait for the file.
#[derive(Debug, Default)]
pub(super) struct Conditions(Mutex<Vec<DiskCondition>>);

impl Conditions {
    pub(super) fn get(&self) -> Vec<DiskCondition> {
        lock(&self.0).clone()
    }

    /// Takes what was reported since the file has last worked, and what is set aside now.
    pub(super) fn update(&self, state: &DiskState) {
        let file = state.config.file_name();
        let is_now = |reason: &str| !(ASIDE.contains(&reason) || (reason == "key" && state.key.is_some()));
        let reported = state.reported.iter().filter(|(_, reason)| is_now(reason));
        let key = state.config.key_file.path().display().to_string();
        let mut found: Vec<_> =
            reported.filter_map(|(thing, reason)| condition((&file, &key), thing, reason)).collect();
        let aside = Aside::of(&state.config.path).files();
        found.extend(aside.iter().filter_map(|aside| condition((&file, &key), &file, aside.reason)));
        found.sort_by(|one, other| (one.name, &one.text).cmp(&(other.name, &other.text)));
        found.dedup();
        *lock(&self.0) = found;
    }
}

/// What a reported error says of the whole file; `None` if it is of one store.
fn condition((file, key): (&str, &str), thing: &str, reason: &str) -> Option<DiskCondition> {
    let is_file = thing == file;
    let aside = |of: &str| {
        format!(
            "{file} was of another {of}, it is kept as {file}.{reason}: it is used again when it fits, and removed after a day online"
        )
    };
    let (name, text) = match reason {
        "key" => (
            "cache-key",
            format!(
                "the encryption key {key} of the cache cannot be used, Secrets are not kept: restore it (--cache-key-file, --cache-key-dir), see the log"
            ),
        ),
        "full" if is_file => (
            "disk",
            format!("the disk of {file} is full: what is on it is read, changes are in memory only; make room"),
        ),
        "read_only" if is_file => (
            "disk",
            format!(
                "{file} cannot be written: what is on it is read, changes are in memory only; check its mount and its owner"
            ),
        ),
        "io" if is_file => (
            "disk",
            format!(
                "input or output fails on the disk of {file}: what can be is read, changes are in memory only; check the disk"
            ),
        ),
        "locked" if is_file => {
            ("disk", format!("another process has {file} open, nothing of it is used: end that process"))
        }
        "damaged" if is_file => (
            "set-aside",
            format!(
                "{file} was damaged: what was whole is in use, the damaged file is kept as {file}.damaged and removed after a day online"
            ),
        ),
        "node" if is_file => ("set-aside", aside("node")),
        "cluster" if is_file => ("set-aside", aside("cluster")),
        "format" if is_file => ("set-aside", aside("release")),
        _ => return None,
    };
    Some(DiskCondition { name, text })
}

/// The disk of a file is slow since a time: each commit takes longer than the limit.
pub(super) fn slow_disk(file: &str, since: fmt::Arguments<'_>, limit: Duration, last: Duration) -> DiskCondition {
    let text = format!(
        "the disk of {file} is slow since {since}: each commit takes longer than {limit:?}, the last one {:.1} s, and a power cut loses what waits; check the disk and what else writes to it, or move --cache-dir",
        last.as_secs_f64(),
    );
    DiskCondition { name: "slow-disk", text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_of_the_file_is_shown_in_one_line_each() {
        let shown = |thing: &str, reason| condition(("/cache", "/own.key"), thing, reason);
        for (reason, name, words) in [
            ("full", "disk", "is full"),
            ("read_only", "disk", "cannot be written"),
            ("io", "disk", "fails"),
            ("locked", "disk", "another process"),
            ("damaged", "set-aside", "/cache.damaged"),
            ("node", "set-aside", "another node"),
            ("cluster", "set-aside", "another cluster"),
            ("format", "set-aside", "another release"),
        ] {
            let found = shown("/cache", reason).unwrap();
            assert!(found.name == name && found.text.contains(words) && !found.text.contains('\n'), "{found:?}");
            assert_eq!(shown("a store", reason), None);
        }
        let key = shown("values", "key").unwrap();
        assert!(key.name == "cache-key" && key.text.contains(" /own.key "), "{key:?}");
    }
}
