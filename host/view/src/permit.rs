//! A read that was reviewed: the only value that opens a view.

use std::sync::Arc;

use weir_kube::{Encoding, RequestInfo, ResourceRequest};
use weir_store::StoreReader;
use weir_store::cache::Collection;

use super::request_selector::RequestSelector;
use super::scope;

/// The objects that one reader may see. It comes from the request line that was reviewed, so that a view shows no more than the
/// review asked for: namespace, name and both selectors come from there, and from nowhere else.
#[derive(Debug, Clone)]
pub struct Permit {
    reader: StoreReader,
    resource: ResourceRequest,
    selector: RequestSelector,
    collection: Option<Collection>,
}

impl Permit {
    /// After the review of exactly this request; `None` if only the API server can evaluate what it selects. Only
    /// `access/src/permits.rs` calls this, which `tests/structure` checks.
    pub fn reviewed(reader: StoreReader, request: &RequestInfo) -> Option<Self> {
        let resource = request.resource()?.clone();
        let selector = RequestSelector::of(&resource)?;
        let collection = scope::collection(&reader, &resource);
        Some(Self { reader, resource, selector, collection })
    }

    /// For a watch that needs no review: its store is read with exactly the credential of its client, narrowed by its own words, so
    /// that the API server itself authorizes each request of the store. Only `access/src/permits.rs` calls this, too.
    pub fn own(reader: StoreReader, request: &RequestInfo, encoding: Encoding) -> Option<Self> {
        let resource = request.resource()?.clone();
        let collection = Some(Collection::literal(&resource, &request.query, encoding));
        let reader = StoreReader::Private(Arc::new(reader));
        Some(Self { reader, resource, selector: RequestSelector::default(), collection })
    }

    /// The identity with which the objects are read upstream.
    pub fn reader(&self) -> &StoreReader {
        &self.reader
    }

    /// The resource that was reviewed.
    pub fn resource(&self) -> &ResourceRequest {
        &self.resource
    }

    /// Which objects were reviewed.
    pub fn selector(&self) -> &RequestSelector {
        &self.selector
    }

    /// The same read of the wider collections that hold what it selects: it is shown no more of them.
    pub fn of_wider(&self) -> impl Iterator<Item = Self> + use<> {
        let wider = scope::wider(&self.reader, &self.resource);
        let this = self.clone();
        let others = wider.into_iter().filter(move |collection| this.collection.as_ref() != Some(collection));
        let this = self.clone();
        others.map(move |collection| Self { collection: Some(collection), ..this.clone() })
    }

    /// The collection that a view of them reads; `None` if it is too wide for the reader, or an open view has the object.
    pub(super) fn collection(&self) -> Option<&Collection> {
        self.collection.as_ref()
    }
}
