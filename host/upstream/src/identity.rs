//! Whose credential a request travels with.

/// Whose credentials a request carries to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The client's own, or none: goes over connections without a client certificate, since x509 wins over a token.
    Own,
    /// The node credential, attached to a request of a local client that sends none.
    Node,
    /// The daemon's, which impersonates the user of a verified client certificate.
    Certified,
    /// The daemon's, for requests of its own.
    Daemon,
}
