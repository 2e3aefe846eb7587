//! The versions between which a store jumped by a list.
//!
//! The events that a list makes of its difference do not tell of objects that were created and deleted between the two
//! versions. Whoever holds the state of a version between them lacks those deletions.

use std::sync::{Mutex, PoisonError};

/// The most gaps. The oldest ones are joined, which makes them wider.
const MAX_GAPS: usize = 64;

/// The gaps of one store, oldest first. Both ends of a gap are versions that the store had.
#[derive(Debug, Default)]
pub(super) struct Gaps(Mutex<Vec<(u64, u64)>>);

impl Gaps {
    /// Notes that a list led from one version to a later one.
    pub(super) fn add(&self, from: u64, to: u64) {
        let mut gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if from < to {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_between_two_states_are_a_gap_and_the_oldest_gaps_become_wider() {
        let gaps = Gaps::default();
        gaps.add(3, 3);
        gaps.add(3, 6);
        let contained: Vec<_> = (0..10).filter(|version| gaps.contain(*version)).collect();
        assert_eq!(contained, [4, 5]);
        for n in 1..=MAX_GAPS as u64 {
            gaps.add(10 * n, 10 * n + 2);
        }
        assert!(gaps.contain(4) && gaps.contain(9) && gaps.contain(11) && gaps.contain(21) && !gaps.contain(22));
    }
}
