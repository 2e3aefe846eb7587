//! Stores of what the API servers have, and the lookups of filters on top of them.
//!
//! A store holds the objects of one collection: one reflector lists and watches them, and many readers share them. Clients'
//! views and the lookups of filters open stores in one place, [`ResourceStores`], so that each collection is read once.
//!
//! A lookup indexes the objects of a store. Readers take a [`LookupSnapshot`]: one consistent version of the objects of all
//! lookups and of the node's addresses. [`FileObjects`] answers the same queries from files.
//!
//! Other programs use the stores as a source of kube-rs controllers, see `examples/controller.rs`. They run what the daemon runs:
//! [`disk::DiskCache::run`], [`ResourceStores::confirm_cluster`], and [`disk::DiskCache::close`] while their stores are open.
//!
//! Memory: the bytes of an object once per store; per lookup a pointer to them and what was read of them. A snapshot is a
//! pointer. Equal lookups share their index, which is dropped with the last handle.
//!
//! Modules depend on each other in one direction only:
//!
//! ```text
//! node_addresses ─► reflectors ─► lookup ─► lookup_follower ─► resource_stores ─► disk ─► cache ─► resource_client ─► error
//!       │                │          └─► discovery ─► resource_client   └─► store_reader    └─► stored_object
//!       └─► netlink      └─► snapshot ─► change ─► store_key
//!                               └─► indexed_objects ◄─ file_objects, lookup_follower
//! resource_client, cache ─► uplink
//! resource_stores, disk, last_known ─► cluster_watch
//! cluster_identity, kube_events ─► resource_stores
//! ```

pub mod cache;
mod change;
mod cluster_identity;
mod cluster_watch;
mod discovery;
pub mod disk;
mod error;
mod file_objects;
mod indexed_objects;
mod kube_events;
mod last_known;
mod lookup;
mod lookup_follower;
mod netlink;
mod node_addresses;
mod peers;
mod query;
mod reflector_state;
mod reflectors;
mod resource_client;
mod resource_stores;
mod snapshot;
mod store_key;
mod store_reader;
mod stored_object;
mod timing;
mod uplink;

pub use cache::check::{CacheDifference, CheckConfig, CheckMetrics};
pub use cache::reflector::ReflectorClient;
pub use change::{Change, Changes};
pub use cluster_watch::{ClusterChanges, ClusterWatch};
pub use error::ReflectorError;
pub use file_objects::{FileObjects, FileObjectsError, read_objects};
pub use netlink::NetlinkEvents;
pub use peers::{PeerClient, PeerOrder, Peers};
pub use reflector_state::ReflectorState;
pub use reflectors::{ReflectorHandle, ReflectorStatus, Reflectors};
pub use resource_stores::{DelegatedClients, ResourceStores, ResourceStoresConfig, StoreHandle, UserClients};
pub use snapshot::LookupSnapshot;
pub use store_key::StoreKey;
pub use store_reader::{ImpersonatedUser, StoreReader};
pub use timing::ReflectorTiming;
pub use uplink::UplinkLimit;

#[cfg(test)]
mod tests;
