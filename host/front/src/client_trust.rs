//! Client certificates of open connections. Each request verifies the one of its connection again, as kube-apiserver does: it
//! may have expired, or `--client-ca-file` may have changed.
//!
//! A change of the bundle also closes the connections whose certificate it does not cover, because a watch has no next
//! request. Memory: the chain of each connection with a certificate.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider as _;
use tokio_util::sync::CancellationToken;
use weir_upstream::clock::CertificateClock;

use crate::client_certificate::Subject;

/// The verified certificate of one connection.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    subject: Subject,
    address: SocketAddr,
    chain: Vec<CertificateDer<'static>>,
    trust: Arc<ClientTrust>,
    /// The second (Unix time) in which it was verified last.
    verified_at: AtomicU64,
    /// Closes the connection.
    close: CancellationToken,
}

/// The CA bundle for client certificates, and the connections that were opened with one.
#[derive(Default)]
pub(crate) struct ClientTrust {
    verifier: ArcSwapOption<Verifier>,
    connections: Mutex<Vec<Weak<ClientCertificate>>>,
}

/// [`ArcSwapOption`] holds sized types only.
struct Verifier(Arc<dyn ClientCertVerifier>);

impl ClientTrust {
    /// Takes the certificate of a connection. A connection whose certificate is not valid any more is closed.
    pub(crate) fn register(
        self: &Arc<Self>,
        subject: Subject,
        chain: &[CertificateDer<'_>],
        address: SocketAddr,
        close: CancellationToken,
    ) -> Arc<ClientCertificate> {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let (trust, verified_at) = (self.clone(), AtomicU64::new(0));
        let certificate = Arc::new(ClientCertificate { subject, address, chain, trust, verified_at, close });
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.len() == connections.capacity() {
            connections.retain(|connection| connection.strong_count() > 0);
        }
        connections.push(Arc::downgrade(&certificate));
        // The bundle may have changed since the handshake began. The lock: from here on, `replace` knows the connection.
        certificate.close_unless_valid();
        certificate
    }

    /// Replaces the bundle, and closes the connections that it does not cover.
    pub(crate) fn replace(&self, verifier: Option<Arc<dyn ClientCertVerifier>>) {
        self.verifier.store(verifier.map(|verifier| Arc::new(Verifier(verifier))));
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for certificate in connections.iter().filter_map(Weak::upgrade) {
            certificate.close_unless_valid();
        }
    }
}

impl ClientCertificate {
    /// The user and groups, if the certificate is still valid.
    ///
    /// # Errors
    /// It has expired, or the CA bundle does not cover it any more.
    pub(crate) fn subject(&self) -> Result<&Subject, rustls::Error> {
        let now = now();
        // Certificates have times in whole seconds, and a new bundle closes the connection.
        if self.verified_at.load(Ordering::Relaxed) != now.as_secs() {
            self.verify(now)?;
            self.verified_at.store(now.as_secs(), Ordering::Relaxed);
        }
        Ok(&self.subject)
    }

    fn verify(&self, now: UnixTime) -> Result<(), rustls::Error> {
        let verifier = self.trust.verifier.load();
        let (Some(verifier), Some((own, intermediates))) = (&*verifier, self.chain.split_first()) else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        verifier.0.verify_client_cert(own, intermediates, now).map(drop)
    }

    fn close_unless_valid(&self) {
        if let Err(error) = self.verify(now()) {
            let (address, user) = (self.address, &self.subject.user);
            tracing::warn!(%address, user, %error, "connection closed: its client certificate is not valid any more");
            self.close.cancel();
        }
    }
}

/// The time by which handshakes verify certificates, too.
fn now() -> UnixTime {
    CertificateClock.current_time().unwrap_or(UnixTime::since_unix_epoch(Duration::ZERO))
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTrust")
    }
}
