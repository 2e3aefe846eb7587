//! The key of a resume state: the client and what it reads.

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use weir_kube::{MediaType, Query, ResourceRequest, Transform};

use crate::proxy::credential::{Caller, hash_part};

/// A client and what it reads: hashes of its credential, and of that with User-Agent, collection, selectors and form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::proxy) struct ClientKey {
    owner: [u8; 8],
    read: [u8; 16],
}

impl ClientKey {
    /// Returns the key of a request. `headers` are those that the client sent, before Weir applies an identity.
    #[must_use]
    pub(in crate::proxy) fn of(
        headers: &HeaderMap,
        caller: &Caller,
        resource: &ResourceRequest,
        query: &Query,
        form: MediaType,
    ) -> Self {
        Self::hash(headers, caller, resource, Some((query, form)))
    }

    /// The hash of all that the key is of.
    pub(in crate::proxy) fn read(&self) -> [u8; 16] {
        self.read
    }

    /// Whose credential it is.
    pub(super) fn owner(&self) -> [u8; 8] {
        self.owner
    }

    /// Returns the key of all that a client reads of a resource, in whatever collection and by whatever selectors.
    #[must_use]
    pub(in crate::proxy) fn of_resource(headers: &HeaderMap, caller: &Caller, resource: &ResourceRequest) -> Self {
        Self::hash(headers, caller, resource, None)
    }

    fn hash(
        headers: &HeaderMap,
        caller: &Caller,
        resource: &ResourceRequest,
        read: Option<(&Query, MediaType)>,
    ) -> Self {
        let mut hash = Sha256::new();
        // The same for each renewal of a token, if the API server has said whose it is.
        hash_part(&mut hash, caller.instance().as_bytes());
        let mut owner = [0; 8];
        owner.iter_mut().zip(hash.clone().finalize()).for_each(|(to, from)| *to = from);
        let mut part = |bytes: &[u8]| hash_part(&mut hash, bytes);
        part(headers.get(header::USER_AGENT).map(|value| value.as_bytes()).unwrap_or_default());
        match read {
            Some((query, form)) => {
                part(resource.collection.as_bytes());
                part(resource.name.as_deref().unwrap_or_default().as_bytes());
                part(query.first("labelSelector").unwrap_or_default().as_bytes());
                part(query.first("fieldSelector").unwrap_or_default().as_bytes());
                let transform = match form.transform {
                    Transform::None => 0,
                    Transform::Metadata(_) => 1,
                    Transform::Table(..) => 2,
                };
                part(&[form.encoding as u8, transform]);
            }
            None => part(resource.resource.to_string().as_bytes()),
        }
        let mut read = [0; 16];
        read.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Self { owner, read }
    }
}

#[cfg(test)]
impl ClientKey {
    /// Returns any key.
    pub(in crate::proxy) fn test(n: u8) -> Self {
        Self { owner: [n; 8], read: [n; 16] }
    }

    /// Returns the key of a read of an owner.
    pub(super) fn test_of(owner: u8, read: u64) -> Self {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(read.to_le_bytes()).for_each(|(to, from)| *to = from);
        Self { owner: [owner; 8], read: bytes }
    }
}

#[cfg(test)]
mod tests {
    use weir_kube::{Encoding, IncludeObject, MetaVersion};
    use weir_upstream::Identity;

    use super::*;

    const JSON: MediaType = MediaType { encoding: Encoding::Json, transform: Transform::None };

    #[test]
    fn clients_of_one_name_that_read_other_forms_differ() {
        let parsed = weir_kube::RequestInfo::parse(&http::Method::GET, &"/api/v1/services".parse().unwrap()).unwrap();
        let of = |form| {
            let resource = parsed.resource().unwrap();
            ClientKey::of(
                &HeaderMap::new(),
                &Caller::of(Identity::Client, &HeaderMap::new()),
                resource,
                &parsed.query,
                form,
            )
        };
        let forms = [
            JSON,
            MediaType { encoding: Encoding::Protobuf, ..JSON },
            MediaType { transform: Transform::Metadata(MetaVersion::V1), ..JSON },
            MediaType { transform: Transform::Table(MetaVersion::V1, IncludeObject::Metadata), ..JSON },
        ];
        let keys: std::collections::HashSet<_> = forms.into_iter().map(of).collect();
        assert_eq!(keys.len(), forms.len());
    }

    #[test]
    fn a_client_is_its_credential_its_agent_and_its_query() {
        let resource = |path: &str| {
            let parsed = weir_kube::RequestInfo::parse(&http::Method::GET, &path.parse().unwrap()).unwrap();
            (parsed.resource().unwrap().clone(), parsed.query)
        };
        let headers =
            |token: &str| HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
        let of = |token, identity, path| {
            let (resource, query) = resource(path);
            ClientKey::of(&headers(token), &Caller::of(identity, &headers(token)), &resource, &query, JSON)
        };
        let list = of("a", Identity::Client, "/api/v1/services?labelSelector=x&limit=5");
        assert_eq!(list, of("a", Identity::Client, "/api/v1/services?watch=1&resourceVersion=7&labelSelector=x"));
        assert_eq!(list, of("a", Identity::Client, "/api/v1/watch/services?labelSelector=x"));
        assert_ne!(list, of("b", Identity::Client, "/api/v1/services?labelSelector=x"));
        assert_ne!(list, of("a", Identity::Client, "/api/v1/services"));
        assert_ne!(list, of("a", Identity::Client, "/api/v1/namespaces/a/services?labelSelector=x"));
        assert_eq!(of("a", Identity::Node, "/api/v1/pods"), of("b", Identity::Node, "/api/v1/pods"));
        let any = |token, path| {
            let headers = headers(token);
            ClientKey::of_resource(&headers, &Caller::of(Identity::Client, &headers), &resource(path).0)
        };
        assert_eq!(any("a", "/api/v1/services?labelSelector=x"), any("a", "/api/v1/namespaces/a/services/b"));
        assert_ne!(any("a", "/api/v1/services"), any("a", "/api/v1/pods"));
        assert_ne!(any("a", "/api/v1/services"), any("b", "/api/v1/services"));
        assert_ne!(any("a", "/api/v1/services"), list);
    }
}
