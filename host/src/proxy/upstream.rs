//! The connections to the API server: which identity travels on which, how many there are, and what an error on them
//! means.
//!
//! Two identities never share a connection: requests with a token of their own go over connections without a client
//! certificate, because the API server takes the certificate where it gets both. Reads that end soon, watches, and
//! upgrades have connections of their own, so that a bulk list never starves a watch and a byte stream is HTTP/1.1.
//! Bounds: [`lane::LANES`] connections of [`lane::STREAMS`] streams each per identity and kind; a request beyond that
//! is refused at once.

mod connect;
mod lane;

use std::error::Error as _;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use kube::config::AuthInfo;

pub use self::connect::SetupError;
use self::connect::{Client, Credential, Protocols, client};
use self::lane::Lanes;
pub(super) use self::lane::UpstreamBody;
use super::body::{RequestBody, no_request_body};
use super::headers::Identity;

/// What a request needs of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Ends soon: everything but the next two.
    Short,
    /// A watch or another body without an end.
    Stream,
    /// HTTP/1.1 that becomes a byte stream.
    Upgrade,
}

/// A request on its way up: everything but its body.
#[derive(Debug, Clone)]
pub(super) struct Head {
    /// The method.
    pub(super) method: Method,
    /// As [`super::request::Request::forward`].
    pub(super) path: PathAndQuery,
    /// Prepared by [`super::headers::prepare_request`].
    pub(super) headers: HeaderMap,
}

/// The API server.
#[derive(Debug)]
pub(super) struct Upstream {
    base: Base,
    own: Channel,
    lent: Option<(Channel, Credential)>,
}

#[derive(Debug)]
struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end: `""`, `/k8s/clusters/c1`.
    prefix: String,
}

#[derive(Debug)]
struct Channel {
    short: Lanes,
    stream: Lanes,
    upgrade: Client,
}

/// No answer from the API server. None of these is a reason to try a write again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum UpstreamError {
    /// It could not be reached.
    #[error("cannot connect to the API server")]
    Connect(#[source] hyper_util::client::legacy::Error),
    /// Dialling or its handshake took too long.
    #[error("connecting to the API server took too long")]
    ConnectTimeout(#[source] hyper_util::client::legacy::Error),
    /// The connection broke before the answer's head was there.
    #[error("the API server closed the connection without an answer")]
    Broken(#[source] hyper_util::client::legacy::Error),
    /// All streams of all connections are in use.
    #[error("too many requests to the API server are open")]
    Busy,
    /// The node's credential could not be had (its token file, its plug-in).
    #[error("the node's credential cannot be used: {0}")]
    Credential(String),
    /// The request cannot be put into words for the API server.
    #[error("the request cannot be forwarded")]
    Unsendable(#[source] http::Error),
}

impl UpstreamError {
    /// The status code of the proxy's answer.
    #[must_use]
    pub(super) fn code(&self) -> StatusCode {
        match self {
            Self::Connect(_) | Self::Busy | Self::Credential(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Unsendable(_) => StatusCode::BAD_REQUEST,
        }
    }

    fn from_client(error: hyper_util::client::legacy::Error) -> Self {
        if !error.is_connect() {
            return Self::Broken(error);
        }
        let mut source = error.source();
        while let Some(cause) = source {
            if cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut) {
                return Self::ConnectTimeout(error);
            }
            source = cause.source();
        }
        Self::Connect(error)
    }
}

impl Upstream {
    /// Makes the clients; nothing is dialled yet. `own` says where the API server is and whom to trust: its credentials
    /// are not used. `lent` is the node's identity for clients that bring none.
    ///
    /// # Errors
    /// A certificate, key, token or address that cannot be used.
    pub(super) fn new(
        own: &kube::Config,
        lent: Option<&kube::Config>,
        connect_timeout: Duration,
    ) -> Result<Self, SetupError> {
        let base = Base::new(&own.cluster_url)?;
        let mut anonymous = own.clone();
        anonymous.auth_info = AuthInfo::default();
        let lent =
            lent.map(|config| Ok((Channel::new(config, connect_timeout)?, Credential::new(config)?))).transpose()?;
        Ok(Self { base, own: Channel::new(&anonymous, connect_timeout)?, lent })
    }

    /// Whether there is an identity to lend.
    #[must_use]
    pub(super) fn lends(&self) -> bool {
        self.lent.is_some()
    }

    /// Sends a request and waits for the head of its answer. Dropping the future, or later the body, frees the stream.
    ///
    /// # Errors
    /// See [`UpstreamError`]. A read without a body that broke before its answer is tried once more, as its connection
    /// may just have been closed for idleness.
    pub(super) async fn send(
        &self,
        identity: Identity,
        purpose: Purpose,
        mut head: Head,
        body: RequestBody,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let channel = match (identity, &self.lent) {
            (Identity::Lent, Some((channel, credential))) => {
                credential.apply(&mut head.headers).await?;
                channel
            }
            _ => &self.own,
        };
        let again =
            (purpose != Purpose::Upgrade && matches!(head.method, Method::GET | Method::HEAD) && body.is_end_stream())
                .then(|| head.clone());
        match channel.send(purpose, self.base.request(head, body)?).await {
            Err(UpstreamError::Broken(error)) => match again {
                Some(head) => {
                    tracing::debug!(%error, "the connection broke before an answer, the read is sent again");
                    channel.send(purpose, self.base.request(head, no_request_body())?).await
                }
                None => Err(UpstreamError::Broken(error)),
            },
            result => result,
        }
    }
}

impl Base {
    fn new(url: &Uri) -> Result<Self, SetupError> {
        let authority = url.authority().cloned().ok_or_else(|| SetupError::Address(url.to_string()))?;
        let scheme = url.scheme().cloned().unwrap_or(Scheme::HTTPS);
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(SetupError::Address(url.to_string()));
        }
        Ok(Self { scheme, authority, prefix: url.path().trim_end_matches('/').to_owned() })
    }

    fn request(&self, head: Head, body: RequestBody) -> Result<Request<RequestBody>, UpstreamError> {
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

impl Channel {
    fn new(config: &kube::Config, connect_timeout: Duration) -> Result<Self, SetupError> {
        let pooled = client(config, connect_timeout, Protocols::Any)?;
        Ok(Self {
            short: Lanes::new(pooled.clone()),
            stream: Lanes::new(pooled),
            upgrade: client(config, connect_timeout, Protocols::Http1)?.build(),
        })
    }

    async fn send(
        &self,
        purpose: Purpose,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let (answer, slot) = match purpose {
            Purpose::Upgrade => (self.upgrade.request(request).await, None),
            Purpose::Short | Purpose::Stream => {
                let lanes = if purpose == Purpose::Short { &self.short } else { &self.stream };
                let slot = lanes.slot().ok_or(UpstreamError::Busy)?;
                (slot.client().request(request).await, Some(slot))
            }
        };
        let answer = answer.map_err(UpstreamError::from_client)?;
        Ok(answer.map(|body| UpstreamBody::new(body, slot)))
    }
}
