//! The handlers, which respond to a request once its credential and its chain are known.
//!
//! [`cached`] serves informers from views, and [`answer_memory`] remembers other
//! responses for the time without an API server: [`discovery`], single objects ([`object_memory`]) and tokens
//! ([`token_request`]). [`status_report`] keeps what kubelet reports while it is out of reach. [`forward`] passes request and response on unchanged; [`event_boundary`] ends a forwarded watch between two events.
//! [`get`], [`list`] and [`watch`] filter the objects that a [`read::ReadRequest`] reads from the API server. [`mod@write`]
//! rejects writes that would store the edits of a filter. [`memory_budget`] bounds the responses that are buffered
//! as a whole, and [`gzip`] compresses large ones. [`relay`] passes connections of peers on to the API servers.

pub(super) mod answer_memory;
pub(super) mod cached;
pub(super) mod discovery;
mod event_boundary;
mod fetch;
pub(super) mod forward;
pub(super) mod get;
pub(super) mod gzip;
pub(super) mod list;
mod list_version;
pub(super) mod memory_budget;
pub(super) mod object_memory;
pub(super) mod read;
pub(super) mod relay;
mod status_report;
pub(super) mod token_request;
pub(super) mod watch;
pub(super) mod write;
