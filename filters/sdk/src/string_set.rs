//! Sets of strings that the host stores, so that it compares rows without copying their values to the module.

use crate::backend;

/// A set of strings for [`Object::retain_in`](crate::Object::retain_in). Create it once for the data it comes from: in
/// `configure`, or in a [`Memo`](crate::Memo).
pub struct StringSet(pub(crate) backend::StringSet);

impl<T: Into<String>> FromIterator<T> for StringSet {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        let strings: Vec<String> = strings.into_iter().map(Into::into).collect();
        Self(backend::StringSet::new(&strings))
    }
}

impl std::fmt::Debug for StringSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StringSet").finish_non_exhaustive()
    }
}
