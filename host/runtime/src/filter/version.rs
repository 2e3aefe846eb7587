//! Versions of chains, and the process-wide clock that they are taken from.

use std::sync::atomic::{AtomicU64, Ordering};

/// The version of a chain. At the same version, the chain has the same outcome for the same object. The version grows
/// with each new chain, and when a value changes that a filter of the chain looked up.
///
/// Versions are ordered by age, first that of the chain. Versions of different chains are never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainVersion {
    /// Compared first: a value that the former chain looked up may change after this one was created.
    chain: u64,
    clock: u64,
}

impl ChainVersion {
    /// The version of unfiltered objects.
    pub const UNFILTERED: Self = Self { chain: 0, clock: 0 };

    /// Returns the next number of the clock. It is never 0.
    #[must_use]
    pub fn tick() -> u64 {
        static CLOCK: AtomicU64 = AtomicU64::new(1);
        CLOCK.fetch_add(1, Ordering::AcqRel)
    }

    /// Creates the version at the time `clock` of the chain that was created at the time `chain`.
    #[must_use]
    pub const fn new(clock: u64, chain: u64) -> Self {
        Self { chain, clock }
    }

    /// The chain, whatever it looks up: the time at which it was created.
    #[must_use]
    pub const fn chain(self) -> u64 {
        self.chain
    }
}

/// Which chain the reads of a component pass, and since when. What is equal of two components shows them the same, and has shown
/// them the same since then.
///
/// The default one is of a component none of whose reads any filter has ever changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainPeriod {
    /// The identities of the filters.
    filters: Box<[u64]>,
    since: u64,
}

impl ChainPeriod {
    /// The period of the filters with these identities that begins at this time of the clock.
    #[must_use]
    pub fn new(filters: Box<[u64]>, since: u64) -> Self {
        Self { filters, since }
    }

    /// Whether clients may hold what filters have made, now or before.
    #[must_use]
    pub fn has_filtered(&self) -> bool {
        *self != Self::default()
    }
}

/// The time at which the outcomes began to hold: a number that grows with each change of any chain.
impl std::fmt::Display for ChainVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.clock)
    }
}
