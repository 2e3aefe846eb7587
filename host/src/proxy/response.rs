//! The responses: what becomes of each kind of request once its client and its filters are known.
//!
//! [`forward`] copies the API server's answer. [`get`], [`list`] and [`watch`] filter it, and [`mod@write`] protects objects that a
//! filter edited. They share [`read`], the request for objects to filter, and [`memory_budget`], which bounds what is held.

mod event_boundary;
pub(super) mod forward;
pub(super) mod get;
pub(super) mod gzip;
pub(super) mod list;
pub(super) mod memory_budget;
pub(super) mod read;
pub(super) mod watch;
pub(super) mod write;
