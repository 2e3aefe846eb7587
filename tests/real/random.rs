//! Random choices that a seed repeats.

/// SplitMix64.
pub(super) struct Random(u64);

/// A seed that no run had before.
pub(super) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) >> 16
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    /// Whether one of so many cases occurs.
    pub(super) fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Random bytes, at most so many.
    pub(super) fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// Changes, adds or removes a byte.
    pub(super) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let byte = match self.below(3) {
            0 => self.pick(b" \t\r\n\0\x0b\x0c\x7f\x80\x85\xa0\xff:,=%;&/\\\"()"),
            _ => self.next().to_le_bytes()[0],
        };
        match (self.below(3), bytes.get_mut(at)) {
            (0, Some(old)) => *old = byte,
            (1, Some(_)) => drop(bytes.remove(at)),
            _ => bytes.insert(at, byte),
        }
    }
}
