//! A set of texts, made once and asked often: the names of a pool's nodes, by which endpoints are cut.

use std::collections::HashSet;

/// A set of texts. Memory: the texts, and some 40 bytes for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    set: HashSet<Box<str>, foldhash::fast::RandomState>,
}

/// What a text takes in memory besides itself, about, in bytes.
const EACH: usize = 40;

impl Texts {
    /// Whether the text is one of them.
    pub fn contains(&self, text: &str) -> bool {
        self.set.contains(text)
    }

    /// The memory that it takes, about, in bytes.
    pub fn weight(&self) -> usize {
        self.set.iter().map(|text| text.len() + EACH).sum()
    }
}

impl<T: Into<Box<str>>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        Self { set: texts.into_iter().map(Into::into).collect() }
    }
}
