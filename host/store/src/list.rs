//! A paged list of one kind → the objects as a feed holds them. Memory beside the objects: one page.

use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use weir_document::TypeMeta;
use weir_document::json::{ListMeta, ListSplitter, Piece};

use super::discover::Served;
use super::error::FeedError;
use super::object::hold;
use super::request::{Asker, Chunks, Failure};
use super::store::{Held, Key};
use weir_kube::Lookup;

/// Items of one page, as client-go asks for.
const PAGE: usize = 500;
/// An object as large as etcd takes, ten times over.
const MAX_ITEM: usize = 16 << 20;
/// Bytes that one feed may hold after a list.
const MAX_FEED: usize = 256 << 20;

/// A complete list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) objects: Vec<(Key, Held)>,
    /// Where a watch continues.
    pub(super) version: String,
}

/// What a value of a query may hold unescaped.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The selectors of a lookup as query parameters, each led by `&`.
pub(super) fn selectors(lookup: &Lookup) -> String {
    let mut query = String::new();
    if let Some(name) = &lookup.name {
        query = query + "&fieldSelector=metadata.name%3D" + &utf8_percent_encode(name, QUERY).to_string();
    }
    if let Some(labels) = lookup.label_selector.as_ref().filter(|labels| !labels.is_empty()) {
        query = query + "&labelSelector=" + &utf8_percent_encode(labels, QUERY).to_string();
    }
    query
}

/// The forms asked for. A server that does not know the short form answers with whole objects, which are then reduced.
pub(super) fn accept(lookup: &Lookup, list: bool) -> &'static str {
    match (lookup.metadata_only, list) {
        (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        (false, _) => "application/json",
    }
}

/// Lists everything that the lookup takes. Cancel-safe: nothing is kept of an unfinished list.
pub(super) async fn list(asker: &Asker, lookup: &Lookup, served: &Served) -> Result<Listed, Failure> {
    let mut objects = Vec::new();
    let mut bytes = 0_usize;
    let mut token: Option<String> = None;
    loop {
        let mut path = format!("{}?limit={PAGE}{}", served.path, selectors(lookup));
        if let Some(token) = &token {
            path = path + "&continue=" + &utf8_percent_encode(token, QUERY).to_string();
        }
        let answer = asker.get(&path, accept(lookup, true), true).await?;
        let (items, meta) = page(asker, Chunks::of(asker, answer)?).await?;
        let type_meta = item_type(&meta).map(Arc::new);
        for item in items {
            let (key, held) =
                hold(&item, type_meta.as_ref(), lookup.metadata_only).map_err(|error| asker.malformed(error))?;
            bytes = bytes.saturating_add(held.object.document().bytes().len());
            if bytes > MAX_FEED {
                return Err(Failure::Other(FeedError::TooLarge { resource: lookup.resource.clone(), limit: MAX_FEED }));
            }
            objects.push((key, held));
        }
        match (meta.continue_token, meta.resource_version) {
            (Some(next), _) if token.as_ref() == Some(&next) => {
                return Err(asker.malformed("a continue token that leads to itself"));
            }
            (Some(next), _) => token = Some(next),
            (None, Some(version)) => return Ok(Listed { objects, version }),
            (None, None) => return Err(asker.malformed("a list without metadata.resourceVersion")),
        }
    }
}

/// Reads one page to its end.
async fn page(asker: &Asker, mut chunks: Chunks) -> Result<(Vec<Bytes>, ListMeta), Failure> {
    let mut splitter = ListSplitter::with_limit(MAX_ITEM);
    let mut items = Vec::new();
    let mut ended = false;
    while !ended {
        match tokio::time::timeout(asker.patience, chunks.next()).await {
            Ok(Ok(Some(chunk))) => splitter.push(chunk),
            Ok(Ok(None)) => {
                splitter.finish();
                ended = true;
            }
            Ok(Err(reason)) => return Err(asker.unreachable(reason)),
            Err(_) => {
                return Err(asker.unreachable(format!("the list stopped for {:?}", asker.patience)));
            }
        }
        while let Some(piece) = splitter.next().map_err(|error| asker.malformed(error))? {
            if let Piece::Batch(batch) = piece {
                items.extend((0..batch.items.len()).filter_map(|index| batch.item(index)));
            }
        }
    }
    Ok((items, splitter.meta().clone()))
}

/// What the items of a typed list are: `ServiceList` → `Service`.
fn item_type(meta: &ListMeta) -> Option<TypeMeta> {
    let kind = meta.kind.as_deref()?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
    Some(TypeMeta { api_version: meta.api_version.clone()?, kind: kind.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kube::GroupResource;

    #[test]
    fn selectors_are_escaped() {
        let lookup = Lookup {
            resource: GroupResource::new("nodes", ""),
            versions: Vec::new(),
            name: Some("a&b".into()),
            label_selector: Some("x in (a,b)".into()),
            metadata_only: false,
            optional: false,
        };
        assert_eq!(selectors(&lookup), "&fieldSelector=metadata.name%3Da%26b&labelSelector=x%20in%20%28a%2Cb%29");
    }

    #[test]
    fn items_take_their_kind_from_the_list() {
        let meta =
            |kind: &str| ListMeta { api_version: Some("v1".into()), kind: Some(kind.into()), ..ListMeta::default() };
        assert_eq!(item_type(&meta("ServiceList")).unwrap().kind, "Service");
        assert!(item_type(&meta("List")).is_none() && item_type(&meta("Odd")).is_none());
    }
}
