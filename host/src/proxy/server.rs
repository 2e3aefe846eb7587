//! The server side: listeners, TLS, and the peer of each connection.
//!
//! A connection is plain HTTP or HTTPS, HTTP/1.1 or HTTP/2. [`listener`] passes each request on together with its
//! [`listener::Peer`]: address, uid of the local process, and subject of the client certificate.

pub(super) mod certificate;
pub(super) mod leaf;
pub(super) mod listener;
mod peer_uid;
pub(super) mod tls;
mod write_coalescer;
