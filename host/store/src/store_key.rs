//! The key of an object in a store.

use std::borrow::Borrow;
use std::sync::Arc;

use weir_document::Document;

/// The namespace and name of an object as one string, `namespace\0name`. Sorts by namespace, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(Arc<str>);

impl StoreKey {
    /// Joins a namespace and a name. The namespace of a cluster-scoped object is empty.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(joined(namespace, name).into())
    }

    /// The key of an object; `None` if it has no name.
    ///
    /// # Errors
    /// The object is malformed.
    pub fn of(object: &Document) -> Result<Option<Self>, weir_document::Error> {
        let name = object.name()?;
        if name.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::new(object.namespace()?.as_deref().unwrap_or_default(), &name)))
    }

    /// The namespace; empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('\0').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('\0').map_or(&self.0, |(_, name)| name)
    }

    /// The key whose text [`StoreKey::as_str`] returned.
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text of a key.
pub(super) fn joined(first: &str, second: &str) -> String {
    let mut key = String::with_capacity(first.len() + 1 + second.len());
    key.push_str(first);
    key.push('\0');
    key.push_str(second);
    key
}

impl Borrow<str> for StoreKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}
