//! The address of one API server.

use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version};

use crate::connect::SetupError;
use crate::dial::HTTPS_PORT;
use crate::request::RequestBody;
use crate::{RequestHead, UpstreamError};

/// The scheme, authority and path prefix of an API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    scheme: Scheme,
    authority: Authority,
    /// The path prefix without a trailing slash, for example `""` or `/k8s/clusters/c1`.
    prefix: String,
}

impl ServerAddress {
    /// Parses a URL. The scheme defaults to `https`.
    pub(super) fn new(url: &Uri) -> Result<Self, SetupError> {
        let authority = url.authority().cloned().ok_or_else(|| SetupError::Address(url.to_string()))?;
        let scheme = url.scheme().cloned().unwrap_or(Scheme::HTTPS);
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(SetupError::Address(url.to_string()));
        }
        Ok(Self { scheme, authority, prefix: url.path().trim_end_matches('/').to_owned() })
    }

    /// Returns `host[:port]`, which names the server in logs, metrics and errors.
    pub(super) fn name(&self) -> Arc<str> {
        self.authority.as_str().into()
    }

    /// Returns whether connections to this server use TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns whether the target of a `CONNECT` request, which has a port, is this server. Only TLS is relayed.
    pub(super) fn is(&self, target: &Authority) -> bool {
        self.scheme == Scheme::HTTPS
            && self.authority.host().eq_ignore_ascii_case(target.host())
            && target.port_u16() == Some(self.authority.port_u16().unwrap_or(HTTPS_PORT))
    }

    /// The URL of the server without a path.
    pub(super) fn origin(&self) -> Uri {
        let mut parts = http::uri::Parts::default();
        (parts.scheme, parts.authority) = (Some(self.scheme.clone()), Some(self.authority.clone()));
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// Builds the request for this server, with the path prefix prepended.
    pub(super) fn request(&self, head: RequestHead, body: RequestBody) -> Result<Request<RequestBody>, UpstreamError> {
        let path = if self.prefix.is_empty() {
            head.path
        } else {
            PathAndQuery::try_from(format!("{}{}", self.prefix, head.path))
                .map_err(|error| UpstreamError::InvalidRequest(error.into()))?
        };
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(UpstreamError::InvalidRequest)?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = head.headers;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_targets_with_the_port_of_the_server_are_it() {
        let is = |url: &'static str, target: &'static str| {
            ServerAddress::new(&Uri::from_static(url)).unwrap().is(&Authority::from_static(target))
        };
        assert!(is("https://api.example", "API.example:443"));
        assert!(is("https://api.example:6443/prefix", "api.example:6443"));
        assert!(!is("https://api.example", "api.example"), "no port");
        assert!(!is("https://api.example", "api.example:6443"));
        assert!(!is("https://api.example", "other.example:443"));
        assert!(!is("http://api.example:443", "api.example:443"), "no TLS");
    }
}
