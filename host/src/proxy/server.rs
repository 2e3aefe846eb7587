//! The server side of the proxy: listeners, TLS, and the peer of each connection.
//!
//! A connection is plain HTTP or HTTPS, HTTP/1.1 or HTTP/2. [`listener`] passes each request to the proxy
//! with its [`listener::Peer`]: address, uid of a local process, and client certificate.

pub(super) mod certificate_info;
pub(super) mod client_certificate;
pub(super) mod client_trust;
mod client_verifier;
pub(super) mod drain;
pub(super) mod head_guard;
pub(super) mod listener;
pub(super) mod log_limit;
mod shut_down;
pub(super) mod tls;
mod waiting_clients;
mod write_coalescer;
