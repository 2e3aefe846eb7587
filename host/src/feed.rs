//! Lookups: list+watch of one kind each as raw bytes, held in memory and answered from there; the node's addresses; and
//! the same from files.
//!
//! Memory: the objects once each, without managed fields. A snapshot is a pointer. Feeds are shared by equal lookups and
//! end with their last handle.

mod back_off;
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
mod reach;
mod request;
mod store;
mod watch;
mod world;

pub(crate) use back_off::{BackOff, spread};
pub use change::{Change, Changes, ObjectKey};
pub use error::FeedError;
pub use feeds::{FeedHandle, FeedState, FeedStatus, Feeds, Server, Timing};
pub use files::{FileWorld, FilesError, read_objects};
pub use netlink::NetlinkEvents;
pub use node::follow_addresses;
pub use reach::Reach;
pub use world::FeedWorld;

#[cfg(test)]
mod tests;
