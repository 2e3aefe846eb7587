//! The address of one API server.

use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version};

use crate::connect::SetupError;
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

    /// Returns whether HTTPS requests to this host and port go to this server.
    pub(super) fn is(&self, target: &Authority) -> bool {
        let port = |authority: &Authority| authority.port_u16().unwrap_or(443);
        self.scheme == Scheme::HTTPS
            && self.authority.host().eq_ignore_ascii_case(target.host())
            && port(&self.authority) == port(target)
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
