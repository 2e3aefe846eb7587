//! Which names are on disk or wait for it, as far as a removal has to know.
//!
//! Clients choose names, and the removal of one that was never kept is no reason to write: flash wears, and what waits for a
//! disk that cannot be written is bounded. The answer is available without the file, and is never a false "not there". Memory:
//! some 16 bytes a name.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// How many names that are gone are kept before the rest is gathered again.
const SLACK: usize = 1024;

/// The hashes of all names that may exist. Clients cannot choose equal ones: the seed is random.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    /// `None` until the names on disk are known: all may exist.
    hashes: Option<HashSet<u64>>,
    seed: RandomState,
}

impl KnownNames {
    /// Whether something of this name may exist.
    pub(super) fn may_exist(&self, name: &str) -> bool {
        self.hashes.as_ref().is_none_or(|hashes| hashes.contains(&self.seed.hash_one(name)))
    }

    /// Notes that something of this name is to be written.
    pub(super) fn add(&mut self, name: &str) {
        if let Some(hashes) = &mut self.hashes {
            hashes.insert(self.seed.hash_one(name));
        }
    }

    /// Notes all names there are, if those that are gone have become many.
    pub(super) fn gather<'a>(&mut self, number: usize, names: impl Iterator<Item = &'a String>) {
        let most = 2 * number + SLACK;
        if self.hashes.as_ref().is_none_or(|hashes| hashes.len() > most) {
            self.hashes = Some(names.map(|name| self.seed.hash_one(name)).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_may_exist_until_the_names_are_known_and_those_that_are_gone_are_forgotten() {
        let mut known = KnownNames::default();
        known.add("a");
        assert!(known.may_exist("a") && known.may_exist("b"));
        let names = ["a".to_owned()];
        known.gather(1, names.iter());
        assert!(known.may_exist("a") && !known.may_exist("b"));
        for n in 0..2 * SLACK {
            known.add(&n.to_string());
            assert!(known.may_exist(&n.to_string()));
        }
        known.gather(1, names.iter());
        assert!(known.may_exist("a") && !known.may_exist("0"));
    }
}
