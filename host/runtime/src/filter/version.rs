//! Versions of chains, and the process-wide clock that numbers them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The version of a chain: while it is the same, so is the outcome of every object. It grows when the chain is made, and when
/// a value changes that one of its filters looked up.
///
/// Versions of one chain are ordered by age. A version of another chain is never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainVersion {
    clock: u64,
    chain: u64,
}

impl ChainVersion {
    /// The version of no chain at all: an object that was not filtered.
    pub const UNFILTERED: Self = Self { clock: 0, chain: 0 };

    /// The version at a time of the clock, of the chain that was made at another.
    #[must_use]
    pub const fn new(clock: u64, chain: u64) -> Self {
        Self { clock, chain }
    }
}

/// The next number of the clock; never 0.
#[must_use]
pub fn tick() -> u64 {
    static CLOCK: AtomicU64 = AtomicU64::new(1);
    CLOCK.fetch_add(1, Ordering::AcqRel)
}
