//! The reader of a store upstream.

use std::fmt;
use std::sync::Arc;
use weir_kube::Identity;

use http::HeaderMap;

/// The identity with which a store is read. Two identities never share a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreReader {
    /// The daemon's own identity. Its objects are served to clients that may read them.
    Daemon,
    /// The node credential, for clients that have it.
    Node,
    /// A user that the daemon impersonates, for this user alone.
    User(Arc<ImpersonatedUser>),
    /// A client with a credential of its own, for this client alone. Only a hash of the credential's owner is kept. The client
    /// delegates the credential while one of its requests is open.
    Client(Arc<str>),
    /// One of these, for the filtered watches alone that no shared store serves. Such a store is in memory only, and of a client
    /// with a credential of its own it is named by all headers that it sends.
    Private(Arc<StoreReader>),
}

/// The user of a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImpersonatedUser {
    /// The name.
    pub user: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl StoreReader {
    /// The reader for requests with an identity of the daemon and these headers; `None` for credentials of clients.
    #[must_use]
    pub fn of(identity: Identity, headers: &HeaderMap) -> Option<Self> {
        match identity {
            Identity::Daemon => Some(Self::Daemon),
            Identity::Node => Some(Self::Node),
            Identity::Client => None,
            Identity::Impersonated => {
                let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
                let user = headers.get("impersonate-user").and_then(text)?;
                let groups = headers.get_all("impersonate-group").iter().map(text).collect::<Option<_>>()?;
                Some(Self::User(Arc::new(ImpersonatedUser { user, groups })))
            }
        }
    }

    /// Whether its store is for the filtered watches alone that no shared store serves.
    #[must_use]
    pub fn is_private(&self) -> bool {
        matches!(self, Self::Private(_))
    }
}

/// The name of the reader on disk and in logs.
impl fmt::Display for StoreReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon => f.write_str("daemon"),
            Self::Node => f.write_str("node"),
            Self::User(user) => write!(f, "user {:?} {:?}", user.user, user.groups),
            Self::Client(owner) => write!(f, "client {owner}"),
            Self::Private(reader) => write!(f, "private, {reader}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_its_name_and_its_groups() {
        let reader = |user: &'static str, groups: &[&'static str]| {
            let user = [("impersonate-user", user)];
            let groups = groups.iter().map(|group| ("impersonate-group", *group));
            let headers = user.into_iter().chain(groups);
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            StoreReader::of(Identity::Impersonated, &headers).unwrap()
        };
        let readers = [reader("a", &[]), reader("a", &["b"]), reader("a", &["b", "c"]), reader("d", &["b"])];
        for (index, one) in readers.iter().enumerate() {
            for other in readers.iter().skip(index + 1) {
                assert_ne!(one, other);
                assert_ne!(one.to_string(), other.to_string());
            }
        }
        assert_eq!(StoreReader::of(Identity::Client, &HeaderMap::new()), None);
        assert_eq!(StoreReader::of(Identity::Impersonated, &HeaderMap::new()), None);
    }
}
