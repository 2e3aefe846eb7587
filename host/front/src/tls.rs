//! TLS of the HTTPS port: the serving certificate, and the CA bundle for client certificates. Files are reloaded when they
//! change.
//!
//! TLS 1.2 and later, HTTP/2 by ALPN, crypto provider ring. Open connections keep the configuration of their handshake, but
//! their client certificates have to be valid under the current CA bundle. With a bundle there is no resumption of sessions,
//! which would outlast the certificate.
//! Invalid files are logged, and the last valid configuration stays in use. Before there is a valid certificate, from a file or
//! issued by the cluster, and a valid bundle where one is named, handshakes fail with the alert `access_denied`. Memory: one configuration, and an old one for as long as its
//! connections are open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCertUsingSni, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use weir_process::WatchedFiles;
use weir_upstream::clock::CertificateClock;
use weir_upstream::{CertificateInfo, error_report};

use crate::client_trust::ClientTrust;
use crate::client_verifier::ClientVerifier;
use crate::metrics::ServingCertificateMetrics;

/// The largest file in bytes.
const MAX_FILE: usize = 4 << 20;

/// The source of the certificate of the HTTPS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServingCertificate {
    /// Files that the operator maintains. Weir reloads them when they change.
    Files {
        /// PEM certificate chain.
        certificate: PathBuf,
        /// Private key.
        key: PathBuf,
    },
    /// A CertificateSigningRequest. Pods trust the CA of the cluster.
    Requested,
}

/// A reason why the HTTPS port has no valid TLS configuration. Retryable, because the files may change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerTlsError {
    /// A file cannot be read.
    #[error("{flag} {}", path.display())]
    File {
        /// The flag that named it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not valid PEM, or lacks the certificate or key.
    #[error("{flag} {}: not valid PEM", path.display())]
    Pem {
        /// The flag that named it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key do not match, or the type of the key is not supported.
    #[error("--tls-cert-file {} and --tls-private-key-file {} are not valid together", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The certificate that the cluster issued does not match its key.
    #[error("the issued certificate is not valid")]
    Issued(#[source] rustls::Error),
    /// The bundle contains a certificate that is not a CA.
    #[error("--client-ca-file {}: {reason}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

/// The TLS configuration of the HTTPS port.
#[derive(Debug)]
pub struct ServerTls {
    source: Source,
    files: WatchedFiles,
    installed: Mutex<Installed>,
    config: ArcSwap<ServerConfig>,
    pub(crate) trust: Arc<ClientTrust>,
    metrics: Arc<ServingCertificateMetrics>,
}

/// What configures TLS.
#[derive(Debug, Clone)]
struct Source {
    certificate: ServingCertificate,
    client_ca: Option<PathBuf>,
}

/// What a new configuration is made of, beside the files that have changed.
#[derive(Debug, Default)]
struct Installed {
    /// The certificate of the last [`ServerTls::install`].
    issued: Option<ChainAndKey>,
    /// The CA bundle for client certificates. `None`: there is none, or it was not valid yet.
    client_ca: Option<Vec<u8>>,
}

/// The contents of the files.
#[derive(Default)]
struct PemFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A configuration, and the verifier of client certificates in it.
type Configured = (ServerConfig, Option<Arc<dyn ClientCertVerifier>>);

/// A certificate chain with its private key.
type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ServerTls {
    /// Reads the files. Without the CA bundle `client_ca`, no client certificates are requested. A requested certificate does not exist yet. Invalid files are logged, and not used until they are valid:
    /// another component of the node may be writing it.
    ///
    /// # Errors
    /// This machine has no TLS.
    pub async fn load(
        certificate: ServingCertificate,
        client_ca: Option<PathBuf>,
        metrics: Arc<ServingCertificateMetrics>,
    ) -> Result<Arc<Self>, ServerTlsError> {
        let source = Source { certificate, client_ca };
        let files = WatchedFiles::default();
        let read = PemFiles::read(&source, &files).await;
        let configured = read.and_then(|pem| Ok((configure(&source, &pem, None, &metrics)?, pem.client_ca)));
        let ((config, verifier), client_ca) = match configured {
            Ok(configured) => configured,
            Err(error) => {
                let reason = error_report(&error);
                tracing::error!(
                    reason,
                    "the HTTPS port starts without certificates, its handshakes fail until the files are valid"
                );
                (without_files(&source, &metrics)?, None)
            }
        };
        let trust = Arc::new(ClientTrust::default());
        trust.replace(verifier);
        let config = ArcSwap::from_pointee(config);
        let installed = Mutex::new(Installed { issued: None, client_ca });
        Ok(Arc::new(Self { source, files, installed, config, trust, metrics }))
    }

    /// Uses an issued certificate, from the next handshake on.
    ///
    /// # Errors
    /// Certificate and key do not match. The previous certificate stays in use.
    pub fn install(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), ServerTlsError> {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let pem = PemFiles { client_ca: installed.client_ca.clone(), ..PemFiles::default() };
        let configured = configure(&self.source, &pem, Some((chain.clone(), key.clone_key())), &self.metrics)?;
        self.use_from_now_on(configured);
        installed.issued = Some((chain, key));
        Ok(())
    }

    fn use_from_now_on(&self, (config, verifier): Configured) {
        self.config.store(Arc::new(config));
        self.trust.replace(verifier);
    }

    /// Returns the acceptor for one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    /// Reloads the files when they change. Runs until it is cancelled; cancel-safe.
    pub(crate) async fn watch_files(self: Arc<Self>) {
        loop {
            self.files.changed().await;
            let pem = PemFiles::read(&self.source, &self.files).await;
            self.reload(pem);
        }
    }

    fn reload(&self, pem: Result<PemFiles, ServerTlsError>) {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = installed.issued.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        let configured = pem.and_then(|pem| Ok((configure(&self.source, &pem, pair, &self.metrics)?, pem.client_ca)));
        match configured {
            Ok((configured, client_ca)) => {
                self.use_from_now_on(configured);
                installed.client_ca = client_ca;
                match &self.source.certificate {
                    ServingCertificate::Files { certificate, .. } => {
                        tracing::info!(certificate = %certificate.display(), "reloaded certificate of the HTTPS port");
                    }
                    ServingCertificate::Requested => tracing::info!("reloaded client CA bundle of the HTTPS port"),
                }
            }
            Err(error) => {
                let reason = error_report(&error);
                tracing::error!(reason, "cannot reload certificates of the HTTPS port, keeping the last valid ones");
            }
        }
    }
}

impl PemFiles {
    /// Reads the files, and follows them.
    async fn read(source: &Source, files: &WatchedFiles) -> Result<Self, ServerTlsError> {
        let mut pem = Self::default();
        // Each is followed, also where another one cannot be read.
        if let ServingCertificate::Files { certificate, key } = &source.certificate {
            let certificate = bytes("--tls-cert-file", certificate, files).await;
            pem.key = bytes("--tls-private-key-file", key, files).await?;
            pem.certificate = certificate?;
        }
        if let Some(path) = &source.client_ca {
            pem.client_ca = Some(bytes("--client-ca-file", path, files).await?);
        }
        Ok(pem)
    }
}

/// The configuration before the files are valid.
fn without_files(source: &Source, metrics: &ServingCertificateMetrics) -> Result<Configured, ServerTlsError> {
    let source = Source { certificate: ServingCertificate::Requested, ..source.clone() };
    configure(&source, &PemFiles::default(), None, metrics)
}

/// Builds the configuration from the files. `issued` is the certificate if it is a requested one.
fn configure(
    source: &Source,
    pem: &PemFiles,
    issued: Option<ChainAndKey>,
    metrics: &ServingCertificateMetrics,
) -> Result<Configured, ServerTlsError> {
    let invalid_pair = |error| match &source.certificate {
        ServingCertificate::Files { certificate, key } => {
            ServerTlsError::Pair { certificate: certificate.clone(), key: key.clone(), source: error }
        }
        ServingCertificate::Requested => ServerTlsError::Issued(error),
    };
    let pair = match &source.certificate {
        ServingCertificate::Files { certificate, key } => Some(chain_and_key(certificate, key, pem)?),
        ServingCertificate::Requested => issued,
    };
    // A client that is not asked for its certificate would be nobody for as long as its connection is open.
    let pair = pair.filter(|_| source.client_ca.is_none() || pem.client_ca.is_some());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(invalid_pair)?;
    let (builder, verifier) = match source.client_ca.as_ref().zip(pem.client_ca.as_ref()) {
        None => (builder.with_no_client_auth(), None),
        Some((path, client_ca)) => {
            let invalid = |reason: String| ServerTlsError::ClientCa { path: path.clone(), reason };
            let mut roots = RootCertStore::empty();
            for certificate in certificates("--client-ca-file", path, client_ca)? {
                roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
            }
            // A client without a certificate can still use a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| invalid(error.to_string()))?;
            let verifier: Arc<dyn ClientCertVerifier> = Arc::new(ClientVerifier(verifier));
            (builder.with_client_cert_verifier(verifier.clone()), Some(verifier))
        }
    };
    let info = pair.as_ref().and_then(|(chain, _)| CertificateInfo::of(chain.first()?));
    let mut config = match pair {
        Some((chain, key)) => builder.with_single_cert(chain, key).map_err(invalid_pair)?,
        // A resolver without certificates, which fails each handshake.
        None => builder.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())),
    };
    if verifier.is_some() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.time_provider = Arc::new(CertificateClock);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if let Some(info) = info {
        metrics.set(info.validity());
    }
    Ok((config, verifier))
}

fn chain_and_key(certificate: &Path, key: &Path, pem: &PemFiles) -> Result<ChainAndKey, ServerTlsError> {
    let chain = certificates("--tls-cert-file", certificate, &pem.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|source| ServerTlsError::Pem {
        flag: "--tls-private-key-file",
        path: key.to_owned(),
        source,
    })?;
    Ok((chain, key))
}

fn certificates(flag: &'static str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServerTlsError> {
    let invalid_pem = |source| ServerTlsError::Pem { flag, path: path.to_owned(), source };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(invalid_pem)?;
    if chain.is_empty() { Err(invalid_pem(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

async fn bytes(flag: &'static str, path: &Path, files: &WatchedFiles) -> Result<Vec<u8>, ServerTlsError> {
    let read = files.read_soon(path, MAX_FILE).await;
    read.map_err(|source| ServerTlsError::File { flag, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["weir".to_owned()]).unwrap();
        let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    async fn load_error(certificate: &Path, key: &Path, client_ca: Option<PathBuf>) -> String {
        let files = Source {
            certificate: ServingCertificate::Files { certificate: certificate.to_owned(), key: key.to_owned() },
            client_ca,
        };
        let pem = PemFiles::read(&files, &WatchedFiles::default()).await;
        let configured =
            pem.and_then(|pem| configure(&files, &pem, None, &ServingCertificateMetrics::default()).map(drop));
        configured.err().map_or_else(String::new, |error| error_report(&error))
    }

    #[tokio::test]
    async fn an_issued_certificate_is_served_only_with_the_bundle_for_clients() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = pair(folder.path(), "a");
        let bundle = folder.path().join("clients.crt");
        let source = Source { certificate: ServingCertificate::Requested, client_ca: Some(bundle.clone()) };
        let metrics = Arc::<ServingCertificateMetrics>::default();
        let tls = ServerTls::load(source.certificate.clone(), source.client_ca.clone(), metrics.clone()).await.unwrap();
        let chain = CertificateDer::pem_file_iter(&certificate).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        tls.install(chain, PrivateKeyDer::from_pem_file(&key).unwrap()).unwrap();
        assert!(metrics.validity().is_none(), "handshakes fail");
        std::fs::copy(&certificate, &bundle).unwrap();
        tls.reload(PemFiles::read(&source, &tls.files).await);
        assert!(metrics.validity().is_some());
    }

    #[tokio::test]
    async fn an_error_names_flag_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let (a, a_key) = pair(folder.path(), "a");
        let (_, b_key) = pair(folder.path(), "b");
        let nothing = folder.path().join("nothing");
        let text = folder.path().join("text");
        std::fs::write(&text, "no PEM").unwrap();
        assert_eq!(load_error(&a, &a_key, Some(a.clone())).await, "");
        for (certificate, key, ca, words) in [
            (&nothing, &a_key, None, ["--tls-cert-file", "nothing", "No such file"]),
            (&a, &nothing, None, ["--tls-private-key-file", "nothing", "No such file"]),
            (&text, &a_key, None, ["--tls-cert-file", "text", "PEM"]),
            (&a, &text, None, ["--tls-private-key-file", "text", "PEM"]),
            (&a, &b_key, None, ["a.crt", "b.key", "KeyMismatch"]),
            (&a, &a_key, Some(text.clone()), ["--client-ca-file", "text", "PEM"]),
            (&a, &a_key, Some(nothing.clone()), ["--client-ca-file", "nothing", "No such file"]),
        ] {
            let error = load_error(certificate, key, ca).await;
            for word in words {
                assert!(error.contains(word), "no {word:?} in {error:?}");
            }
        }
    }
}
