//! The identity under which a request reaches the API server.

/// Selects the credential of a request to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The client's own credential, or none.
    ///
    /// Such a request uses connections without a client certificate, because the API server prefers a certificate to a
    /// token.
    Client,
    /// The node credential, which Weir attaches to requests of local clients without a credential.
    Node,
    /// The daemon's credential, with headers that impersonate the user of a verified client certificate.
    Impersonated,
    /// The daemon's credential, for the daemon's own requests.
    Daemon,
}
