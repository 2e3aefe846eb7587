//! The responses: how Weir answers a request once its identity and its chain are known.
//!
//! [`cached`] answers lists and watches of informers from views. [`forward`] passes the API server's answer on untouched; [`event_boundary`] ends a forwarded watch between two events.
//! [`get`], [`list`] and [`watch`] filter the objects that a [`read::ReadRequest`] gets from the API server. [`mod@write`]
//! protects edited objects from being written back. [`memory_budget`] bounds answers that are held as a whole, and [`gzip`]
//! compresses large ones.

pub(super) mod cached;
mod event_boundary;
pub(super) mod forward;
pub(super) mod get;
pub(super) mod gzip;
pub(super) mod list;
pub(super) mod memory_budget;
pub(super) mod read;
pub(super) mod watch;
pub(super) mod write;
