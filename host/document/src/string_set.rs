//! A set of strings that is built once and queried often, such as the node names of a pool.

use std::collections::HashSet;

/// A set of strings. It takes the memory of the strings and about 40 bytes for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringSet {
    set: HashSet<Box<str>, foldhash::fast::RandomState>,
}

/// The approximate memory per string besides its own bytes.
const OVERHEAD: usize = 40;

impl StringSet {
    /// Returns whether the string is in the set.
    pub fn contains(&self, string: &str) -> bool {
        self.set.contains(string)
    }

    /// Iterates over the strings, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(|string| &**string)
    }

    /// Returns the approximate memory of the set in bytes.
    pub fn weight(&self) -> usize {
        self.set.iter().map(|string| string.len() + OVERHEAD).sum()
    }
}

impl<T: Into<Box<str>>> FromIterator<T> for StringSet {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        Self { set: strings.into_iter().map(Into::into).collect() }
    }
}
