//! Connecting to an API server: TLS with an optional client certificate, and credential headers.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use kube::client::{Body, ConfigExt as _};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer as _, Service, ServiceExt as _};

use crate::UpstreamError;
use crate::clock::{self, CertificateClock, CertificateTime};
use crate::dial::Dialer;
use crate::error::tls_error;

/// The most certificates of a chain that may each have expired by the time of the file.
const MAX_CHAIN: usize = 4;

/// The HTTP versions that Weir offers by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocols {
    /// HTTP/2 if the server supports it, otherwise HTTP/1.1.
    Any,
    /// HTTP/1.1 only, for upgrades.
    Http1,
}

/// Connects with one timeout for the way to the server and TLS together.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialer>,
    /// From which the connector is made.
    parts: Arc<Parts>,
    /// Whether certificates are verified by one time, and by no other.
    is_fixed: bool,
    timeout: Duration,
}

#[derive(Debug)]
struct Parts {
    tls: ClientConfig,
    dialer: Dialer,
    server_name: Option<String>,
    protocols: Protocols,
}

/// A connection to a server, with or without TLS.
pub(super) type Stream = <HttpsConnector<Dialer> as Service<Uri>>::Response;

/// The headers of a credential.
pub(super) struct Credential {
    headers: BoxCloneSyncService<Request<Body>, Response<()>, BoxError>,
}

/// The configuration of the API servers or of a credential is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The URL is not of the form `http(s)://host[:port][/path]`.
    #[error("{0:?} is not the URL of an API server")]
    Address(String),
    /// A certificate, a key or another credential is not readable.
    #[error("the credentials for the API server are not usable")]
    Credentials(#[source] Box<kube::Error>),
    /// `tls-server-name` of the kubeconfig is not valid.
    #[error("{0:?} is not a valid TLS server name")]
    ServerName(String),
    /// The kubeconfig has a `proxy-url`.
    #[error("the kubeconfig sets proxy-url {0}, and weir does not support HTTP proxies")]
    Proxy(Uri),
}

/// Returns the same configuration with trusted certificates that kube reads from no file: those that a file holds are loaded.
pub(super) fn with_roots(config: &kube::Config) -> kube::Config {
    let mut config = config.clone();
    config.root_cert_file = None;
    if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        // Plain HTTP needs no trusted certificates, and the system may have none. An empty list avoids loading them.
        config.root_cert.get_or_insert_default();
    }
    config
}

impl Connector {
    /// Creates a connector with the trust and the client certificate of a configuration.
    pub(super) fn new(
        config: &kube::Config,
        dialer: Dialer,
        timeout: Duration,
        protocols: Protocols,
    ) -> Result<Self, SetupError> {
        if let Some(proxy) = &config.proxy_url {
            return Err(SetupError::Proxy(proxy.clone()));
        }
        let mut tls =
            with_roots(config).rustls_client_config().map_err(|error| SetupError::Credentials(Box::new(error)))?;
        tls.time_provider = Arc::new(CertificateClock);
        let parts = Parts { tls, dialer, server_name: config.tls_server_name.clone(), protocols };
        Ok(Self { https: parts.connector(parts.tls.clone())?, parts: Arc::new(parts), is_fixed: false, timeout })
    }

    /// The same connector, which verifies certificates as if it were `time`.
    pub(super) fn at(&self, time: UnixTime) -> Result<Self, UpstreamError> {
        let mut tls = self.parts.tls.clone();
        tls.time_provider = Arc::new(CertificateTime(time));
        // A resumed session is not verified again.
        tls.resumption = Resumption::disabled();
        let https = self.parts.connector(tls).map_err(|error| UpstreamError::Credential(error.to_string()))?;
        Ok(Self { https, parts: self.parts.clone(), is_fixed: true, timeout: self.timeout })
    }

    /// Connects to the server of a URI. A certificate that has expired by the time of the file alone is verified again as of its
    /// last second. Cancel safe: dropping the future closes the connection.
    pub(super) async fn connect(&self, uri: Uri) -> Result<Stream, BoxError> {
        let mut result = self.connect_once(uri.clone()).await;
        for _ in 0..MAX_CHAIN {
            let error = result.as_ref().err().filter(|_| !self.is_fixed);
            let error = error.and_then(|error| tls_error(&**error));
            let Some(time) = error.and_then(clock::despite_file) else { break };
            result = self.at(time)?.connect_once(uri.clone()).await;
        }
        result
    }

    async fn connect_once(&self, uri: Uri) -> Result<Stream, BoxError> {
        tokio::time::timeout(self.timeout, self.https.clone().oneshot(uri))
            .await
            .unwrap_or_else(|_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "connection timed out").into()))
    }
}

impl Parts {
    fn connector(&self, tls: ClientConfig) -> Result<HttpsConnector<Dialer>, SetupError> {
        let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &self.server_name {
            let name = name.clone().try_into().map_err(|_| SetupError::ServerName(name.clone()))?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let dialer = self.dialer.clone();
        Ok(match self.protocols {
            Protocols::Any => https.enable_http1().enable_http2().wrap_connector(dialer),
            Protocols::Http1 => https.enable_http1().wrap_connector(dialer),
        })
    }
}

impl Credential {
    /// Creates the headers of a configuration. Its client certificate belongs to the connection instead.
    pub(super) fn new(config: &kube::Config) -> Result<Self, SetupError> {
        let setup = |error| SetupError::Credentials(Box::new(error));
        // kube's layers add headers to a request. The service below them returns these headers as a response.
        let echo = tower::service_fn(|request: Request<Body>| async move {
            let mut response = Response::new(());
            *response.headers_mut() = request.into_parts().0.headers;
            Ok::<_, BoxError>(response)
        });
        let extra = config.extra_headers_layer().map_err(setup)?.layer(echo);
        let headers = match config.auth_layer().map_err(setup)? {
            Some(auth) => BoxCloneSyncService::new(auth.layer(extra)),
            None => BoxCloneSyncService::new(extra),
        };
        Ok(Self { headers })
    }

    /// Sets the headers on a request. It may read a token file. Cancel safe: no header changes until all are known.
    pub(super) async fn apply(&self, headers: &mut HeaderMap) -> Result<(), UpstreamError> {
        let added = self
            .headers
            .clone()
            .oneshot(Request::new(Body::empty()))
            .await
            .map_err(|error| UpstreamError::Credential(error.to_string()))?
            .into_parts()
            .0
            .headers;
        // Replace all values that the client sent under these names. A name may have several values.
        for name in added.keys() {
            headers.remove(name);
        }
        for (name, value) in added.iter() {
            headers.append(name, value.clone());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}
