//! Why a reflector is not in sync with the API server.

use weir_kube::GroupResource;

/// A failure of a reflector. The reflector retries each of them; see [`ReflectorError::needs_operator_action`]. The texts are true for
/// lookups and for caches, whichever [`StoreReader`](crate::StoreReader) has them: the API server's message names the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReflectorError {
    /// 403: RBAC does not allow the reader to list or watch the resource.
    #[error(
        "listing {resource} is forbidden: its reader needs a rule with apiGroups [{group:?}], resources [{plural:?}], verbs [\"list\", \"watch\"] (API server: {message})",
        group = resource.group, plural = resource.resource
    )]
    Forbidden {
        /// The resource.
        resource: GroupResource,
        /// The message of the API server.
        message: String,
    },
    /// 401: the API server rejects the credential of the request.
    #[error("listing {resource} failed: the API server rejects its reader's credential (API server: {message})")]
    Unauthorized {
        /// The resource.
        resource: GroupResource,
        /// The message of the API server.
        message: String,
    },
    /// 404: the API server does not serve the resource.
    #[error("listing {resource} failed: the API server does not serve the resource")]
    NotServed {
        /// The resource.
        resource: GroupResource,
    },
    /// Any other client error, for example 400 for an invalid selector.
    #[error("listing {resource} failed: the API server responded with {code}: {message}")]
    Rejected {
        /// The resource.
        resource: GroupResource,
        /// The status code.
        code: u16,
        /// The message of the API server.
        message: String,
    },
    /// No response, or a response with 408, 429 or 5xx.
    #[error("listing {resource} failed: the API server is unavailable: {reason}")]
    Unavailable {
        /// The resource.
        resource: GroupResource,
        /// Why.
        reason: String,
    },
    /// A response that is not a valid list, watch event or object.
    #[error("listing {resource} failed: invalid response of the API server: {reason}")]
    InvalidResponse {
        /// The resource.
        resource: GroupResource,
        /// Why.
        reason: String,
    },
    /// The objects exceed the memory that one reflector may use.
    #[error(
        "listing {resource} failed: its objects exceed {limit} bytes: select fewer, look up metadata only, or leave the resource out of --cache-resources"
    )]
    TooLarge {
        /// The resource.
        resource: GroupResource,
        /// The limit in bytes.
        limit: usize,
    },
    /// The objects exceed what is left of the memory of the user that they are for.
    #[error("listing {resource} failed: its objects exceed what is left of this user's share of Weir's memory")]
    NoRoom {
        /// The resource.
        resource: GroupResource,
    },
    /// The daemon runs without an API server.
    #[error("listing {resource} failed: no API server is configured")]
    NoServer {
        /// The resource.
        resource: GroupResource,
    },
}

impl ReflectorError {
    /// Whether the API server does not let whose credential it is read: 401 or 403.
    #[must_use]
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::Unauthorized { .. })
    }

    /// Whether retrying alone is unlikely to help, so that callers should report the error instead of waiting.
    #[must_use]
    pub fn needs_operator_action(&self) -> bool {
        match self {
            Self::Forbidden { .. } | Self::Unauthorized { .. } | Self::Rejected { .. } => true,
            Self::NotServed { .. } | Self::TooLarge { .. } | Self::NoRoom { .. } | Self::NoServer { .. } => true,
            Self::Unavailable { .. } | Self::InvalidResponse { .. } => false,
        }
    }
}
