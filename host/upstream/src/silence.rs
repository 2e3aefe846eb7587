//! Whether a server sends anything at all. A link that drops packets gives no error: each request would wait for its own
//! timeout. So probes without an answer are counted, and any byte of the server sets the count back: a slow link, on which
//! a probe takes long beside a list, is not a dead one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server counts as silent after this many probes in a row without a byte from it.
const UNANSWERED: u32 = 3;

/// The probes of one server that went unanswered, in a row; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Silence(Arc<AtomicU32>);

impl Silence {
    /// The server sent something. Costs one load while it talks.
    pub(super) fn heard(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Release);
        }
    }

    /// A probe got no answer in its time.
    pub(super) fn unanswered(&self) {
        // Saturates at the count that matters.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| Some(UNANSWERED.min(count + 1)));
    }

    /// Whether the server counts as silent.
    #[must_use]
    pub(super) fn is_silent(&self) -> bool {
        self.0.load(Ordering::Acquire) >= UNANSWERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_silent_after_probes_in_a_row_and_talks_again_with_the_first_byte() {
        let silence = Silence::default();
        silence.unanswered();
        silence.unanswered();
        silence.heard();
        silence.unanswered();
        silence.unanswered();
        assert!(!silence.is_silent(), "a byte came in between");
        silence.unanswered();
        silence.unanswered();
        assert!(silence.is_silent());
        silence.clone().heard();
        assert!(!silence.is_silent());
    }
}
