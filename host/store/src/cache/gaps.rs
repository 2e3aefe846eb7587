//! The versions between which a store jumped by a list.
//!
//! The events that a list makes of its difference do not tell of objects that were created and deleted between the two
//! versions. Whoever holds the state of a version between them lacks those deletions.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The most gaps. The oldest ones are joined, which makes them wider.
const MAX_GAPS: usize = 64;

/// The gaps of one store, oldest first. Both ends of a gap are versions that the store had.
#[derive(Debug, Default)]
pub(super) struct Gaps(Mutex<Vec<(u64, u64)>>);

impl Gaps {
    /// Notes that a list led from one version to a later one. The first list, from version 0, is no gap: it made no events.
    pub(super) fn add(&self, from: u64, to: u64) {
        let mut gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if (1..to).contains(&from) {
            gaps.push((from, to));
        }
        if gaps.len() > MAX_GAPS {
            let (oldest, _) = gaps.remove(0);
            if let Some(next) = gaps.first_mut() {
                next.0 = oldest;
            }
        }
    }

    /// Whether the store never had the state of this version.
    pub(super) fn contain(&self, version: u64) -> bool {
        let gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gaps.iter().any(|(from, to)| (from + 1..*to).contains(&version))
    }
}

/// Versions for the deletions between two states, in ascending order: the highest ones above `from`, up to `to`, that no object
/// of the later state has. The real ones are not known.
///
/// Each deletion needs one of its own. A client that was cut off between two of one version would continue after both.
#[must_use]
pub fn deletion_versions(from: u64, to: u64, taken: impl Iterator<Item = u64>, deletions: usize) -> Vec<u64> {
    let taken: HashSet<u64> = taken.filter(|version| *version > from).collect();
    let free = (from.saturating_add(1)..=to).rev().filter(|version| !taken.contains(version));
    // Every change has a version of its own, so that there are enough. A server that breaks this rule gets the last one.
    let mut versions: Vec<u64> = free.chain(std::iter::repeat(to)).take(deletions).collect();
    versions.sort_unstable();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_between_two_states_are_a_gap_and_the_oldest_gaps_become_wider() {
        let gaps = Gaps::default();
        gaps.add(0, 3);
        gaps.add(3, 3);
        gaps.add(3, 6);
        let contained: Vec<_> = (0..10).filter(|version| gaps.contain(*version)).collect();
        assert_eq!(contained, [4, 5]);
        for n in 1..=MAX_GAPS as u64 {
            gaps.add(10 * n, 10 * n + 2);
        }
        assert!(gaps.contain(4) && gaps.contain(9) && gaps.contain(11) && gaps.contain(21) && !gaps.contain(22));
    }

    #[test]
    fn each_deletion_between_two_states_has_a_version_of_its_own() {
        assert_eq!(deletion_versions(3, 9, [2, 8, 6].into_iter(), 3), [5, 7, 9]);
        assert_eq!(deletion_versions(3, 5, [4].into_iter(), 2), [5, 5], "more than there can be");
        assert_eq!(deletion_versions(3, 3, [].into_iter(), 1), [3]);
    }
}
