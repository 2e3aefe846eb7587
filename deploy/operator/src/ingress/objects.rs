//! The objects of the cluster that could be those of ingress controllers: a store for each kind.
//!
//! All objects of the operator's namespace are watched, not only its own: that of another owner must be seen to be left alone.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use kube::api::{DynamicObject, TypeMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

use super::{MANAGED_BY, MANAGER, POOL};
use crate::changes::Changes;
use crate::follow::Follower;
use crate::health::Health;
use crate::template::{KINDS, Kind};

/// The part in `/readyz`.
const OBJECTS: &str = "objects of ingress controllers";
/// The page of a list.
const PAGE: u32 = 100;

/// The stores. Clones share them.
#[derive(Clone)]
pub(super) struct Objects {
    stores: Arc<Vec<(&'static Kind, Store<DynamicObject>)>>,
    changed: Changes,
}

/// Fills the stores.
pub(super) struct ObjectsWatch {
    client: Client,
    namespace: String,
    writers: Vec<(&'static Kind, Writer<DynamicObject>)>,
    changed: Changes,
}

impl Objects {
    /// Empty stores, and what fills them.
    #[must_use]
    pub(super) fn new(client: Client, namespace: &str) -> (Self, ObjectsWatch) {
        let writers: Vec<_> = KINDS.iter().map(|kind| (kind, Writer::new(kind.resource()))).collect();
        let stores = Arc::new(writers.iter().map(|(kind, writer)| (*kind, writer.as_reader())).collect());
        let changed = Changes::default();
        let objects = Self { stores, changed: changed.clone() };
        (objects, ObjectsWatch { client, namespace: namespace.to_owned(), writers, changed })
    }

    /// Waits until all objects are known.
    pub(super) async fn ready(&self) {
        for (_, store) in self.stores.iter() {
            // The writers live as long as the process.
            let _ = store.wait_until_ready().await;
        }
    }

    /// Yields an item for each change of the operator's own objects.
    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        self.changed.stream()
    }

    /// An object by name.
    pub(super) fn get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Option<Arc<DynamicObject>> {
        let (kind, store) = self.stores.iter().find(|(known, _)| *known == kind)?;
        let mut key = ObjectRef::new_with(name, kind.resource());
        if let Some(namespace) = namespace {
            key = key.within(namespace);
        }
        store.get(&key)
    }

    /// The objects of an owner.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<(&'static Kind, Arc<DynamicObject>)> {
        let of_kind = |(kind, store): &(&'static Kind, Store<DynamicObject>)| {
            let owned = store.state_filter(|object| is_owned(object, uid));
            owned.into_iter().map(|object| (*kind, object)).collect::<Vec<_>>()
        };
        self.stores.iter().flat_map(of_kind).collect()
    }
}

impl ObjectsWatch {
    /// Fills the stores for ever.
    pub(super) async fn run(self, health: &Health) {
        let Self { client, namespace, writers, changed } = self;
        let (client, namespace, changes) = (&client, &*namespace, &changed);
        let mut all = FuturesUnordered::new();
        for (kind, writer) in writers {
            all.push(async move {
                let resource = kind.resource();
                let api: Api<DynamicObject> = match kind.namespaced {
                    true => Api::namespaced_with(client.clone(), namespace, &resource),
                    false => Api::all_with(client.clone(), &resource),
                };
                let events = watcher(api, watcher::Config::default().page_size(PAGE));
                let part = part(kind);
                let follower = Follower { part: &part, resource: kind.plural, changes, health };
                follower.follow(events, writer, trim, is_managed).await;
            });
        }
        while all.next().await.is_some() {}
    }
}

fn part(kind: &Kind) -> String {
    format!("{OBJECTS}: {}", kind.plural)
}

/// The parts of all stores in `/readyz`.
pub(super) fn parts() -> impl Iterator<Item = String> {
    KINDS.iter().map(part)
}

/// Drops what is not compared: memory is for the operator's own objects.
fn trim(object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
    if !is_managed(object) {
        object.data = serde_json::Value::Null;
        object.metadata.annotations = None;
    }
}

fn is_managed(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}

/// Whether a YurtIngress controls an object.
pub(super) fn is_owned(object: &DynamicObject, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Whose object it is, for people.
pub(super) fn owner_of(object: &DynamicObject) -> String {
    let manager = object.labels().get(MANAGED_BY).map(|manager| format!("managed by {manager}"));
    let owner = object.owner_references().first().map(|owner| format!("owned by {} {}", owner.kind, owner.name));
    owner.or(manager).unwrap_or_else(|| "without an owner".to_owned())
}

/// The pool of an object of the operator; `None` for a shared one.
pub(super) fn pool_of(object: &DynamicObject) -> Option<&str> {
    object.labels().get(POOL).map(String::as_str)
}

/// The whole object as JSON, for comparison.
pub(super) fn whole(object: &DynamicObject, kind: &Kind) -> serde_json::Value {
    let mut typed = object.clone();
    typed.types = Some(TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() });
    serde_json::to_value(typed).unwrap_or_default()
}
