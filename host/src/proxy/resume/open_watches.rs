//! Filtered watches that are open. Their resume points are saved when they end, but a client that was cut off may continue before
//! Weir notices: what an open watch has delivered counts as delivered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use weir_document::Document;

use super::ClientKey;

/// What an open watch has delivered.
#[derive(Debug)]
pub(in crate::proxy) struct Delivered {
    /// The version from which the watch continues.
    start: Box<str>,
    /// The object delivered last; its version is read when somebody asks for it.
    last: Mutex<Option<Document>>,
}

/// The open watches by client. Bounded by the open connections.
#[derive(Debug, Default)]
pub(super) struct OpenWatches(Mutex<HashMap<ClientKey, Vec<Arc<Delivered>>, RandomState>>);

impl Delivered {
    /// Notes an object that is about to be delivered.
    pub(in crate::proxy) fn note(&self, document: &Document) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(document.clone());
    }

    /// The version that the client may continue from.
    pub(in crate::proxy) fn version(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let version = last.as_ref().and_then(|last| last.resource_version().ok().flatten());
        version.as_deref().unwrap_or(&self.start).to_owned()
    }
}

impl OpenWatches {
    /// A watch begins that continues from `start`.
    pub(super) fn begin(&self, key: ClientKey, start: &str) -> Arc<Delivered> {
        let delivered = Arc::new(Delivered { start: start.into(), last: Mutex::default() });
        self.locked(|open| open.entry(key).or_default().push(delivered.clone()));
        delivered
    }

    /// A watch has ended.
    pub(super) fn end(&self, key: &ClientKey, delivered: &Arc<Delivered>) {
        self.locked(|open| {
            let Some(watches) = open.get_mut(key) else { return };
            watches.retain(|watch| !Arc::ptr_eq(watch, delivered));
            if watches.is_empty() {
                open.remove(key);
            }
        });
    }

    /// The versions that open watches of a client have delivered.
    pub(super) fn versions(&self, key: &ClientKey) -> Vec<String> {
        self.locked(|open| open.get(key).into_iter().flatten().map(|watch| watch.version()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked(|open| open.is_empty())
    }

    fn locked<T>(&self, act: impl FnOnce(&mut HashMap<ClientKey, Vec<Arc<Delivered>>, RandomState>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
