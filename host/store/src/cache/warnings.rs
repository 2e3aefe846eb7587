//! Warnings that the API server sends with each response for a resource, such as a deprecation. Readers of the store get them,
//! too.

use std::sync::Arc;

use http::header::WARNING;
use http::{HeaderMap, HeaderValue};

use super::resource_store::ResourceStore;

/// The most warnings of an answer, and the longest one in bytes. kube-apiserver sends 4 KiB in all.
const MAX_WARNINGS: usize = 16;
const MAX_BYTES: usize = 4 << 10;

impl ResourceStore {
    /// The `Warning` headers of the last answer of the API server.
    #[must_use]
    pub fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.warnings.load_full()
    }

    /// Keeps the warnings of an answer, instead of the former ones.
    pub(super) fn note_warnings(&self, answer: &HeaderMap) {
        let warnings = answer.get_all(WARNING).iter().filter(|warning| warning.len() <= MAX_BYTES);
        let warnings: Vec<_> = warnings.take(MAX_WARNINGS).cloned().collect();
        if **self.warnings.load() != warnings {
            self.warnings.store(Arc::new(warnings));
        }
    }
}
