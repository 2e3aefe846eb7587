//! Detects servers that send nothing at all.
//!
//! A link that drops packets causes no error, so each request would wait for its own timeout. Instead Weir counts
//! consecutive probes without a response. Any byte of the server resets the count, because a probe may also be slow
//! beside a large list on a thin link.
//!
//! A server that has not answered since the start is neither: requests wait for it, but nothing counts as confirmed by it.

use std::sync::Arc;

use weir_process::sync::atomic::{AtomicU32, Ordering};

/// A server is unresponsive after this many consecutive probes without a byte from it.
const MAX_UNANSWERED: u32 = 3;
/// Set in the count until the first byte.
const UNHEARD: u32 = 1 << 31;

/// The number of consecutive unanswered probes of one server. Clones share the count.
#[derive(Debug, Clone)]
pub(super) struct UnansweredProbes(Arc<AtomicU32>);

impl Default for UnansweredProbes {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(UNHEARD)))
    }
}

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
        let next = |count: u32| Some((count & UNHEARD) | MAX_UNANSWERED.min((count & !UNHEARD) + 1));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Lets the next unanswered probe decide, unless the server has answered: it was down when the daemon stopped.
    pub(super) fn expect_none(&self) {
        let next = |count: u32| (count & UNHEARD != 0).then_some(UNHEARD | (MAX_UNANSWERED - 1).max(count & !UNHEARD));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Returns whether the server has sent anything since the start.
    #[must_use]
    pub(super) fn has_answered(&self) -> bool {
        self.0.load(Ordering::Acquire) & UNHEARD == 0
    }

    /// Returns whether the server is unresponsive.
    #[must_use]
    pub(super) fn is_unresponsive(&self) -> bool {
        self.0.load(Ordering::Acquire) & !UNHEARD >= MAX_UNANSWERED
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

    #[test]
    fn a_server_has_answered_from_its_first_byte_on() {
        let probes = UnansweredProbes::default();
        assert!(!probes.has_answered() && !probes.is_unresponsive());
        (0..9).for_each(|_| probes.count());
        assert!(!probes.has_answered() && probes.is_unresponsive());
        probes.reset();
        assert!(probes.has_answered() && !probes.is_unresponsive());
        probes.count();
        assert!(probes.has_answered());
    }

    #[test]
    fn one_probe_decides_about_a_server_that_was_down_before_the_start() {
        let probes = UnansweredProbes::default();
        probes.expect_none();
        assert!(!probes.is_unresponsive());
        probes.count();
        probes.expect_none();
        assert!(probes.is_unresponsive());
        probes.reset();
        probes.expect_none();
        probes.count();
        assert!(!probes.is_unresponsive(), "it has answered since");
    }
}
