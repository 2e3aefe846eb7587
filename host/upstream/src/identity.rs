//! Whose credential a request travels with.

/// Whose credentials a request carries to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The client's own, or none: goes over connections without a client certificate, since x509 wins over a token.
    Own,
    /// The node's, lent to a loopback client that brings none.
    Lent,
    /// The daemon's, which impersonates whom a verified client certificate names.
    Certified,
    /// The daemon's, for requests of its own.
    Daemon,
}
