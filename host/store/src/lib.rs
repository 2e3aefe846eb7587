//! Lookups: list+watch of one kind each as raw bytes, held in memory and answered from there; the node's addresses; and
//! the same from files.
//!
//! Memory: the objects once each, without managed fields. A snapshot is a pointer. Feeds are shared by equal lookups and
//! end with their last handle.

mod change;
mod discover;
mod error;
mod feeds;
mod files;
mod follow;
mod hub;
mod list;
mod netlink;
mod node;
mod object;
mod request;
mod store;
mod watch;

pub use change::{Change, Changes, ObjectKey};
pub use error::FeedError;
pub use feeds::{FeedHandle, FeedState, FeedStatus, Feeds, Server, Timing};
pub use files::{FileObjects, FilesError, read_objects};
pub use hub::Snapshot;
pub use netlink::NetlinkEvents;
pub use node::follow_addresses;

#[cfg(test)]
mod tests;
