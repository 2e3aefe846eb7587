//! Reflectors and the store that they fill.
//!
//! A reflector lists and watches one resource and writes its objects, as JSON bytes without managed fields, into the store.
//! Readers take a [`StoreSnapshot`]: one consistent version of all objects and of the node's addresses. [`FileObjects`]
//! answers the same queries from files.
//!
//! Memory: each object once per lookup. A snapshot is a pointer. Equal lookups share one reflector, which stops when its
//! last handle is dropped.
//!
//! Modules depend on each other in one direction only:
//!
//! ```text
//! node_addresses ─► reflectors ─► reflector ─► list, watch ─► discovery ─► resource_client ─► error
//!       │                └──────────────┴─► snapshot ─► change           (all) ─► timing
//!       └─► netlink                            │
//! file_objects, list, watch ─► stored_object ─► indexed_objects ─► change
//! resource_stores ─► disk ─► cache ─► resource_client, snapshot
//!       └─► store_reader
//! resource_client, cache ─► uplink
//! ```

pub mod cache;
mod change;
mod discovery;
pub mod disk;
mod error;
mod file_objects;
mod indexed_objects;
mod list;
mod netlink;
mod node_addresses;
mod peers;
mod query;
mod reflector;
mod reflectors;
mod resource_client;
mod resource_stores;
mod snapshot;
mod store_key;
mod store_reader;
mod stored_object;
mod timing;
mod uplink;
mod watch;

pub use change::{Change, Changes, ObjectKey};
pub use error::ReflectorError;
pub use file_objects::{FileObjects, FileObjectsError, read_objects};
pub use netlink::NetlinkEvents;
pub use node_addresses::watch_addresses;
pub use peers::{PeerClient, Peers, is_shared};
pub use reflector::{ReflectorClient, ReflectorState};
pub use reflectors::{ReflectorHandle, ReflectorStatus, Reflectors};
pub use resource_stores::{ResourceStores, ResourceStoresConfig, StoreHandle, UserClients};
pub use snapshot::StoreSnapshot;
pub use store_key::StoreKey;
pub use store_reader::{ImpersonatedUser, StoreReader};
pub use timing::ReflectorTiming;
pub use uplink::Received;

#[cfg(test)]
mod tests;
