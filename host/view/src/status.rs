//! What the admin port shows of stores and views.

use std::sync::Arc;

use weir_runtime::ChainVersion;
use weir_store::cache::{Collection, StoreStatus};
use weir_store::disk::DiskStoreStatus;
use weir_store::{ReflectorError, StoreHandle, StoreReader};

use super::object::ViewOutcome;
use super::scope;
use super::state::View;

/// A store and its views. There are at most as many as the limits of stores and views allow.
#[derive(Debug)]
pub struct CacheStatus {
    /// What the store holds.
    pub collection: Collection,
    /// The identity with which it is read.
    pub reader: StoreReader,
    /// Size, version and state.
    pub store: StoreStatus,
    /// What of it is on disk; `None` if nothing is.
    pub disk: Option<DiskStoreStatus>,
    /// Its views.
    pub views: Vec<Arc<View>>,
}

/// A view at one moment.
#[derive(Debug)]
pub struct ViewStatus {
    /// The version that clients get.
    pub version: u64,
    /// The version of the chain that made the outcomes; `None` without a chain.
    pub chain: Option<ChainVersion>,
    /// The version up to which a client that continues gets the present state; `None` until the API server has said.
    pub stamp: Option<u64>,
    /// Open watches.
    pub watches: usize,
    /// Objects that clients do not see.
    pub hidden: usize,
    /// Objects that clients see changed.
    pub edited: usize,
    /// The bytes of the changed objects.
    pub edited_bytes: usize,
    /// Objects whose last good outcome stands in, or that have none, because a filter failed.
    pub degraded: usize,
    /// The events in the history.
    pub events: usize,
    /// The bytes that the history keeps alive.
    pub event_bytes: usize,
}

impl CacheStatus {
    pub(super) fn of(store: &StoreHandle, views: Vec<Arc<View>>) -> Self {
        Self {
            collection: store.collection().clone(),
            reader: store.reader().clone(),
            store: store.status(),
            disk: store.disk_status(),
            views,
        }
    }

    /// Why the store fails, if clients read it and none of them brings it about. The notice `failing-cache`, the state `failing` and
    /// the alert on that state share this: none is seen without the others, but that the notice `offline` stands for the first while
    /// no API server answers. A failing lookup has a notice of its own.
    #[must_use]
    pub fn fault(&self) -> Option<&ReflectorError> {
        let error = self.store.error.as_ref().filter(|_| !self.views.is_empty())?;
        is_of_node(&self.reader, self.collection.is_whole(), error).then_some(error)
    }

    /// The state of the store, as a label.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match &self.store {
            _ if self.fault().is_some() => "failing",
            store if store.error.is_some() => "error",
            store if !store.synced => "syncing",
            store if store.stale => "stale",
            _ => "synced",
        }
    }
}

/// Whether an error of a watch cache is a fault of the node: no client of it brings it about by what it asks for, its permissions or
/// its share, and a resource that the API server does not serve has no objects. What a client may choose, such as an API that fails,
/// counts if kubelet reads it: with the node credential, or by a certificate of a node's user.
fn is_of_node(reader: &StoreReader, is_whole: bool, error: &ReflectorError) -> bool {
    let is_daemons = *reader == StoreReader::Daemon;
    let is_kubelets = match reader {
        StoreReader::Private(reader) => scope::is_of_node(reader),
        reader => scope::is_of_node(reader),
    };
    match error {
        ReflectorError::Forbidden { .. } => is_daemons,
        ReflectorError::Rejected { .. } | ReflectorError::TooLarge { .. } => is_daemons && is_whole,
        // The user of a certificate is impersonated, so that 401 rejects the daemon's credential.
        ReflectorError::Unauthorized { .. }
        | ReflectorError::Unavailable { .. }
        | ReflectorError::InvalidResponse { .. } => is_daemons || is_kubelets,
        _ => false,
    }
}

impl View {
    /// Counts outcomes. The cost is one pass over the objects.
    pub fn status(&self) -> ViewStatus {
        let (events, event_bytes) = self.history_size();
        let snapshot = self.snapshot();
        let (mut hidden, mut edited, mut edited_bytes) = (0, 0, 0);
        for object in snapshot.objects.values() {
            match &object.outcome {
                ViewOutcome::Hidden => hidden += 1,
                ViewOutcome::Edited(bytes) => {
                    edited += 1;
                    edited_bytes += bytes.len();
                }
                ViewOutcome::Unchanged | ViewOutcome::Failed(_) => {}
            }
        }
        ViewStatus {
            version: snapshot.version,
            chain: snapshot.chain,
            stamp: self.stamp(),
            watches: self.open_watches(),
            hidden,
            edited,
            edited_bytes,
            degraded: self.degraded_objects(),
            events,
            event_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_kube::GroupResource;
    use weir_store::ImpersonatedUser;

    use super::*;

    #[test]
    fn what_a_client_brings_about_is_no_fault_of_a_watch_cache() {
        let resource = || GroupResource::new("services", "");
        let (message, reason) = (String::new, String::new);
        let forbidden = [ReflectorError::Forbidden { resource: resource(), message: message() }];
        let failed = [
            ReflectorError::Unauthorized { resource: resource(), message: message() },
            ReflectorError::Unavailable { resource: resource(), reason: reason() },
            ReflectorError::InvalidResponse { resource: resource(), reason: reason() },
        ];
        let asked = [
            ReflectorError::Rejected { resource: resource(), code: 400, message: message() },
            ReflectorError::TooLarge { resource: resource(), limit: 1 },
        ];
        let nobody =
            [ReflectorError::NoRoom { resource: resource() }, ReflectorError::NotServed { resource: resource() }];
        let user = |user: &str, group: &str| {
            StoreReader::User(Arc::new(ImpersonatedUser { user: user.to_owned(), groups: vec![group.to_owned()] }))
        };
        let kubelet = user("system:node:a", "system:nodes");
        let client = StoreReader::Client("hash".into());
        let private = |reader: StoreReader| StoreReader::Private(Arc::new(reader));
        for (reader, is_whole, of_forbidden, of_failed, of_asked) in [
            (StoreReader::Daemon, true, true, true, true),
            (StoreReader::Daemon, false, true, true, false),
            (StoreReader::Node, true, false, true, false),
            (kubelet.clone(), true, false, true, false),
            (user("jane", "system:nodes"), true, false, false, false),
            (user("system:node:a", "system:masters"), true, false, false, false),
            (private(StoreReader::Daemon), true, false, false, false),
            (private(StoreReader::Node), true, false, true, false),
            (private(kubelet), true, false, true, false),
            (private(user("jane", "dev")), true, false, false, false),
            (private(client.clone()), true, false, false, false),
            (client, true, false, false, false),
        ] {
            let of = |errors: &[ReflectorError], expected: bool| {
                errors.iter().all(|error| is_of_node(&reader, is_whole, error) == expected)
            };
            let found = of(&forbidden, of_forbidden) && of(&failed, of_failed) && of(&asked, of_asked);
            assert!(found, "{reader:?} {is_whole}");
            assert!(!nobody.iter().any(|error| is_of_node(&reader, is_whole, error)), "{reader:?}");
        }
    }
}
