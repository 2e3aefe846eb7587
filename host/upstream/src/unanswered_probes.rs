//! Detects servers that send nothing at all.
//!
//! A link that drops packets causes no error, so each request would wait for its own timeout. Instead Weir counts
//! consecutive probes without a response. Any byte of the server resets the count, because a probe may also be slow
//! beside a large list on a thin link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server is unresponsive after this many consecutive probes without a byte from it.
const MAX_UNANSWERED: u32 = 3;

/// The number of consecutive unanswered probes of one server. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct UnansweredProbes(Arc<AtomicU32>);

impl UnansweredProbes {
    /// Resets the count because the server sent something. Costs one load if the count is zero.
    pub(super) fn reset(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Release);
        }
    }

    /// Counts a probe that timed out.
    pub(super) fn count(&self) {
        // Saturates at the threshold, so that the count cannot overflow.
        let next = |count: u32| Some(MAX_UNANSWERED.min(count + 1));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Returns whether the server is unresponsive.
    #[must_use]
    pub(super) fn is_unresponsive(&self) -> bool {
        self.0.load(Ordering::Acquire) >= MAX_UNANSWERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_unresponsive_after_consecutive_probes_until_its_first_byte() {
        let probes = UnansweredProbes::default();
        probes.count();
        probes.count();
        probes.reset();
        probes.count();
        probes.count();
        assert!(!probes.is_unresponsive(), "a byte came in between");
        probes.count();
        probes.count();
        assert!(probes.is_unresponsive());
        probes.clone().reset();
        assert!(!probes.is_unresponsive());
    }
}
