//! What is wrong with the cache on disk, in lines for an operator.

use std::sync::Mutex;

use super::aside::Aside;
use super::reading::lock;
use super::state::DiskState;

/// The reasons for which files are set aside.
const ASIDE: [&str; 4] = ["node", "cluster", "format", "damaged"];

/// A condition of the cache on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCondition {
    /// Its name: `disk`, `set-aside` or `cache-key`.
    pub name: &'static str,
    /// One line that says what it means, and what to do.
    pub text: String,
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
        let mut found: Vec<_> = reported.filter_map(|(thing, reason)| condition(&file, thing, reason)).collect();
        let aside = Aside::of(&state.config.path).files();
        found.extend(aside.iter().filter_map(|aside| condition(&file, &file, aside.reason)));
        found.sort_by(|one, other| (one.name, &one.text).cmp(&(other.name, &other.text)));
        found.dedup();
        *lock(&self.0) = found;
    }
}

/// What a reported error says of the whole file; `None` if it is of one store.
fn condition(file: &str, thing: &str, reason: &str) -> Option<DiskCondition> {
    let is_file = thing == file;
    let aside = |of: &str| {
        format!(
            "{file} was of another {of}, it is kept as {file}.{reason}: it is used again when it fits, and removed after a day online"
        )
    };
    let (name, text) = match reason {
        "key" => ("cache-key", "the encryption key of the cache cannot be used, Secrets are not kept: restore --cache-key-file or the folder of --cache-key-dir, see the log".to_owned()),
        "full" if is_file => ("disk", format!("the disk of {file} is full: what is on it is read, changes are in memory only; make room")),
        "read_only" if is_file => ("disk", format!("{file} cannot be written: what is on it is read, changes are in memory only; check its mount and its owner")),
        "io" if is_file => ("disk", format!("input or output fails on the disk of {file}: what can be is read, changes are in memory only; check the disk")),
        "locked" if is_file => ("disk", format!("another process has {file} open, nothing of it is used: end that process")),
        "damaged" if is_file => ("set-aside", format!("{file} was damaged: what was whole is in use, the damaged file is kept as {file}.damaged and removed after a day online")),
        "node" if is_file => ("set-aside", aside("node")),
        "cluster" if is_file => ("set-aside", aside("cluster")),
        "format" if is_file => ("set-aside", aside("release")),
        _ => return None,
    };
    Some(DiskCondition { name, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_of_the_file_is_shown_in_one_line_each() {
        let shown = |thing: &str, reason| condition("/cache", thing, reason);
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
        assert_eq!(shown("values", "key").unwrap().name, "cache-key");
    }
}
