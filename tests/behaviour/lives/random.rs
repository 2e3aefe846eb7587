//! Random choices that a seed repeats.

use crate::behaviour::kills::random;

pub(in crate::behaviour) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(in crate::behaviour) fn new(seed: u64) -> Self {
        Self { seed: random(seed), drawn: 0 }
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        random(self.seed.wrapping_add(self.drawn))
    }

    pub(in crate::behaviour) fn number(&mut self) -> u16 {
        (self.next() >> 40) as u16
    }

    /// A number below this one.
    pub(in crate::behaviour) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    /// Whether one of so many cases occurs.
    pub(in crate::behaviour) fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    pub(in crate::behaviour) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
