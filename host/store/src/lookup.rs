//! The task of one lookup: find the API version of its resource, open the store that has the objects, and index them.
//!
//! The version that the API server served last is kept on disk, so that a daemon that starts without it opens the store that
//! it had. A lookup that is new while the API server is unreachable reads the store that a view of its resource has.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};
use weir_spec::{LookupSpec, Presence};

use super::cache::ResourceStore;
use super::discovery::Discovery;
use super::disk::CachedValue;
use super::lookup_follower::{LookupFollower, LookupWriter};
use super::reflector_state::ReflectorState;
use super::resource_stores::ResourceStores;

/// The store that a lookup reads.
pub(super) type LookupSource = Arc<ArcSwapOption<ResourceStore>>;

/// The task of one lookup.
pub(super) struct LookupTask {
    stores: ResourceStores,
    discovery: Option<Discovery>,
    follower: LookupFollower,
    writer: LookupWriter,
    source: LookupSource,
    /// Whether the log says that the resource is not served.
    not_served: bool,
}

/// The version of a resource, as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ServedVersion {
    /// `None` if the API server serves no version that the filter can read.
    version: Option<String>,
}

impl LookupTask {
    pub(super) fn new(stores: ResourceStores, writer: LookupWriter, source: LookupSource) -> Self {
        let discovery = stores.daemon().map(|(client, timing)| Discovery::new(client, writer.lookup.clone(), timing));
        let follower = LookupFollower::new(writer.clone());
        Self { stores, discovery, follower, writer, source, not_served: false }
    }

    /// Runs until the task is cancelled. Cancel-safe: the objects that were written stay.
    pub(super) async fn run(mut self) {
        // Without an API server no task is started.
        let Some(mut discovery) = self.discovery.take() else { return };
        let mut kept = self.last_version().await;
        // The API server may be unreachable. The last served version holds until it answers.
        let mut present = kept.clone().or_else(|| self.version_in_use());
        if let Some(present) = &present {
            self.open(present.version.as_deref());
        }
        let mut is_served = present.is_some();
        loop {
            let served = self.ask(&mut discovery, is_served).await;
            let is_new = present.as_ref() != Some(&served);
            if is_new {
                self.open(served.version.as_deref());
            } else if !is_served {
                // The API server says that it serves what it does not: for a moment, or because the core group is not asked for.
                if !self.follower.is_complete() {
                    self.clear();
                }
                tokio::select! {
                    () = discovery.pause() => self.clear(),
                    () = self.follower.served_again() => {}
                }
            }
            if served.version.is_some() {
                self.follow(&served, &mut kept).await;
            } else if kept.as_ref() != Some(&served) {
                self.keep_version(&served).await;
                kept = Some(served.clone());
            }
            // The objects stay until it is known which version is served instead.
            (present, is_served) = (Some(served), false);
        }
    }

    /// Waits for the version that the API server serves, and reads the present store meanwhile.
    async fn ask(&mut self, discovery: &mut Discovery, is_served: bool) -> ServedVersion {
        // The served version stays: the API server may be unreachable.
        let (writer, has_objects) = (self.writer.clone(), is_served || self.follower.is_complete());
        let report = |error| {
            if !has_objects {
                writer.set_error(error)
            }
        };
        let version = discovery.version(report);
        tokio::pin!(version);
        if is_served {
            tokio::select! {
                version = &mut version => return ServedVersion { version },
                () = self.follower.run() => {}
            }
        }
        ServedVersion { version: version.await }
    }

    /// Reads the store of this version until the API server does not serve it. The version is kept on disk once the store can be,
    /// in one commit with it.
    async fn follow(&mut self, served: &ServedVersion, kept: &mut Option<ServedVersion>) {
        self.not_served = false;
        if kept.as_ref() != Some(served) {
            let store = self.source.load_full();
            let synced = async {
                match store {
                    // The handle of the follower keeps the sender alive.
                    Some(store) => drop(store.state().wait_for(|state| state.synced).await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.follower.run() => return,
                () = synced => {}
            }
            self.keep_version(served).await;
            *kept = Some(served.clone());
        }
        self.follower.run().await;
    }

    /// Reads the store of this version from now on. Without a version there are no objects.
    fn open(&mut self, version: Option<&str>) {
        match version.and_then(|version| self.stores.open_lookup(&self.writer.lookup, version)) {
            Some(store) => {
                self.source.store(Some((*store).clone()));
                self.follower.follow(store);
            }
            None => {
                self.source.store(None);
                self.follower.close();
                self.clear();
            }
        }
    }

    /// Removes all objects, because the API server does not serve the resource.
    fn clear(&mut self) {
        let resource = &self.writer.lookup.resource;
        if self.writer.lookup.optional {
            tracing::debug!(%resource, "resource is not served by the API server, treated as empty");
        } else if !self.not_served {
            tracing::warn!(
                %resource,
                "resource that a filter looks up is not served by the API server, treated as empty until it is"
            );
        }
        self.not_served = true;
        // Before the objects go, so that none of them counts as absent.
        self.writer.set_missing(Presence::NotServed);
        self.follower.clear();
        self.writer.set_state(&ReflectorState { synced: true, error: None });
    }

    /// The version that the API server served when it was last asked. The core group has one version.
    async fn last_version(&self) -> Option<ServedVersion> {
        let disk = self.stores.disk().filter(|_| !self.writer.lookup.resource.group.is_empty())?;
        serde_json::from_slice(&disk.get(&self.value_name()).await?.bytes).ok()
    }

    /// The version in which the daemon reads all objects of the resource already.
    fn version_in_use(&self) -> Option<ServedVersion> {
        let versions = self.stores.versions_in_use(&self.writer.lookup.resource);
        let wanted = &self.writer.lookup.versions;
        let version = match wanted.is_empty() {
            true => versions.first(),
            false => wanted.iter().find(|version| versions.contains(version)),
        };
        Some(ServedVersion { version: Some(version?.clone()) })
    }

    async fn keep_version(&self, served: &ServedVersion) {
        let disk = self.stores.disk().filter(|_| !self.writer.lookup.resource.group.is_empty());
        if let (Some(disk), Ok(bytes)) = (disk, serde_json::to_vec(served)) {
            // The API server is asked at each start, so an old version does no harm.
            disk.put(&self.value_name(), CachedValue::lasting(bytes), false).await;
        }
    }

    fn value_name(&self) -> String {
        let LookupSpec { resource, versions, .. } = &*self.writer.lookup;
        format!("served-version/{resource}/{}", versions.join(","))
    }
}
