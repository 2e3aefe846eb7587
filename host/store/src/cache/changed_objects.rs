//! Brings a store up to date that is hours old: lists metadata only, and fetches the objects whose version has changed.
//!
//! Each of them is requested as a list of one object at exactly the version of the metadata, so that the result is the state
//! at one version. A get would return a later one, and the watch would miss what happened between the two.

use std::collections::BTreeMap;

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};

use super::collection::ObjectContent;
use super::list::{ListForm, ListedObjects};
use super::object::Object;
use super::reflector::ResourceReflector;
use super::snapshot::Snapshot;
use crate::query::escaped;
use crate::resource_client::RequestError;
use crate::{ReflectorError, StoreKey};

/// The fewest objects for which this is worth it.
const MIN_OBJECTS: usize = 50;
/// The objects whose metadata is weighed.
const SAMPLE: usize = 64;
/// The metadata must be at most this part of the objects: all of it is wasted if too many objects have changed.
const MAX_METADATA: usize = 4;
/// The bytes of a request and of a response's head.
const OVERHEAD: usize = 600;
/// The requests at a time.
const CONCURRENT: usize = 4;

impl ResourceReflector {
    /// The present objects, most of them from the store; `None` if a full list is cheaper, or if the API server does not
    /// answer such requests.
    pub(super) async fn changed_objects(&self) -> Result<Option<ListedObjects>, RequestError> {
        let present = self.store.snapshot();
        let complete = self.collection.content == ObjectContent::Complete;
        if !complete || self.reads_from_peer() || !self.store.is_followed() || !is_worthwhile(&present) {
            return Ok(None);
        }
        let metadata = match self.pages(ListForm::Metadata, "").await {
            Ok(metadata) => metadata,
            Err(RequestError::Other(ReflectorError::Unavailable { resource, reason })) => {
                return Err(RequestError::Other(ReflectorError::Unavailable { resource, reason }));
            }
            Err(_) => return Ok(None),
        };
        // A cluster that was restored from a backup may use a version twice.
        if metadata.version < present.version {
            return Ok(None);
        }
        let known = |object: &Object| present.objects.get(&object.key).filter(|known| known.version == object.version);
        let changed: Vec<_> = metadata.objects.iter().filter(|object| known(object).is_none()).collect();
        let (size, count) = (self.store.status().bytes, present.objects.size());
        // Compressed, a list weighs about a fifth. Single objects compress less.
        if changed.len() * (size / count.max(1) / 2 + OVERHEAD) > size / 5 {
            return Ok(None);
        }
        let fetched = match self.fetch(&changed, metadata.version).await {
            Ok(fetched) => fetched,
            Err(RequestError::Expired) => return Ok(None),
            Err(error) => return Err(error),
        };
        let objects = metadata.objects.iter().map(|object| match known(object) {
            Some(known) => Some(Object::clone(known)),
            None => fetched.get(&object.key).cloned(),
        });
        let Some(objects) = objects.collect::<Option<Vec<_>>>() else { return Ok(None) };
        tracing::info!(
            collection = %self.collection, objects = objects.len(), changed = changed.len(),
            "the store is up to date again without a full list"
        );
        Ok(Some(ListedObjects { format: present.format.clone(), objects, version: metadata.version }))
    }

    async fn fetch(&self, changed: &[&Object], version: u64) -> Result<BTreeMap<StoreKey, Object>, RequestError> {
        let requests: Vec<_> =
            changed.iter().map(|object| self.fetch_one(object.key.clone(), version).boxed()).collect();
        let objects: Vec<_> = stream::iter(requests).buffer_unordered(CONCURRENT).try_collect().await?;
        Ok(objects.into_iter().flatten().map(|object| (object.key.clone(), object)).collect())
    }

    async fn fetch_one(&self, key: StoreKey, version: u64) -> Result<Vec<Object>, RequestError> {
        let mut fields = format!("metadata.name={}", key.name());
        if !key.namespace().is_empty() {
            fields = format!("{fields},metadata.namespace={}", key.namespace());
        }
        let more = format!("&fieldSelector={}&resourceVersion={version}&resourceVersionMatch=Exact", escaped(&fields));
        let listed = self.pages(ListForm::Objects, &more).await?;
        // Objects in another encoding than those of the store do not belong to it: all are listed.
        match listed.format == self.store.snapshot().format {
            true => Ok(listed.objects),
            false => Err(RequestError::Expired),
        }
    }
}

/// Whether the metadata of the objects is a small part of them.
fn is_worthwhile(present: &Snapshot) -> bool {
    let count = present.objects.size();
    if count < MIN_OBJECTS {
        return false;
    }
    let type_meta = present.format.type_meta.clone();
    let sample = present.objects.values().step_by(count.div_ceil(SAMPLE));
    let (mut metadata, mut all) = (0, 0);
    for object in sample {
        let document = present.format.document(object.bytes.clone());
        let Ok(only) = document.only_metadata(&type_meta) else { return false };
        metadata += only.len();
        all += object.bytes.len();
    }
    metadata * MAX_METADATA <= all
}
