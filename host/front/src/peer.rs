//! The client side of a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::client_certificate::Subject;
use crate::client_trust::ClientCertificate;
use crate::connections::{Connection, peer_uid};

/// The client side of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// The address that the client connected to.
    local: Option<SocketAddr>,
    /// The uid of the client process, looked up at most once; none if it is unknown.
    uid: Arc<OnceLock<Option<u32>>>,
    /// Its client certificate, if it sent one.
    certificate: Option<Arc<ClientCertificate>>,
    /// An upgraded stream keeps it by a clone of the peer.
    pub connection: Connection,
    /// While it is held, ports that outlive the daemon go on accepting. `None` if the connection came after the stop.
    _hold: Option<TaskTrackerToken>,
}

impl Peer {
    /// The client of a connection without TLS. `local` is the address that it connected to.
    #[must_use]
    pub fn plain(address: SocketAddr, local: Option<SocketAddr>, connection: Connection) -> Self {
        Self { address, local, uid: Arc::default(), certificate: None, connection, _hold: None }
    }

    /// The same client, whose connection prolongs the drain.
    pub(crate) fn with_hold(self, hold: Option<TaskTrackerToken>) -> Self {
        Self { _hold: hold, ..self }
    }

    /// The same client, with the certificate that it has sent in its handshake.
    pub(crate) fn with_certificate(self, certificate: Option<Arc<ClientCertificate>>) -> Self {
        Self { certificate, ..self }
    }

    /// The user and groups of the client certificate, if the client sent one.
    ///
    /// # Errors
    /// It is not valid any more.
    pub fn subject(&self) -> Result<Option<&Subject>, rustls::Error> {
        self.certificate.as_deref().map(ClientCertificate::subject).transpose()
    }

    /// Returns the uid of the local process that opened the connection; none if it is unknown.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        let local = self.local?;
        *self.uid.get_or_init(|| peer_uid(self.address, local))
    }

    /// Copies the bytes of a stream that was upgraded from this connection. Closing the connection ends it. Cancel-safe.
    ///
    /// # Errors
    /// Copying has failed, or the connection is closed.
    pub async fn unless_closed<T>(&self, copied: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let _active = self.connection.begin();
        tokio::select! {
            copied = copied => copied,
            () = self.connection.close().cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}
