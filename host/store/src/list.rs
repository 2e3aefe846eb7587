//! Lists one resource page by page.
//!
//! Memory: the objects, and one page.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::json::{ListMeta, ListSplitter, Piece};

use super::discovery::ServedResource;
use super::error::ReflectorError;
use super::indexed_objects::StoredObject;
use super::query::escaped;
use super::resource_client::{RequestError, ResourceClient, ResponseChunks};
use super::store_key::StoreKey;
use super::stored_object::read_object;
use weir_kube::LookupSpec;

/// Items per page, as in client-go.
const PAGE: usize = 500;
/// The largest object that is accepted: ten times the default limit of etcd.
const MAX_ITEM: usize = 16 << 20;
/// The largest total size of the objects of one list.
const MAX_LIST: usize = 256 << 20;

/// A complete list.
#[derive(Debug)]
pub(super) struct ResourceList {
    pub(super) objects: Vec<(StoreKey, StoredObject)>,
    /// The resourceVersion of the list, from which a watch continues.
    pub(super) version: String,
}

/// The field and label selectors of a lookup as query parameters, each preceded by `&`.
pub(super) fn selectors(lookup: &LookupSpec) -> String {
    let mut query = String::new();
    if let Some(name) = &lookup.name {
        query = query + "&fieldSelector=metadata.name%3D" + &escaped(name).to_string();
    }
    if let Some(labels) = lookup.label_selector.as_ref().filter(|labels| !labels.is_empty()) {
        query = query + "&labelSelector=" + &escaped(labels).to_string();
    }
    query
}

/// The `Accept` header. A server without `PartialObjectMetadata` responds with whole objects, which are reduced later.
pub(super) fn accept(lookup: &LookupSpec, list: bool) -> &'static str {
    match (lookup.metadata_only, list) {
        (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        (false, _) => "application/json",
    }
}

/// Lists all objects of the lookup. Cancel-safe: an unfinished list has no effect.
pub(super) async fn list(
    client: &ResourceClient,
    lookup: &LookupSpec,
    served: &ServedResource,
) -> Result<ResourceList, RequestError> {
    let mut objects = Vec::new();
    let mut bytes = 0_usize;
    let mut token: Option<String> = None;
    loop {
        let mut path = format!("{}?limit={PAGE}{}", served.path, selectors(lookup));
        if let Some(token) = &token {
            path = path + "&continue=" + &escaped(token).to_string();
        }
        let response = client.get(&path, accept(lookup, true), true).await?;
        let (items, meta) = page(client, ResponseChunks::new(client, response)?).await?;
        let type_meta = meta.item_type().map(Arc::new);
        for item in items {
            let (key, object) = read_object(&item, type_meta.as_ref(), lookup.metadata_only)
                .map_err(|error| client.invalid_response(error))?;
            bytes = bytes.saturating_add(object.object.document().bytes().len());
            if bytes > MAX_LIST {
                return Err(RequestError::Other(ReflectorError::TooLarge {
                    resource: lookup.resource.clone(),
                    limit: MAX_LIST,
                }));
            }
            objects.push((key, object));
        }
        match (meta.continue_token, meta.resource_version) {
            (Some(next), _) if token.as_ref() == Some(&next) => {
                return Err(client.invalid_response("the continue token of a page is that of the page before"));
            }
            (Some(next), _) => token = Some(next),
            (None, Some(version)) => return Ok(ResourceList { objects, version }),
            (None, None) => return Err(client.invalid_response("the list has no metadata.resourceVersion")),
        }
    }
}

/// Reads one page.
async fn page(client: &ResourceClient, mut chunks: ResponseChunks) -> Result<(Vec<Bytes>, ListMeta), RequestError> {
    let mut splitter = ListSplitter::with_limit(MAX_ITEM);
    let mut items = Vec::new();
    let mut ended = false;
    while !ended {
        match tokio::time::timeout(client.response_timeout, chunks.next()).await {
            Ok(Ok(Some(chunk))) => splitter.push(chunk),
            Ok(Ok(None)) => {
                splitter.finish();
                ended = true;
            }
            Ok(Err(reason)) => return Err(client.unavailable(reason)),
            Err(_) => {
                return Err(client.unavailable(format!("the list stalled for {:?}", client.response_timeout)));
            }
        }
        while let Some(piece) = splitter.next().map_err(|error| client.invalid_response(error))? {
            if let Piece::Batch(batch) = piece {
                items.extend((0..batch.items.len()).filter_map(|index| batch.item(index)));
            }
        }
    }
    Ok((items, splitter.meta().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kube::GroupResource;

    #[test]
    fn selectors_are_escaped() {
        let lookup = LookupSpec {
            resource: GroupResource::new("nodes", ""),
            versions: Vec::new(),
            name: Some("a&b".into()),
            label_selector: Some("x in (a,b)".into()),
            metadata_only: false,
            optional: false,
        };
        assert_eq!(selectors(&lookup), "&fieldSelector=metadata.name%3Da%26b&labelSelector=x%20in%20%28a%2Cb%29");
    }
}
