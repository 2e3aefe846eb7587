//! kube clients for the daemon's own requests.
//!
//! Such a client sends its requests through [`Upstream`]. They use the same servers, fail-over and reloaded credentials
//! as the requests of Weir's clients, and no filter sees them.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::header::InvalidHeaderValue;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{BoxError, Service};

use crate::user_agent::set_user_agent;
use crate::{
    AnsweredBy, DelegatedCredential, Purpose, Refusal, RefusalSender, RequestHead, Upstream, UpstreamBody,
    UpstreamError,
};
use weir_kube::Identity;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The service below the daemon's kube clients.
struct DaemonService {
    upstream: Arc<Upstream>,
    identity: Identity,
    headers: CredentialHeaders,
}

/// The headers that name the user of a request, beside the identity's own.
#[derive(Clone)]
enum CredentialHeaders {
    /// The user that the daemon impersonates, if any.
    Impersonate(Arc<HeaderMap>),
    /// The credential of a client that has a request open.
    Delegated(DelegatedCredential, RefusalSender),
}

impl CredentialHeaders {
    /// Adds the headers to a request.
    /// Returns the delegated credential among them.
    fn add(&self, headers: &mut HeaderMap) -> Result<Option<Arc<HeaderMap>>, UpstreamError> {
        match self {
            Self::Impersonate(impersonate) => {
                for (name, value) in &**impersonate {
                    headers.append(name, value.clone());
                }
                Ok(None)
            }
            Self::Delegated(credential, _) => {
                let none = || UpstreamError::Credential("the client whose credential it is has left".to_owned());
                let credential = credential.newest().ok_or_else(none)?;
                for (name, value) in &*credential {
                    headers.append(name, value.clone());
                }
                Ok(Some(credential))
            }
        }
    }

    /// Notes what the API server says of the credential of a request.
    fn note(&self, sent: Option<Arc<HeaderMap>>, path: PathAndQuery, status: StatusCode) {
        if let (Self::Delegated(credential, refusals), Some(sent)) = (self, sent) {
            let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let refusal = Refusal { credential: sent.clone(), path, status };
            // Another credential is tried once it is known that this one was refused.
            if !is_refused || refusals.try_send(refusal).is_ok() {
                credential.note(&sent, is_refused);
            }
        }
    }
}

impl Upstream {
    /// Returns a client with the daemon's own credential.
    pub fn client(self: &Arc<Self>) -> kube::Client {
        self.client_as(Identity::Daemon)
    }

    /// Returns a client with the node credential if one is configured, otherwise with the daemon's own.
    pub fn node_client(self: &Arc<Self>) -> kube::Client {
        self.client_as(if self.has_node_credential() { Identity::Node } else { Identity::Daemon })
    }

    /// Returns a client with the daemon's own credential that impersonates a user.
    ///
    /// # Errors
    /// The user or a group has characters that a header cannot have.
    pub fn client_impersonating(
        self: &Arc<Self>,
        user: &str,
        groups: &[String],
    ) -> Result<kube::Client, InvalidHeaderValue> {
        let mut headers = HeaderMap::new();
        headers.insert(IMPERSONATE_USER, HeaderValue::try_from(user)?);
        for group in groups {
            headers.append(IMPERSONATE_GROUP, HeaderValue::try_from(group)?);
        }
        Ok(self.client_with(Identity::Impersonated, CredentialHeaders::Impersonate(Arc::new(headers))))
    }

    /// Returns a client that sends a delegated credential. Its requests fail while no open request delegates one. What the API
    /// server refuses it goes to `refusals`.
    pub fn client_with_delegated(
        self: &Arc<Self>,
        credential: DelegatedCredential,
        refusals: RefusalSender,
    ) -> kube::Client {
        self.client_with(Identity::Client, CredentialHeaders::Delegated(credential, refusals))
    }

    fn client_as(self: &Arc<Self>, identity: Identity) -> kube::Client {
        self.client_with(identity, CredentialHeaders::Impersonate(Arc::default()))
    }

    fn client_with(self: &Arc<Self>, identity: Identity, headers: CredentialHeaders) -> kube::Client {
        kube::Client::new(DaemonService { upstream: self.clone(), identity, headers }, "default")
    }
}

impl Service<Request<Body>> for DaemonService {
    type Response = Response<UpstreamBody>;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Self::Response, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (upstream, identity) = (self.upstream.clone(), self.identity);
        let (mut parts, body) = request.into_parts();
        set_user_agent(&mut parts.headers);
        let credential = self.headers.add(&mut parts.headers);
        let path = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let watch = path.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
        let purpose = if watch { Purpose::Watch } else { Purpose::Short };
        let (credentials, asked) = (self.headers.clone(), path.clone());
        // Clients choose what is read for them, also what an aggregated API answers.
        let is_own_answer = identity == Identity::Daemon || path.path().starts_with("/api/");
        let answered_by = if is_own_answer { AnsweredBy::Server } else { AnsweredBy::Backend };
        let head = RequestHead { method: parts.method, path, headers: parts.headers, answered_by };
        let body = body.map_err(BoxError::from).boxed_unsync();
        Box::pin(async move {
            let sent = credential?;
            let response = upstream.send(identity, purpose, head, body).await?;
            credentials.note(sent, asked, response.status());
            Ok(response)
        })
    }
}
