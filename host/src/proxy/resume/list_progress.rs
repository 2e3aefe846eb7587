//! What one list, or one page of one, hides from its client: gathered while it is filtered, noted when it ends.

use std::sync::Arc;

use weir_document::Document;
use weir_document::json::ListMeta;

use super::{Hidden, Key, Ledger};
use weir_kube::Query;
use weir_runtime::Stamp;

/// A list under way.
#[derive(Debug)]
pub(in crate::proxy) struct Listing {
    key: Key,
    /// Under which stamp the list began: its first page's; none if that is not known.
    begun: Option<Stamp>,
    hidden: Arc<Hidden>,
}

impl Listing {
    /// For a read under `stamp`; a later page goes on from those before it.
    #[must_use]
    pub(in crate::proxy) fn begin(ledger: &Ledger, key: Key, stamp: Stamp, query: &Query) -> Self {
        let before = query.first("continue").filter(|token| !token.is_empty());
        let (begun, hidden) = match before.map(|token| ledger.pages_before(&key, token)) {
            None => (Some(stamp), Arc::default()),
            Some(None) => (None, Arc::default()),
            Some(Some((begun, hidden))) => (Some(begun), hidden),
        };
        Self { key, begun, hidden }
    }

    /// An object is hidden.
    ///
    /// # Errors
    /// Its name cannot be read.
    pub(in crate::proxy) fn hide(&mut self, document: &Document) -> Result<(), weir_document::Error> {
        Arc::make_mut(&mut self.hidden).insert(Hidden::key_of(document)?);
        Ok(())
    }

    /// Before the last bytes leave: what a watch that goes on from here will need to know.
    pub(in crate::proxy) fn note(&self, ledger: &Ledger, meta: &ListMeta) {
        let Some(begun) = self.begun else { return };
        if let Some(token) = &meta.continue_token {
            ledger.page(self.key, begun, token, self.hidden.clone());
        } else if let Some(version) = &meta.resource_version {
            ledger.ended(self.key, begun, version, self.hidden.clone());
        }
    }
}
