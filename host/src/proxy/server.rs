//! The server side: accepts connections, and says who is at their other end.
//!
//! A connection is plain HTTP or HTTPS, HTTP/1.1 or HTTP/2. Every request leaves here with its [`listener::Peer`].

pub(super) mod certificate;
pub(super) mod leaf;
pub(super) mod listener;
mod peer_uid;
pub(super) mod tls;
mod write_coalescer;
