//! Dialling: TCP options, TLS with or without a client certificate, and the header that carries a credential.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer as _, Service, ServiceExt as _};

use crate::UpstreamError;
use crate::body::RequestBody;
use crate::settings::{Listening, Told};

/// What a server may send of one answer before its client has read it.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same of all answers on one connection: so many clients may stop reading before they hold up those beside them.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;

/// A pooled client.
pub(super) type Client = legacy::Client<Dial, RequestBody>;

/// Enough to make pooled clients that share one TLS configuration.
#[derive(Debug, Clone)]
pub(super) struct ClientParts {
    dial: Dial,
    builder: Builder,
}

/// Which versions of HTTP a client may agree on by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocols {
    /// HTTP/2 where the server has it.
    Any,
    /// HTTP/1.1, the only one with upgrades.
    Http1,
}

/// Dials, with a bound on TCP and TLS together.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    inner: HttpsConnector<HttpConnector>,
    timeout: Duration,
    /// Is told by each connection how many streams it may have.
    told: Told,
}

/// The headers that carry a credential: a token, a token file that is read again, a plug-in that is asked again.
pub(super) struct Credential {
    headers: BoxCloneSyncService<Request<Body>, Response<()>, BoxError>,
}

/// Why clients for the API server cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Not `http(s)://host[:port][/path]`.
    #[error("{0:?} is not the address of an API server")]
    Address(String),
    /// A certificate, a key, or a credential cannot be read.
    #[error("the credentials for the API server cannot be used")]
    Credentials(#[source] Box<kube::Error>),
    /// The CA bundle cannot be read.
    #[error("the CA bundle {} cannot be used", path.display())]
    CertificateAuthority {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// `tls-server-name` is not a name.
    #[error("{0:?} is not a TLS server name")]
    ServerName(String),
    /// The kubeconfig asks for an HTTP proxy on the way.
    #[error("the API server is behind the HTTP proxy {0}, which is not supported")]
    Proxy(Uri),
}

/// Prepares clients for an API server and an identity.
pub(super) fn client(
    config: &kube::Config,
    timeout: Duration,
    protocols: Protocols,
) -> Result<ClientParts, SetupError> {
    if let Some(proxy) = &config.proxy_url {
        return Err(SetupError::Proxy(proxy.clone()));
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    // Half-open connections are an everyday thing at the edge: found out within about a minute.
    http.set_keepalive(Some(Duration::from_secs(30)));
    http.set_keepalive_interval(Some(Duration::from_secs(10)));
    http.set_keepalive_retries(Some(3));
    http.set_connect_timeout(Some(timeout));
    let tls = with_roots(config)?.rustls_client_config().map_err(|error| SetupError::Credentials(Box::new(error)))?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|_| SetupError::ServerName(name.clone()))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let inner = match protocols {
        Protocols::Any => https.enable_http1().enable_http2().wrap_connector(http),
        Protocols::Http1 => https.enable_http1().wrap_connector(http),
    };
    // hyper's connection tasks end with the client and its bodies, which is what joins them; they hold no work that
    // `Tasks` would have to wait for.
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .pool_max_idle_per_host(64)
        .http1_max_buf_size(256 << 10)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_frame_size(64 << 10)
        .http2_max_header_list_size(64 << 10)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(15));
    if protocols == Protocols::Http1 {
        builder.pool_max_idle_per_host(0);
    }
    Ok(ClientParts { dial: Dial { inner, timeout, told: Told::default() }, builder })
}

/// Returns the same configuration with its trusted certificates loaded.
///
/// Given only the path of a CA bundle, kube sets up the platform's verifier first, which fails on a machine without a
/// system CA bundle. kube also re-reads the file by itself; Weir reloads it when it changes ([`super::renew`]).
pub(super) fn with_roots(config: &kube::Config) -> Result<kube::Config, SetupError> {
    let mut config = config.clone();
    if let Some(path) = config.root_cert_file.take() {
        config.root_cert = Some(certificates(path)?);
    } else if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        // No server proves itself over plain HTTP: nobody is trusted, and the system's bundle need not be there.
        config.root_cert.get_or_insert_default();
    }
    Ok(config)
}

fn certificates(path: PathBuf) -> Result<Vec<Vec<u8>>, SetupError> {
    let read = || {
        let certificates: Vec<_> = CertificateDer::pem_file_iter(&path)?
            .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
            .collect::<Result<_, _>>()?;
        if certificates.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(certificates) }
    };
    read().map_err(|source| SetupError::CertificateAuthority { path: path.clone(), source })
}

impl ClientParts {
    /// A client with a pool of its own, and what it is told of streams.
    pub(super) fn build(&self) -> (Client, Told) {
        let told = Told::default();
        (self.builder.build(Dial { told: told.clone(), ..self.dial.clone() }), told)
    }
}

impl Service<Uri> for Dial {
    type Response = Listening<<HttpsConnector<HttpConnector> as Service<Uri>>::Response>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::<Uri>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (dialled, timeout, told) = (self.inner.call(uri), self.timeout, self.told.clone());
        Box::pin(async move {
            let stream = tokio::time::timeout(timeout, dialled).await.unwrap_or_else(|_| {
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection within the time allowed").into())
            })?;
            Ok(Listening::new(stream, told))
        })
    }
}

impl Credential {
    /// Of a kubeconfig's user, beside its client certificate.
    pub(super) fn new(config: &kube::Config) -> Result<Self, SetupError> {
        let setup = |error| SetupError::Credentials(Box::new(error));
        // kube's layers put the headers on a request; what stands below them here only tells which.
        let tell = tower::service_fn(|request: Request<Body>| async move {
            let mut told = Response::new(());
            *told.headers_mut() = request.into_parts().0.headers;
            Ok::<_, BoxError>(told)
        });
        let extra = config.extra_headers_layer().map_err(setup)?.layer(tell);
        let headers = match config.auth_layer().map_err(setup)? {
            Some(auth) => BoxCloneSyncService::new(auth.layer(extra)),
            None => BoxCloneSyncService::new(extra),
        };
        Ok(Self { headers })
    }

    /// Puts the headers on a request.
    pub(super) async fn apply(&self, headers: &mut HeaderMap) -> Result<(), UpstreamError> {
        let more = self
            .headers
            .clone()
            .oneshot(Request::new(Body::empty()))
            .await
            .map_err(|error| UpstreamError::Credential(error.to_string()))?
            .into_parts()
            .0
            .headers;
        // Replaces what the client may have sent under the same names, and keeps all values of each.
        for name in more.keys() {
            headers.remove(name);
        }
        for (name, value) in more.iter() {
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
