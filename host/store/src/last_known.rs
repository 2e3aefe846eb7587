//! What was last known of single objects, for lookups whose absence must not undo what the object said: a deleted Node keeps its
//! pool. A filter names these objects by reading them, so that they are few.
//!
//! The objects are kept on disk as one value, as JSON. It is read before the first filter is loaded, and written when an object
//! that is read has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};
use weir_document::{CachedObject, Document};
use weir_kube::LookupSpec;

use super::disk::{CachedValue, ClusterChanges, DiskCache, DiskUnusable};

/// The most objects. Another one replaces the one that was read longest ago.
const OBJECTS: usize = 64;
/// The largest object in bytes. A larger one is not kept.
const LARGEST: usize = 256 << 10;
/// The name of the value on disk.
const VALUE: &str = "last-known";

/// The objects.
pub(super) struct LastKnown {
    state: Mutex<State>,
    disk: Option<Arc<DiskCache>>,
    loaded: OnceCell<()>,
}

#[derive(Default)]
struct State {
    objects: HashMap<Box<str>, Entry>,
    reads: u64,
    /// Tells when what is known is of another cluster.
    changes: Option<watch::Receiver<ClusterChanges>>,
}

struct Entry {
    object: Arc<CachedObject>,
    /// The version of the snapshot in which it was last present.
    version: u64,
    /// The number of the last read.
    read: u64,
    /// Whether it is used although it is gone.
    stands_in: bool,
}

impl LastKnown {
    pub(super) fn new(disk: Option<Arc<DiskCache>>) -> Self {
        let changes = disk.as_ref().map(|disk| disk.cluster_changes());
        Self { state: Mutex::new(State { changes, ..State::default() }), disk, loaded: OnceCell::new() }
    }

    /// Reads what is on disk, once; again if it cannot be read now.
    pub(super) async fn load(&self) {
        let read = self.loaded.get_or_try_init(|| async {
            let Some(disk) = &self.disk else { return Ok(()) };
            let value = disk.read(VALUE).await?;
            let objects =
                value.and_then(|value| serde_json::from_slice::<BTreeMap<Box<str>, Value>>(&value.bytes).ok());
            let mut state = self.lock();
            for (key, json) in objects.into_iter().flatten().take(OBJECTS) {
                let object = Arc::new(CachedObject::new(Document::json(Bytes::from(json.to_string()))));
                state.objects.entry(key).or_insert(Entry { object, version: 0, read: 0, stands_in: false });
            }
            Ok::<_, DiskUnusable>(())
        });
        if read.await.is_err() {
            tracing::warn!("what was last known of looked-up objects cannot be read from disk now");
        }
    }

    /// Notes an object that exists in a snapshot of this version.
    pub(super) fn note(
        &self,
        lookup: &LookupSpec,
        namespace: &str,
        name: &str,
        version: u64,
        object: &Arc<CachedObject>,
    ) {
        let key = key(lookup, namespace, name);
        let mut state = self.lock();
        let read = state.next_read();
        if let Some(entry) = state.objects.get_mut(&key) {
            entry.read = read;
            if std::mem::take(&mut entry.stands_in) {
                tracing::info!(object = %key, "looked-up object is there again");
            }
            if entry.version > version || Arc::ptr_eq(&entry.object, object) {
                return;
            }
            let is_new = entry.object.document().bytes() != object.document().bytes();
            (entry.object, entry.version) = (object.clone(), version);
            if !is_new {
                return;
            }
        } else if object.document().bytes().len() <= LARGEST {
            if state.objects.len() >= OBJECTS {
                let oldest = state.objects.iter().min_by_key(|(_, entry)| entry.read).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| state.objects.remove(&oldest));
            }
            state.objects.insert(key, Entry { object: object.clone(), version, read, stands_in: false });
        } else {
            return;
        }
        self.write(&state);
    }

    /// Returns what was last known of an object that does not exist, or that cannot be seen.
    pub(super) fn get(&self, lookup: &LookupSpec, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        let key = key(lookup, namespace, name);
        let mut state = self.lock();
        let read = state.next_read();
        let entry = state.objects.get_mut(&key)?;
        entry.read = read;
        if !std::mem::replace(&mut entry.stands_in, true) {
            tracing::warn!(
                object = %key,
                "looked-up object is gone or cannot be seen: filters go on with what was last known of it, such as its node pool"
            );
        }
        Some(entry.object.clone())
    }

    /// Returns the objects that are gone and still used.
    pub(super) fn standing_in(&self) -> Vec<String> {
        let state = self.lock();
        let mut names: Vec<_> =
            state.objects.iter().filter(|(_, entry)| entry.stands_in).map(|(key, _)| key.to_string()).collect();
        names.sort();
        names
    }

    fn write(&self, state: &State) {
        let Some(disk) = &self.disk else { return };
        let json =
            |entry: &Entry| -> Option<Value> { serde_json::from_str(&entry.object.document().to_json().ok()?).ok() };
        let objects: BTreeMap<_, _> =
            state.objects.iter().filter_map(|(key, entry)| Some((key.clone(), json(entry)?))).collect();
        if let Ok(bytes) = serde_json::to_vec(&objects) {
            disk.put_later(VALUE, CachedValue::lasting(bytes), false);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = state.changes.as_mut().filter(|changes| changes.has_changed().unwrap_or(false));
        if let Some(changes) = changes {
            changes.mark_unchanged();
            state.objects.clear();
        }
        state
    }
}

impl State {
    fn next_read(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }
}

/// Identifies an object by its resource, namespace and name. A lookup of its metadata alone keeps another one.
fn key(lookup: &LookupSpec, namespace: &str, name: &str) -> Box<str> {
    let metadata = if lookup.metadata_only { " (metadata)" } else { "" };
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{separator}{name}{metadata}", lookup.resource).into()
}

impl std::fmt::Debug for LastKnown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastKnown").field("objects", &self.lock().objects.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pool: &str) -> Arc<CachedObject> {
        let json = format!(r#"{{"metadata":{{"name":"edge-a","labels":{{"pool":"{pool}"}}}}}}"#);
        Arc::new(CachedObject::new(Document::json(json.into())))
    }

    fn pool(known: &LastKnown, lookup: &LookupSpec) -> Option<String> {
        known.get(lookup, "", "edge-a")?.document().label("pool").unwrap().map(|pool| pool.into_owned())
    }

    #[test]
    fn an_object_that_is_gone_is_as_it_was_in_the_newest_snapshot_that_had_it() {
        let (known, lookup) = (LastKnown::new(None), LookupSpec::all("nodes".parse().unwrap()));
        assert_eq!(pool(&known, &lookup), None);
        known.note(&lookup, "", "edge-a", 2, &object("new"));
        known.note(&lookup, "", "edge-a", 1, &object("old"));
        assert!(known.standing_in().is_empty());
        assert_eq!(pool(&known, &lookup).as_deref(), Some("new"));
        assert_eq!(known.standing_in(), ["nodes edge-a"]);
        known.note(&lookup, "", "edge-a", 3, &object("other"));
        assert!(known.standing_in().is_empty());
        let metadata = LookupSpec { metadata_only: true, ..lookup };
        assert_eq!(pool(&known, &metadata), None, "another lookup has other objects");
    }

    #[test]
    fn objects_are_bounded_in_number_and_size() {
        let (known, lookup) = (LastKnown::new(None), LookupSpec::all("nodes".parse().unwrap()));
        for n in 0..=OBJECTS {
            known.note(&lookup, "", &n.to_string(), 1, &object("a"));
        }
        assert!(known.get(&lookup, "", "0").is_none() && known.get(&lookup, "", "1").is_some());
        known.note(&lookup, "", "large", 1, &object(&"x".repeat(LARGEST)));
        assert!(known.get(&lookup, "", "large").is_none());
    }
}
