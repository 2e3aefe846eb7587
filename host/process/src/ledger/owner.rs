//! Whose share something counts in.

use std::sync::Arc;

/// An owner. A user gains nothing by more tokens: all of them have one owner. So have all clients that the API server has not
/// accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The daemon itself.
    Daemon,
    /// Node components: those with the node credential, with the certificate of a node, or with a token of a service account
    /// that the operator of the node names.
    Node,
    /// A user: a hash of what the API server has named.
    Client(Arc<str>),
    /// All clients that the API server has not named.
    Unaccepted,
}

impl Owner {
    /// Whether it has a part of the budget that nobody else can take.
    pub fn is_reserved(&self) -> bool {
        matches!(self, Self::Daemon | Self::Node)
    }

    /// The beginning of the names of its values on disk. The cache on disk gives each owner its share by this.
    pub fn folder(&self) -> String {
        match self {
            Self::Daemon => "document".to_owned(),
            Self::Node => "node".to_owned(),
            Self::Client(owner) => format!("client/{owner}"),
            Self::Unaccepted => "client/unaccepted".to_owned(),
        }
    }
}
