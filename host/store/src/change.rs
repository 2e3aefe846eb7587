//! What has changed in what filters may look up: told to the filter layer, so that recorded reads are validated again.

use std::sync::Arc;

use tokio::sync::broadcast;

use weir_kube::Lookup;

/// Which object: its namespace (empty outside namespaces) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for objects outside namespaces.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// One step of what filters may look up. It is in the snapshot before it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These objects of a lookup came, went or changed. Never empty; too many to tell one by one are `Whole`.
    Objects {
        /// As it was opened.
        lookup: Arc<Lookup>,
        /// Sorted.
        keys: Vec<ObjectKey>,
    },
    /// Anything of a lookup may have changed.
    Whole {
        /// As it was opened.
        lookup: Arc<Lookup>,
    },
    /// The node's addresses changed.
    Addresses,
    /// The receiver was too slow and has missed some: anything may have changed.
    Everything,
}

/// More changed objects than this are told as [`Change::Whole`].
pub(super) const MAX_KEYS: usize = 256;
/// Changes that a slow receiver may be behind before it is told [`Change::Everything`].
pub(super) const BEHIND: usize = 1024;

/// Changes from the moment of subscribing.
#[derive(Debug)]
pub struct Changes(pub(super) broadcast::Receiver<Arc<Change>>);

impl Changes {
    /// The next change; none when there will be no more. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Change>> {
        match self.0.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Arc::new(Change::Everything)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// A change that has come already, without waiting.
    pub fn ready(&mut self) -> Option<Arc<Change>> {
        match self.0.try_recv() {
            Ok(change) => Some(change),
            Err(broadcast::error::TryRecvError::Lagged(_)) => Some(Arc::new(Change::Everything)),
            Err(_) => None,
        }
    }
}
