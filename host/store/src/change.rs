//! Notifications of changes in the store, by which the filter layer validates recorded reads.

use std::sync::Arc;

use tokio::sync::broadcast;
use weir_spec::LookupSpec;

use super::store_key::StoreKey;

/// A change of the store. The snapshot contains the change before the notification is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Objects of a lookup were added, updated or deleted. Never empty; more than 256 keys are reported as `AllObjects`.
    Objects {
        /// The lookup of the reflector.
        lookup: Arc<LookupSpec>,
        /// The sorted keys of the objects.
        keys: Vec<StoreKey>,
    },
    /// Any object of a lookup may have changed.
    AllObjects {
        /// The lookup of the reflector.
        lookup: Arc<LookupSpec>,
    },
    /// The addresses of the node changed.
    Addresses,
    /// The receiver was too slow and missed notifications. Anything may have changed.
    Lagged,
}

/// The maximum number of keys of one [`Change::Objects`].
pub(super) const MAX_KEYS: usize = 256;
/// How many notifications are queued for a receiver before it gets [`Change::Lagged`].
pub(super) const QUEUE_LENGTH: usize = 1024;

/// A receiver of all changes after its subscription.
#[derive(Debug)]
pub struct Changes(pub(super) broadcast::Receiver<Arc<Change>>);

impl Changes {
    /// Waits for the next change; `None` after the store was dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Change>> {
        match self.0.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Arc::new(Change::Lagged)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Returns a queued change without waiting.
    pub fn try_next(&mut self) -> Option<Arc<Change>> {
        match self.0.try_recv() {
            Ok(change) => Some(change),
            Err(broadcast::error::TryRecvError::Lagged(_)) => Some(Arc::new(Change::Lagged)),
            Err(_) => None,
        }
    }
}
