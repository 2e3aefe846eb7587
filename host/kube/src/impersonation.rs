//! The user that a request impersonates, as `filters/impersonation.go` of kube-apiserver reads it.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::HeaderName;
use percent_encoding::percent_decode_str;

use crate::request_info::escapes_are_valid;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

/// The user that a request impersonates. The texts are bytes: the API server compares them as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Impersonation {
    /// The name of the user; never empty.
    pub user: Vec<u8>,
    /// The uid, if it is not empty.
    pub uid: Option<Vec<u8>>,
    /// The groups in their order. None: the API server takes those that follow from the user.
    pub groups: Vec<Vec<u8>>,
    /// Further attributes: the decoded key in lower case, and its values in their order.
    pub extra: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

/// A request asks to impersonate a group, a uid or an attribute, but no user. The API server responds with 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request impersonates a group, a uid or an attribute without a user")]
pub struct ImpersonationError;

impl Impersonation {
    /// Returns the user that a request impersonates, if any.
    ///
    /// # Errors
    /// A group, a uid or an attribute without a user.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let first = |name| headers.get(name).map(|value| value.as_bytes().to_vec()).filter(|value| !value.is_empty());
        let groups: Vec<_> = headers.get_all(GROUP).iter().map(|value| value.as_bytes().to_vec()).collect();
        let (user, uid) = (first(USER), first(UID));
        let mut extra = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                extra.entry(extra_key(key)).or_default().push(value.as_bytes().to_vec());
            }
        }
        match user {
            Some(user) => Ok(Some(Self { user, uid, groups, extra })),
            None if uid.is_none() && groups.is_empty() && extra.is_empty() => Ok(None),
            None => Err(ImpersonationError),
        }
    }
}

/// Decodes a key as `url.PathUnescape` does. One with an invalid escape stays as it is.
fn extra_key(key: &str) -> Vec<u8> {
    if escapes_are_valid(key) { percent_decode_str(key).collect() } else { key.as_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> Result<Option<Impersonation>, ImpersonationError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        Impersonation::of(&headers)
    }

    #[test]
    fn the_first_user_and_all_groups_and_attributes_count() {
        let read = of(&[
            ("impersonate-user", "bob"),
            ("impersonate-user", "eve"),
            ("impersonate-uid", "1"),
            ("impersonate-group", "a"),
            ("impersonate-group", ""),
            ("impersonate-extra-acme.com%2fproject", "x"),
            ("impersonate-extra-acme.com%2fproject", "y"),
            ("impersonate-extra-bad%2", "z"),
            ("impersonate-other", "ignored"),
        ]);
        let read = read.unwrap().unwrap();
        assert_eq!((read.user, read.uid), (b"bob".to_vec(), Some(b"1".to_vec())));
        assert_eq!(read.groups, [b"a".to_vec(), Vec::new()]);
        let extra = [
            (b"acme.com/project".to_vec(), vec![b"x".to_vec(), b"y".to_vec()]),
            (b"bad%2".to_vec(), vec![b"z".to_vec()]),
        ];
        assert_eq!(read.extra, BTreeMap::from(extra));
    }

    #[test]
    fn an_impersonation_without_a_user_is_an_error() {
        assert_eq!(of(&[]), Ok(None));
        for nobody in [&[("impersonate-user", "")][..], &[("impersonate-uid", "")], &[("impersonate-foo", "a")]] {
            assert_eq!(of(nobody), Ok(None), "{nobody:?}");
        }
        for bad in [
            &[("impersonate-uid", "1")][..],
            &[("impersonate-group", "")],
            &[("impersonate-extra-", "")],
            &[("impersonate-user", ""), ("impersonate-user", "bob"), ("impersonate-group", "a")],
        ] {
            assert_eq!(of(bad), Err(ImpersonationError), "{bad:?}");
        }
    }
}
