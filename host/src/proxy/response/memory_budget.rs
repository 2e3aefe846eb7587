//! How many bytes the answers that are held as a whole may take, all of them together: protobuf lists, which have their
//! length in front, and Tables, which change their form with their content.
//!
//! A lease is waited for before anything is held, so that two answers never wait for each other; beyond it an answer
//! takes what is free at once or is refused, and is then sent in a form that is not held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of the semaphore, which counts in 32 bits.
const UNIT: usize = 1 << 10;
/// How long an answer waits for others to be sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of all answers together.
#[derive(Debug)]
pub(in crate::proxy) struct Budget {
    free: Arc<Semaphore>,
    units: u32,
}

/// What one answer may hold; given back when dropped.
#[derive(Debug)]
pub(in crate::proxy) struct Lease {
    free: Arc<Semaphore>,
    held: OwnedSemaphorePermit,
}

/// There is no room for this answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct OverBudget;

impl Budget {
    /// Of this many bytes.
    #[must_use]
    pub(in crate::proxy) fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// All of it.
    #[must_use]
    pub(in crate::proxy) fn bytes(&self) -> usize {
        self.units as usize * UNIT
    }

    /// Room for an answer of about this size. Cancel-safe.
    ///
    /// # Errors
    /// The answer would not fit if it were the only one, or others take too long.
    pub(in crate::proxy) async fn lease(&self, bytes: usize) -> Result<Lease, OverBudget> {
        let units = units(bytes);
        if units > self.units {
            return Err(OverBudget);
        }
        let waited = tokio::time::timeout(PATIENCE, self.free.clone().acquire_many_owned(units)).await;
        let held = waited.ok().and_then(Result::ok).ok_or(OverBudget)?;
        Ok(Lease { free: self.free.clone(), held })
    }
}

impl Lease {
    /// Makes sure that this many bytes in all may be held.
    ///
    /// # Errors
    /// There is not so much room now.
    pub(in crate::proxy) fn reach(&mut self, bytes: usize) -> Result<(), OverBudget> {
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
    async fn a_lease_is_waited_for_and_given_back() {
        let budget = Budget::new(10 << 10);
        let mut first = budget.lease(4 << 10).await.unwrap();
        first.reach(8 << 10).unwrap();
        assert_eq!(first.reach(11 << 10), Err(OverBudget));
        assert_eq!(budget.lease(3 << 10).await.unwrap_err(), OverBudget, "nobody gives anything back");
        let second = budget.lease(2 << 10).await.unwrap();
        assert_eq!(first.reach(9 << 10), Err(OverBudget));
        drop(second);
        first.reach(10 << 10).unwrap();
        let waiting = budget.lease(10 << 10);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn what_never_fits_is_not_waited_for() {
        assert_eq!(Budget::new(1 << 10).lease(2 << 10).await.unwrap_err(), OverBudget);
    }
}
