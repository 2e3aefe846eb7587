//! Sets of texts that the host keeps: rows are told apart without a value crossing.

use crate::backend;

/// A set of texts, for [`Object::retain_in`](crate::Object::retain_in). Make it once for what it derives from: in
/// `configure`, or in a [`Memo`](crate::Memo).
pub struct Texts(pub(crate) backend::Texts);

impl<T: Into<String>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let texts: Vec<String> = texts.into_iter().map(Into::into).collect();
        Self(backend::Texts::new(&texts))
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Texts").finish_non_exhaustive()
    }
}
