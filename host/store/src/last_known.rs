//! What was last known of single objects and of selections, for lookups whose absence must not undo what the object said: a
//! deleted Node keeps its pool, and a pool without NodeBuckets its members. A filter names them by reading them, so that they are
//! few.
//!
//! They are kept on disk as one value, as JSON: a selection is an array. It is read before the first filter is loaded, and written when
//! what is read has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};
use weir_document::{Document, path};
use weir_spec::{CachedObject, LookupSpec, Selection};

use super::cluster_watch::{ClusterChanges, ClusterWatch};
use super::disk::{CachedValue, DiskCache, DiskUnusable};

/// The most objects and selections. Another one replaces the one that was read longest ago.
const OBJECTS: usize = 64;
/// The largest object or selection in bytes. A larger one is not kept.
const LARGEST: usize = 256 << 10;
/// The name of the value on disk.
const VALUE: &str = "last-known";

/// The objects.
pub(super) struct LastKnown {
    state: Mutex<State>,
    disk: Option<Arc<DiskCache>>,
    loaded: OnceCell<()>,
}

struct State {
    objects: HashMap<Box<str>, Entry>,
    reads: u64,
    /// Notified when the known content is of another cluster.
    changes: watch::Receiver<ClusterChanges>,
}

/// What a lookup returned.
#[derive(Clone)]
enum Known {
    Object(Arc<CachedObject>),
    Selection(Arc<Selection>),
}

struct Entry {
    known: Known,
    /// The version of the snapshot in which it was last present.
    version: u64,
    /// The number of the last read.
    read: u64,
    /// Whether it is used although it is gone.
    stands_in: bool,
}

impl LastKnown {
    pub(super) fn new(disk: Option<Arc<DiskCache>>, cluster: &ClusterWatch) -> Self {
        let state = State { objects: HashMap::new(), reads: 0, changes: cluster.changes() };
        Self { state: Mutex::new(state), disk, loaded: OnceCell::new() }
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
                let known = Known::of_json(&json);
                state.objects.entry(key).or_insert(Entry { known, version: 0, read: 0, stands_in: false });
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
        self.note_known(object_key(lookup, namespace, name), version, Known::Object(object.clone()));
    }

    /// Notes a selection that has objects in a snapshot of this version. `namespace`: none means all.
    pub(super) fn note_selection(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
        version: u64,
        selection: &Arc<Selection>,
    ) {
        self.note_known(selection_key(lookup, namespace, label_selector), version, Known::Selection(selection.clone()));
    }

    fn note_known(&self, key: Box<str>, version: u64, known: Known) {
        let mut state = self.lock();
        let read = state.next_read();
        if let Some(entry) = state.objects.get_mut(&key) {
            entry.read = read;
            if std::mem::take(&mut entry.stands_in) {
                tracing::info!(object = %key, "looked-up object is there again");
            }
            if entry.version > version || entry.known.is(&known) {
                return;
            }
            if known.bytes() <= LARGEST {
                let is_new = !entry.known.has_the_bytes_of(&known);
                (entry.known, entry.version) = (known, version);
                if !is_new {
                    return;
                }
            } else {
                // Its earlier, smaller state is not the last known one.
                tracing::warn!(object = %key, limit = LARGEST, "looked-up object is too large to be kept, filters go on without it once it is gone");
                state.objects.remove(&key);
            }
        } else if known.bytes() <= LARGEST {
            if state.objects.len() >= OBJECTS {
                let oldest = state.objects.iter().min_by_key(|(_, entry)| entry.read).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| state.objects.remove(&oldest));
            }
            state.objects.insert(key, Entry { known, version, read, stands_in: false });
        } else {
            return;
        }
        self.write(&state);
    }

    /// Returns what was last known of an object that does not exist, or that cannot be seen.
    pub(super) fn get(&self, lookup: &LookupSpec, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        match self.known(&object_key(lookup, namespace, name))? {
            Known::Object(object) => Some(object),
            Known::Selection(_) => None,
        }
    }

    /// Returns what was last known of a selection of which nothing exists, or can be seen.
    pub(super) fn selection(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Option<Arc<Selection>> {
        match self.known(&selection_key(lookup, namespace, label_selector))? {
            Known::Selection(selection) => Some(selection),
            Known::Object(_) => None,
        }
    }

    fn known(&self, key: &str) -> Option<Known> {
        let mut state = self.lock();
        let read = state.next_read();
        let entry = state.objects.get_mut(key)?;
        entry.read = read;
        if !std::mem::replace(&mut entry.stands_in, true) {
            tracing::warn!(
                object = %key,
                "looked-up object is gone or cannot be seen: filters go on with what was last known of it, such as its node pool"
            );
        }
        Some(entry.known.clone())
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
        let objects: BTreeMap<_, _> =
            state.objects.iter().filter_map(|(key, entry)| Some((key.clone(), entry.known.to_json()?))).collect();
        if let Ok(bytes) = serde_json::to_vec(&objects) {
            disk.put_later(VALUE, CachedValue::lasting(bytes), false);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.changes.has_changed().unwrap_or(false) {
            state.changes.mark_unchanged();
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

impl Known {
    fn of_json(json: &Value) -> Self {
        let object = |json: &Value| Arc::new(CachedObject::new(Document::json(Bytes::from(json.to_string()))));
        match json {
            Value::Array(objects) => Self::Selection(Arc::new(Selection::new(objects.iter().map(object).collect()))),
            json => Self::Object(object(json)),
        }
    }

    fn to_json(&self) -> Option<Value> {
        let json = |object: &Arc<CachedObject>| object.document().deserialize_at(&path!("$")).ok()?;
        match self {
            Self::Object(object) => json(object),
            Self::Selection(selection) => selection.objects().iter().map(json).collect(),
        }
    }

    fn objects(&self) -> &[Arc<CachedObject>] {
        match self {
            Self::Object(object) => std::slice::from_ref(object),
            Self::Selection(selection) => selection.objects(),
        }
    }

    fn bytes(&self) -> usize {
        self.objects().iter().map(|object| object.document().bytes().len()).sum()
    }

    /// Whether both are the same in memory.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other),
            (Self::Selection(one), Self::Selection(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn has_the_bytes_of(&self, other: &Self) -> bool {
        let (one, other) = (self.objects(), other.objects());
        let mut pairs = one.iter().zip(other);
        one.len() == other.len() && pairs.all(|(one, other)| one.document().bytes() == other.document().bytes())
    }
}

/// Identifies an object by its resource, namespace and name. A lookup of its metadata alone keeps another one.
fn object_key(lookup: &LookupSpec, namespace: &str, name: &str) -> Box<str> {
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{separator}{name}{}", lookup.resource, content(lookup)).into()
}

/// Identifies a selection likewise. It is one of what the lookup covers.
fn selection_key(lookup: &LookupSpec, namespace: Option<&str>, label_selector: &str) -> Box<str> {
    let (namespace, separator) = (namespace.unwrap_or_default(), if namespace.is_some() { "/" } else { "" });
    let declared = lookup.label_selector.as_deref().or(lookup.name.as_deref());
    let declared = declared.filter(|declared| *declared != label_selector).map(|declared| format!(" of {declared}"));
    let declared = declared.unwrap_or_default();
    format!("{} {namespace}{separator}?{label_selector}{declared}{}", lookup.resource, content(lookup)).into()
}

fn content(lookup: &LookupSpec) -> &'static str {
    if lookup.metadata_only { " (metadata)" } else { "" }
}

impl std::fmt::Debug for LastKnown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastKnown").field("objects", &self.lock().objects.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskConfig;

    fn object(pool: &str) -> Arc<CachedObject> {
        let json = format!(r#"{{"metadata":{{"name":"edge-a","labels":{{"pool":"{pool}"}}}}}}"#);
        Arc::new(CachedObject::new(Document::json(json.into())))
    }

    fn pool(known: &LastKnown, lookup: &LookupSpec) -> Option<String> {
        known.get(lookup, "", "edge-a")?.document().label("pool").unwrap().map(|pool| pool.into_owned())
    }

    #[test]
    fn an_object_that_is_gone_is_as_it_was_in_the_newest_snapshot_that_had_it() {
        let (known, lookup) =
            (LastKnown::new(None, &ClusterWatch::default()), LookupSpec::all("nodes".parse().unwrap()));
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

    #[tokio::test]
    async fn a_selection_of_which_nothing_is_left_is_as_it_was_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "edge-a"), Arc::default());
        let lookup = LookupSpec::all("nodebuckets.apps.openyurt.io".parse().unwrap());
        let selection = |pools: &[&str]| Arc::new(Selection::new(pools.iter().map(|pool| object(pool)).collect()));
        let pools = |known: &LastKnown, namespace| {
            let selection = known.selection(&lookup, namespace, "pool=a")?;
            let pool = |object: &Arc<CachedObject>| object.document().label("pool").unwrap().unwrap().into_owned();
            Some(selection.objects().iter().map(pool).collect::<Vec<_>>())
        };
        let disk = open();
        let known = LastKnown::new(Some(disk.clone()), &disk.cluster_watch());
        known.note_selection(&lookup, None, "pool=a", 1, &selection(&["a"]));
        known.note_selection(&lookup, None, "pool=a", 2, &selection(&["a", "b"]));
        assert_eq!(pools(&known, Some("default")), None, "another selection");
        assert_eq!(pools(&known, None), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(known.standing_in(), ["nodebuckets.apps.openyurt.io ?pool=a"]);
        disk.close().await;
        let known = LastKnown::new(Some(open()), &ClusterWatch::default());
        known.load().await;
        assert_eq!(pools(&known, None), Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn objects_are_bounded_in_number_and_size() {
        let (known, lookup) =
            (LastKnown::new(None, &ClusterWatch::default()), LookupSpec::all("nodes".parse().unwrap()));
        for n in 0..=OBJECTS {
            known.note(&lookup, "", &n.to_string(), 1, &object("a"));
        }
        assert!(known.get(&lookup, "", "0").is_none() && known.get(&lookup, "", "1").is_some());
        known.note(&lookup, "", "large", 1, &object(&"x".repeat(LARGEST)));
        assert!(known.get(&lookup, "", "large").is_none());
        known.note(&lookup, "", "1", 2, &object(&"x".repeat(LARGEST)));
        assert!(known.get(&lookup, "", "1").is_none(), "neither as it was nor as it is");
    }
}
