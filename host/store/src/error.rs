//! Why a feed is not what it should be.

use weir_kube::GroupResource;

/// A feed's trouble. All are retried by the feed itself; see [`FeedError::needs_people`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The daemon's own identity may not read the kind.
    #[error(
        "looking up {resource} is forbidden: the daemon's role needs a rule with apiGroups [{group:?}], resources [{plural:?}], verbs [\"list\", \"watch\"] (the server says: {message})",
        group = resource.group, plural = resource.resource
    )]
    Forbidden {
        /// The kind.
        resource: GroupResource,
        /// The server's words.
        message: String,
    },
    /// The server does not take the credential.
    #[error(
        "looking up {resource}: the API server does not accept the daemon's credential (the server says: {message})"
    )]
    Unauthorized {
        /// The kind.
        resource: GroupResource,
        /// The server's words.
        message: String,
    },
    /// The server understood and refused: a bad selector.
    #[error("looking up {resource}: the API server answers {code}: {message}")]
    Refused {
        /// The kind.
        resource: GroupResource,
        /// Status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// No answer, or 429, or 5xx.
    #[error("looking up {resource}: the API server can not be reached: {reason}")]
    Unreachable {
        /// The kind.
        resource: GroupResource,
        /// Why.
        reason: String,
    },
    /// An answer that is no list, no watch or no object.
    #[error("looking up {resource}: the API server's answer makes no sense: {reason}")]
    Malformed {
        /// The kind.
        resource: GroupResource,
        /// Why.
        reason: String,
    },
    /// More bytes than a feed may hold.
    #[error(
        "looking up {resource}: its objects are more than {limit} bytes: narrow the lookup by name, selector or metadata-only"
    )]
    TooLarge {
        /// The kind.
        resource: GroupResource,
        /// The bound.
        limit: usize,
    },
    /// The daemon was started without an API server.
    #[error("looking up {resource}: there is no API server to ask")]
    NoServer {
        /// The kind.
        resource: GroupResource,
    },
}

impl FeedError {
    /// Whether waiting alone will hardly mend it: who waits for the feed should be told instead.
    #[must_use]
    pub fn needs_people(&self) -> bool {
        match self {
            Self::Forbidden { .. } | Self::Unauthorized { .. } | Self::Refused { .. } => true,
            Self::TooLarge { .. } | Self::NoServer { .. } => true,
            Self::Unreachable { .. } | Self::Malformed { .. } => false,
        }
    }
}
