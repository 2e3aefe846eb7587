//! Where one API server is: what is put before a request's path.

use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version};

use crate::body::RequestBody;
use crate::connect::SetupError;
use crate::{Head, UpstreamError};

/// One server's address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end: `""`, `/k8s/clusters/c1`.
    prefix: String,
}

impl Base {
    pub(super) fn new(url: &Uri) -> Result<Self, SetupError> {
        let authority = url.authority().cloned().ok_or_else(|| SetupError::Address(url.to_string()))?;
        let scheme = url.scheme().cloned().unwrap_or(Scheme::HTTPS);
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(SetupError::Address(url.to_string()));
        }
        Ok(Self { scheme, authority, prefix: url.path().trim_end_matches('/').to_owned() })
    }

    /// What people know the server by.
    pub(super) fn name(&self) -> Arc<str> {
        self.authority.as_str().into()
    }

    pub(super) fn request(&self, head: Head, body: RequestBody) -> Result<Request<RequestBody>, UpstreamError> {
        let path = if self.prefix.is_empty() {
            head.path
        } else {
            PathAndQuery::try_from(format!("{}{}", self.prefix, head.path))
                .map_err(|error| UpstreamError::Unsendable(error.into()))?
        };
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(UpstreamError::Unsendable)?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = head.headers;
        Ok(request)
    }
}
