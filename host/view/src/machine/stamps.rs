//! Up to which version clients may hold what was there before a change.

/// The stamp of a view's changes: the version of a consistent read that began after the view had taken them. One answer counts
/// for all changes before it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamps {
    /// The newest change that is answered, and the version.
    answered: u64,
    version: u64,
}

impl Stamps {
    /// Notes the version of a read that began after this change was taken. A restored older one counts as a lower bound.
    pub(crate) fn answer(&mut self, change: u64, version: u64) {
        self.answered = self.answered.max(change);
        self.version = self.version.max(version);
    }

    /// The stamp of a change; without end until it is answered.
    #[must_use]
    pub(crate) fn of(&self, change: u64) -> u64 {
        if change <= self.answered { self.version } else { u64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_without_end_until_it_is_answered_and_never_falls() {
        let mut stamps = Stamps::default();
        assert_eq!((stamps.of(0), stamps.of(1)), (0, u64::MAX));
        stamps.answer(2, 7);
        assert_eq!((stamps.of(1), stamps.of(2), stamps.of(3)), (7, 7, u64::MAX));
        stamps.answer(3, 5);
        assert_eq!(stamps.of(3), 7, "a read that was behind");
    }
}
