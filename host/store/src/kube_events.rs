//! The events of a store in the types of kube, for controllers and reflectors of other programs.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event};
use serde::de::{DeserializeOwned, Error as _};

use super::cache::{Object, ObjectFormat, Snapshot};
use super::resource_stores::StoreHandle;

/// A reader of the events of a store.
struct EventReader {
    store: StoreHandle,
    /// What was read last, and the position in the history from which on events change it; `None` before the first read.
    read: Option<(Arc<Snapshot>, u64)>,
}

impl StoreHandle {
    /// Returns the present objects and later changes, as `kube::runtime::watcher` does, but from the store: the same
    /// combinators follow, `reflect` and `Controller::for_stream` among them.
    ///
    /// The present objects are one `Init`, once the store is synced, be it from disk. Every later event is an `Apply` or a
    /// `Delete`, also after a list: unchanged objects are not repeated. The stream never ends, and keeps the store open. A slow
    /// reader keeps the objects that it read last in memory. Where the history has not waited for it, it gets the difference to
    /// the present ones.
    ///
    /// # Errors
    /// An item is an error if an object is not readable as `K`. The next items are those of other objects.
    pub fn kube_events<K>(&self) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
    where
        K: DeserializeOwned + Send + 'static,
    {
        let reader = EventReader { store: self.clone(), read: None };
        stream::unfold(reader, async |mut reader| Some((reader.next().await, reader))).flat_map(stream::iter)
    }
}

impl EventReader {
    /// Waits for changes, and returns their events.
    async fn next<K: DeserializeOwned>(&mut self) -> Vec<watcher::Result<Event<K>>> {
        // The handle keeps the senders alive: the waits end without an error.
        match &self.read {
            None => drop(self.store.state().wait_for(|state| state.synced).await),
            // A cleared history ends beyond each earlier position, also if nothing follows.
            Some((_, position)) => drop(self.store.subscribe().wait_for(|end| end > position).await),
        }
        let (snapshot, end) = self.store.snapshot_and_position();
        let events = match &self.read {
            None => initial(&snapshot),
            Some((before, position)) => {
                let count = usize::try_from(end.saturating_sub(*position)).unwrap_or(usize::MAX);
                match self.store.events_from(*position, count) {
                    Ok(events) => {
                        let changes = events.iter().map(|event| (event.old.as_ref(), event.new.as_ref()));
                        changes.filter_map(|(old, new)| change(before, old, &snapshot, new)).collect()
                    }
                    Err(_) => difference(before, &snapshot),
                }
            }
        };
        self.read = Some((snapshot, end));
        events
    }
}

fn initial<K: DeserializeOwned>(snapshot: &Snapshot) -> Vec<watcher::Result<Event<K>>> {
    let objects = snapshot.objects.values().map(|object| Ok(Event::InitApply(read(&snapshot.format, object)?)));
    std::iter::once(Ok(Event::Init)).chain(objects).chain([Ok(Event::InitDone)]).collect()
}

/// What leads from one snapshot to a later one, if the history does not say it.
fn difference<K: DeserializeOwned>(before: &Snapshot, after: &Snapshot) -> Vec<watcher::Result<Event<K>>> {
    let deleted = before.objects.iter().filter(|(key, _)| !after.objects.contains_key(*key));
    let deleted = deleted.filter_map(|(_, old)| change(before, Some(old), after, None));
    let same_format = before.format == after.format;
    let changed = after.objects.iter().filter(|(key, new)| !(same_format && before.objects.get(*key) == Some(*new)));
    deleted.chain(changed.filter_map(|(_, new)| change(before, None, after, Some(new)))).collect()
}

/// The event of one object; `None` if only the version of the store moved.
fn change<K: DeserializeOwned>(
    before: &Snapshot,
    old: Option<&Arc<Object>>,
    after: &Snapshot,
    new: Option<&Arc<Object>>,
) -> Option<watcher::Result<Event<K>>> {
    match (old, new) {
        (_, Some(new)) => Some(read(&after.format, new).map(Event::Apply)),
        (Some(old), None) => Some(read(&before.format, old).map(Event::Delete)),
        (None, None) => None,
    }
}

/// Reads an object as kube reads the JSON of a response.
fn read<K: DeserializeOwned>(format: &ObjectFormat, object: &Object) -> watcher::Result<K> {
    let json = format.document(object.bytes.clone()).to_json().map_err(serde_json::Error::custom);
    let object = json.and_then(|json| serde_json::from_str(&json));
    object.map_err(|error| watcher::Error::WatchFailed(kube::Error::SerdeError(error)))
}
