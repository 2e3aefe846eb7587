//! What the API server itself has of a collection: keys, uids and versions, or one object. Never asked of a peer.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use weir_document::TypeMeta;
use weir_kube::Encoding;

use crate::StoreKey;
use crate::cache::collection::Collection;
use crate::cache::compare::{Fingerprint, uid};
use crate::cache::decode::{self, PageDecoder};
use crate::cache::object::{Object, ObjectFormat};
use crate::query::escaped;
use crate::resource_client::{RequestError, ResourceClient, ResponseChunks};
use crate::uplink::{Received, UplinkLimit};

/// The most objects of a list.
const MAX_OBJECTS: usize = 1 << 20;
/// The most bytes of the metadata that a reader waits for.
const MAX_NEWEST: usize = 16 << 20;

/// `PartialObjectMetadata` has metadata where each kind has it, so that whole objects are read as such, too.
static PARTIAL: LazyLock<Arc<TypeMeta>> = LazyLock::new(|| {
    Arc::new(TypeMeta { api_version: "meta.k8s.io/v1".to_owned(), kind: "PartialObjectMetadata".to_owned() })
});

/// The API server, as the reader of one store asks it.
pub(in crate::cache) struct ApiServer {
    pub(in crate::cache) client: ResourceClient,
    pub(in crate::cache) collection: Collection,
    pub(in crate::cache) encoding: Encoding,
    /// How long the next chunk of a list may take.
    pub(in crate::cache) timeout: Duration,
    pub(in crate::cache) uplink: Option<UplinkLimit>,
    /// What the API server sent for comparisons.
    pub(in crate::cache) received: Arc<Received>,
}

/// A list, as far as it is compared.
pub(in crate::cache) struct Served {
    pub(in crate::cache) version: u64,
    /// Sorted by key.
    pub(in crate::cache) prints: Vec<Fingerprint>,
    /// Whether there are further pages.
    pub(in crate::cache) has_more: bool,
}

impl ApiServer {
    /// All objects at this version or a later one. The API server answers from its own cache.
    pub(super) async fn all(&self, version: u64) -> Result<Served, RequestError> {
        self.metadata(&format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"), usize::MAX).await
    }

    /// One object, and the newest version.
    pub(in crate::cache) async fn first(&self) -> Result<Served, RequestError> {
        self.metadata("limit=1", usize::MAX).await
    }

    /// All objects, at the newest version.
    pub(in crate::cache) async fn newest(&self) -> Result<Served, RequestError> {
        self.metadata("resourceVersion=", MAX_NEWEST).await
    }

    async fn metadata(&self, parameters: &str, max_bytes: usize) -> Result<Served, RequestError> {
        let mut bytes = 0_usize;
        let accept = match self.encoding {
            Encoding::Json => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Encoding::Protobuf => concat!(
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,",
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            ),
        };
        let mut prints = Vec::new();
        let path = self.collection.path_with(parameters);
        let page = self.page(&path, accept, |encoding, item| {
            let format = ObjectFormat { encoding, type_meta: PARTIAL.clone() };
            let document = format.document(item.clone());
            let (key, version) = (decode::key(&document)?, decode::version(&document)?);
            prints.push(Fingerprint { key, uid: uid(&document), version });
            bytes = bytes.saturating_add(item.len());
            Ok(prints.len() <= MAX_OBJECTS && bytes <= max_bytes)
        });
        let decoder = page.await?;
        let meta = decoder.meta();
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version.ok_or_else(|| self.invalid("the list has no numeric metadata.resourceVersion"))?;
        let has_more = meta.continue_token.is_some();
        prints.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Served { version, prints, has_more })
    }

    /// One object as the store would keep it in this encoding, at this version or a later one; `None` if the API server sends
    /// another one. A list: who may list may not be allowed to get.
    pub(super) async fn object(
        &self,
        key: &StoreKey,
        version: u64,
        encoding: Encoding,
    ) -> Result<Option<Object>, RequestError> {
        let mut one = self.collection.clone();
        if !key.namespace().is_empty() && !one.path.contains("/namespaces/") {
            let (group, resource) = one.path.rsplit_once('/').unwrap_or_default();
            one.path = format!("{group}/namespaces/{}/{resource}", escaped(key.namespace()));
        }
        let named = format!("metadata.name={}", key.name());
        match one.field_selector.as_str() {
            "" => one.field_selector = named,
            selector if selector.split(',').any(|term| term.starts_with("metadata.name=")) => {}
            selector => one.field_selector = format!("{selector},{named}"),
        }
        let mut items = Vec::new();
        let path = one.path_with(&format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
        let page = self.page(&path, one.accept_list(), |_, item| {
            items.push(item.clone());
            Ok(items.len() <= 1)
        });
        let decoder = page.await?;
        if decoder.encoding() != encoding {
            return Ok(None);
        }
        let format = decode::list_format(encoding, decoder.meta()).map_err(|error| self.invalid(error))?;
        let object = items.first().map(|item| decode::object(&format, one.content, item)).transpose();
        Ok(object.map_err(|error| self.invalid(error))?.filter(|object| object.key == *key))
    }

    /// Reads one page, item by item, until `take` returns that it has too many. Returns what is known of the list.
    async fn page(
        &self,
        path: &str,
        accept: &str,
        mut take: impl FnMut(Encoding, &bytes::Bytes) -> Result<bool, decode::DecodeError>,
    ) -> Result<PageDecoder, RequestError> {
        let response = self.client.get(path, accept, true).await?;
        let mut chunks = ResponseChunks::new(&self.client, response, self.received.clone())?;
        let mut decoder = PageDecoder::new(chunks.encoding());
        let mut is_last = false;
        while !is_last {
            let before = self.received.bytes();
            match tokio::time::timeout(self.timeout, chunks.next()).await {
                Ok(Ok(Some(chunk))) => decoder.push(chunk),
                Ok(Ok(None)) => {
                    decoder.finish();
                    is_last = true;
                }
                Ok(Err(reason)) => return Err(self.client.unavailable(reason)),
                Err(_) => return Err(self.client.unavailable(format!("the list stalled for {:?}", self.timeout))),
            }
            let mut items = Vec::new();
            decoder.items(&mut items).map_err(|error| self.invalid(error))?;
            for item in &items {
                if !take(decoder.encoding(), item).map_err(|error| self.invalid(error))? {
                    return Err(self.invalid("it has more objects than are compared"));
                }
            }
            if let Some(uplink) = &self.uplink {
                uplink.take(self.received.bytes().saturating_sub(before)).await;
            }
        }
        Ok(decoder)
    }

    fn invalid(&self, reason: impl std::fmt::Display) -> RequestError {
        self.client.invalid_response(reason)
    }
}

/// A number that nobody can foresee; 0 if the system has none.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}
