//! The hidden keys of one list, or of one of its pages: collected while it is filtered, and saved when it ends.

use std::sync::Arc;

use weir_document::Document;
use weir_document::json::ListMeta;

use super::{ChainStarts, ClientKey, HiddenKeys, ResumeState};
use weir_kube::{GroupResource, Query};
use weir_runtime::ChainVersion;

/// The progress of one list.
#[derive(Debug)]
pub(in crate::proxy) struct ListProgress {
    client: ClientKey,
    /// The client, whatever it reads of the resource; none if the list may be older than its request.
    latest: Option<ClientKey>,
    /// The chain version with which the list's first page began; none if it is unknown.
    begun: Option<ChainVersion>,
    hidden: Arc<HiddenKeys>,
}

impl ListProgress {
    /// Starts a list, or a page that continues the pages before it.
    #[must_use]
    pub(in crate::proxy) fn begin(
        state: &ResumeState,
        client: ClientKey,
        any_read: ClientKey,
        chain_version: ChainVersion,
        query: &Query,
    ) -> Self {
        let before = query.first("continue").filter(|token| !token.is_empty());
        let (begun, hidden) = match before.map(|token| state.pages_before(&client, token)) {
            None => (Some(chain_version), Arc::default()),
            Some(None) => (None, Arc::default()),
            Some(Some((begun, hidden))) => (Some(begun), hidden),
        };
        let latest = is_latest(query).then_some(any_read);
        Self { client, latest, begun, hidden }
    }

    /// Adds an object that the client does not get.
    pub(in crate::proxy) fn hide(&mut self, document: &Document) {
        Arc::make_mut(&mut self.hidden).insert(HiddenKeys::key_of(document));
    }

    /// Saves the resume point from which a watch or the next page continues. Callers must do so before the last bytes leave.
    pub(in crate::proxy) fn save(
        &self,
        state: &ResumeState,
        starts: &ChainStarts,
        resource: &GroupResource,
        meta: &ListMeta,
    ) {
        let Some(begun) = self.begun else { return };
        if let (Some(any_read), Some(version)) = (self.latest, &meta.resource_version) {
            if let Ok(version) = version.parse() {
                starts.note(begun, resource, version);
            }
            // A watch of another shape may start here, too.
            state.save_list(any_read, begun, version, self.hidden.clone());
        }
        if let Some(token) = &meta.continue_token {
            state.save_page(self.client, begun, token, self.hidden.clone());
        } else if let Some(version) = &meta.resource_version {
            state.save_list(self.client, begun, version, self.hidden.clone());
        }
    }
}

/// Whether the API server answers a list with the latest state, whose version is newer than all that anybody got before.
fn is_latest(query: &Query) -> bool {
    ["resourceVersion", "resourceVersionMatch", "continue"]
        .iter()
        .all(|key| query.first(key).unwrap_or_default().is_empty())
}
