//! The connections of one identity to all servers, and the headers that carry its credential.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use rustls::pki_types::CertificateDer;

use crate::certificates::{self, CertificateValidity};
use crate::connect::{Connector, Credential, Protocols, SetupError};
use crate::dial::Dialer;
use crate::error::SendError;
use crate::h2_pool::{H2Pool, send_unpooled};
use crate::request::RequestBody;
use crate::server::{Server, Servers};
use crate::{Purpose, UpstreamBody, UpstreamError};

/// The connections and the credential of one identity.
///
/// Two identities never share a connection.
#[derive(Debug)]
pub(super) struct Transport {
    /// The connections to each server.
    servers: Vec<ServerConnections>,
    /// The headers to add. `None` forwards the client's own headers only.
    pub(super) credential: Option<Credential>,
    /// Names the CA bundle that verifies servers, for error messages.
    trust: Arc<str>,
    /// The certificates of the CA bundle; `None` for the system's.
    pub(super) roots: Option<Vec<CertificateDer<'static>>>,
    /// The validity of the client certificate, if there is one.
    pub(super) validity: Option<CertificateValidity>,
}

/// The connections to one server, by purpose.
#[derive(Debug)]
struct ServerConnections {
    short: H2Pool,
    watch: H2Pool,
    stream: H2Pool,
    heartbeat: H2Pool,
    probe: H2Pool,
    upgrade: Connector,
}

impl Transport {
    /// Creates a transport with the credential of a configuration, including its client certificate.
    pub(super) fn new(config: &kube::Config, servers: &Servers, timeout: Duration) -> Result<Self, SetupError> {
        let credential = Some(Credential::new(config)?);
        let validity = certificates::validity(config);
        Ok(Self { credential, validity, ..Self::without_headers(config, servers, timeout)? })
    }

    /// Creates a transport that adds no headers.
    pub(super) fn without_headers(
        config: &kube::Config,
        servers: &Servers,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let connections = |server: &Server| ServerConnections::new(config, &server.dialer, timeout);
        let servers = servers.iter().map(connections).collect::<Result<_, _>>()?;
        let trust = match (&config.root_cert_file, &config.root_cert) {
            (Some(path), _) => format!("the CA bundle {}", path.display()),
            (None, Some(_)) => "the CA bundle of its kubeconfig".to_owned(),
            (None, None) => "the system's CA bundle".to_owned(),
        };
        let roots = config.root_cert.as_ref();
        let roots = roots.map(|roots| roots.iter().cloned().map(CertificateDer::from).collect());
        Ok(Self { servers, credential: None, trust: trust.into(), roots, validity: None })
    }

    /// Drops the pooled connections to a server. The next request connects again; open streams continue undisturbed.
    pub(super) fn disconnect(&self, server: usize) {
        if let Some(server) = self.servers.get(server) {
            for pool in [&server.short, &server.watch, &server.stream, &server.heartbeat, &server.probe] {
                pool.clear();
            }
        }
    }

    /// Drops the probe connection to a server, which may be half-open. The next probe connects again.
    pub(super) fn disconnect_probe(&self, server: usize) {
        if let Some(server) = self.servers.get(server) {
            server.probe.clear();
        }
    }

    /// The connector for connections of their own to a server, with HTTP/1.1.
    pub(super) fn unpooled(&self, server: usize) -> Option<&Connector> {
        self.servers.get(server).map(|connections| &connections.upgrade)
    }

    /// The error of a request that this server did not answer.
    pub(super) fn error(&self, error: SendError, server: &Server) -> UpstreamError {
        UpstreamError::from_send(error, &server.name, &self.trust)
    }

    /// Sends a request to one server and returns the response once its head has arrived.
    ///
    /// Cancel safe in that dropping the future resets the stream. The server may have processed the request.
    pub(super) async fn send(
        &self,
        index: usize,
        server: &Server,
        purpose: Purpose,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(connections) = self.servers.get(index) else { return Err(UpstreamError::Busy) };
        let sent = match purpose {
            Purpose::Upgrade => send_unpooled(&connections.upgrade, request).await,
            _ => connections.pool(purpose).send(request).await,
        };
        let (response, permit) = sent.map_err(|error| self.error(error, server))?;
        server.unanswered_probes.reset();
        Ok(response.map(|body| UpstreamBody::new(body, permit, server.unanswered_probes.clone())))
    }
}

impl ServerConnections {
    fn new(config: &kube::Config, dialer: &Dialer, timeout: Duration) -> Result<Self, SetupError> {
        let connector = Connector::new(config, dialer.clone(), timeout, Protocols::Any)?;
        let pool = |purpose: Purpose| H2Pool::new(connector.clone(), purpose.window());
        Ok(Self {
            short: pool(Purpose::Short),
            watch: pool(Purpose::Watch),
            stream: pool(Purpose::Stream),
            heartbeat: pool(Purpose::Heartbeat),
            probe: pool(Purpose::Probe),
            upgrade: Connector::new(config, dialer.clone(), timeout, Protocols::Http1)?,
        })
    }

    fn pool(&self, purpose: Purpose) -> &H2Pool {
        match purpose {
            Purpose::Short | Purpose::Upgrade => &self.short,
            Purpose::Watch => &self.watch,
            Purpose::Stream => &self.stream,
            Purpose::Heartbeat => &self.heartbeat,
            Purpose::Probe => &self.probe,
        }
    }
}
