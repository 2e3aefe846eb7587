//! Watch caches: the objects of one collection, kept up to date by a list and a watch, with a history of recent events.
//!
//! A [`ResourceReflector`] lists and watches a [`Collection`] in one encoding, protobuf for every kind that the schema knows
//! and JSON for the rest. It writes into a [`ResourceStore`], which many readers share: a snapshot is a pointer, and each
//! reader follows the history at its own pace.
//!
//! Objects are the bytes that the API server sent, unfiltered. Those that only lookups read are without managed fields.
//!
//! Memory: each object once, and the old and new bytes of the events in the history, which is bounded.

mod changed_objects;
pub(crate) mod check;
mod collection;
mod compare;
mod consistent;
mod decode;
mod event;
mod history;
mod list;
mod list_room;
mod object;
pub(crate) mod reflector;
mod reread;
mod resource_store;
mod snapshot;
mod sources;
mod store_status;
mod trust;
mod warnings;

pub(crate) use self::check::CheckConfig;
pub use self::collection::{Collection, ObjectContent};
pub use self::compare::Difference;
pub use self::event::StoreEvent;
pub use self::history::{History, HistoryGap};
pub use self::list_room::ListRoom;
pub use self::object::{Object, ObjectFormat};
pub(crate) use self::reflector::{ReflectorClient, ResourceReflector};
pub(crate) use self::resource_store::ResourceStore;
#[cfg(test)]
pub(crate) use self::snapshot::Delta;
pub use self::snapshot::Snapshot;
pub use self::store_status::StoreStatus;
