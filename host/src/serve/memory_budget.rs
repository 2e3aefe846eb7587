//! Bounds the memory of all responses that Weir buffers as a whole: protobuf lists, which start with their length, and
//! Tables, whose form depends on their content.
//!
//! A response waits for its lease before it buffers anything, so that two responses never wait for each other. A lease
//! grows only by memory that is free at once. If none is free, Weir requests the response again in a form that it streams.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of the semaphore, which counts in 32 bits.
const UNIT: usize = 1 << 10;
/// How long a response waits for a lease.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The memory for all buffered responses together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    free: Arc<Semaphore>,
    units: u32,
}

/// The memory of one response; it returns to the budget on drop.
#[derive(Debug)]
pub(crate) struct MemoryLease {
    free: Arc<Semaphore>,
    held: OwnedSemaphorePermit,
}

/// The budget has no room for this response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl MemoryBudget {
    /// Creates a budget of this many bytes.
    #[must_use]
    pub(crate) fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// The bytes that are not leased.
    #[must_use]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits() * UNIT
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.units as usize * UNIT
    }

    /// Leases memory that responses can do without; never waits. `None` if less than half of the budget would be left.
    pub(crate) fn spare(&self, bytes: usize) -> Option<MemoryLease> {
        let units = units(bytes);
        let left = self.free.available_permits().checked_sub(units as usize)?;
        let held = self.free.clone().try_acquire_many_owned(units).ok().filter(|_| left >= self.units as usize / 2)?;
        Some(MemoryLease { free: self.free.clone(), held })
    }

    /// Leases memory for a response of about this size, after at most ten seconds. Cancel-safe.
    ///
    /// # Errors
    /// The response exceeds the whole budget, or the wait timed out.
    pub(crate) async fn lease(&self, bytes: usize) -> Result<MemoryLease, OverBudget> {
        let units = units(bytes);
        if units > self.units {
            return Err(OverBudget);
        }
        let waited = tokio::time::timeout(TIMEOUT, self.free.clone().acquire_many_owned(units)).await;
        let held = waited.ok().and_then(Result::ok).ok_or(OverBudget)?;
        Ok(MemoryLease { free: self.free.clone(), held })
    }
}

impl MemoryLease {
    /// Grows the lease to this many bytes in all; never waits.
    ///
    /// # Errors
    /// Less memory is free now.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let more = (units(bytes) as usize).saturating_sub(self.held.num_permits());
        if more > 0 {
            let more = u32::try_from(more).map_err(|_| OverBudget)?;
            self.held.merge(self.free.clone().try_acquire_many_owned(more).map_err(|_| OverBudget)?);
        }
        Ok(())
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_for_a_lease_and_returns_it_on_drop() {
        let budget = MemoryBudget::new(10 << 10);
        let mut first = budget.lease(4 << 10).await.unwrap();
        first.grow_to(8 << 10).unwrap();
        assert_eq!(first.grow_to(11 << 10), Err(OverBudget));
        assert_eq!(budget.lease(3 << 10).await.unwrap_err(), OverBudget, "no lease is returned");
        let second = budget.lease(2 << 10).await.unwrap();
        assert_eq!(first.grow_to(9 << 10), Err(OverBudget));
        drop(second);
        first.grow_to(10 << 10).unwrap();
        let waiting = budget.lease(10 << 10);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await.unwrap();
    }

    #[test]
    fn half_of_the_budget_is_never_spare() {
        let budget = MemoryBudget::new(10 << 10);
        assert!(budget.spare(6 << 10).is_none());
        let kept = budget.spare(4 << 10).unwrap();
        assert!(budget.spare(2 << 10).is_none());
        drop(kept);
        assert!(budget.spare(5 << 10).is_some());
    }

    #[tokio::test]
    async fn a_response_larger_than_the_budget_does_not_wait() {
        assert_eq!(MemoryBudget::new(1 << 10).lease(2 << 10).await.unwrap_err(), OverBudget);
    }
}
