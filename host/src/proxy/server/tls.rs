//! TLS of the HTTPS port: its certificate, who may prove themselves by one, and what happens when the files change.
//!
//! One crypto provider (ring), TLS 1.2 and up, HTTP/2 by ALPN. Connections that are open keep what they began with; a pair
//! that can not be used is told and the last good one stays. Where the certificate is asked of the cluster and not there
//! yet, handshakes end with the alert `access_denied`. Memory: one configuration, a second one while a connection that
//! began with it is open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ResolvesServerCertUsingSni, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::leaf::Leaf;
use crate::config::{SecureConfig, ServingCertificate};
use crate::proxy::metrics::ProxyMetrics;
use weir_upstream::Files;
use weir_upstream::in_full;

/// Why the HTTPS port has no certificate to show. Retryable: files may be mended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that is not to be read.
    #[error("{flag} {}", path.display())]
    File {
        /// The flag that named it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file without what it is for.
    #[error("{flag} {}: not to be read as PEM", path.display())]
    Pem {
        /// The flag that named it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// A certificate and a key that do not go together, or a key of an unknown kind.
    #[error("--tls-cert-file {} and --tls-private-key-file {} cannot be used", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The same, for what was issued to the daemon.
    #[error("the certificate that was issued cannot be used")]
    Issued(#[source] rustls::Error),
    /// Certificates that are no CAs, or none at all.
    #[error("--client-ca-file {}: {reason}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What the HTTPS port shows at this moment.
#[derive(Debug)]
pub struct ServerTls {
    source: SecureConfig,
    /// The last one that was given to [`ServerTls::show`].
    issued: Mutex<Option<Identity>>,
    config: ArcSwap<ServerConfig>,
    metrics: Arc<ProxyMetrics>,
}

/// A chain with its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ServerTls {
    /// Reads the files; where the certificate is to be asked for, there is none yet.
    ///
    /// # Errors
    /// [`TlsError`], naming the file.
    pub fn load(source: SecureConfig, metrics: Arc<ProxyMetrics>) -> Result<Arc<Self>, TlsError> {
        let config = read(&source, None, &metrics)?;
        Ok(Arc::new(Self { source, issued: Mutex::default(), config: ArcSwap::from_pointee(config), metrics }))
    }

    /// Shows a certificate that was issued, from the next connection on.
    ///
    /// # Errors
    /// They do not go together; what was shown stays.
    pub fn show(&self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), TlsError> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let config = read(&self.source, Some((chain.clone(), key.clone_key())), &self.metrics)?;
        self.config.store(Arc::new(config));
        *issued = Some((chain, key));
        Ok(())
    }

    /// For one connection.
    pub(in crate::proxy) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    /// Reads the files again whenever they change. Ends with the daemon only.
    pub(in crate::proxy) async fn follow(self: Arc<Self>) {
        let own = match &self.source.certificate {
            ServingCertificate::Files { certificate, key } => vec![certificate, key],
            ServingCertificate::Requested => Vec::new(),
        };
        let paths: Vec<_> = own.into_iter().chain(&self.source.client_ca).cloned().collect();
        if paths.is_empty() {
            return;
        }
        let mut files = Files::new(paths);
        // They may have changed while nobody looked.
        self.renew("was read");
        loop {
            files.changed().await;
            self.renew("has changed");
        }
    }

    fn renew(&self, what: &str) {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = issued.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        match read(&self.source, identity, &self.metrics) {
            Ok(config) => {
                self.config.store(Arc::new(config));
                match &self.source.certificate {
                    ServingCertificate::Files { certificate, .. } => {
                        tracing::info!(certificate = %certificate.display(), "the certificate of the HTTPS port {what}");
                    }
                    ServingCertificate::Requested => tracing::info!("the client CA of the HTTPS port {what}"),
                }
            }
            Err(error) => {
                let reason = in_full(&error);
                tracing::error!(
                    reason,
                    "the new certificate of the HTTPS port cannot be used: the last good one stays"
                );
            }
        }
    }
}

/// The configuration as the files say now, with what was issued where it is to be asked for.
fn read(source: &SecureConfig, issued: Option<Identity>, metrics: &ProxyMetrics) -> Result<ServerConfig, TlsError> {
    let unusable = |error| match &source.certificate {
        ServingCertificate::Files { certificate, key } => {
            TlsError::Pair { certificate: certificate.clone(), key: key.clone(), source: error }
        }
        ServingCertificate::Requested => TlsError::Issued(error),
    };
    let identity = match &source.certificate {
        ServingCertificate::Files { certificate, key } => Some(files(certificate, key)?),
        ServingCertificate::Requested => issued,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match &source.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let refused = |reason: String| TlsError::ClientCa { path: path.clone(), reason };
            let mut roots = RootCertStore::empty();
            for certificate in certificates("--client-ca-file", path)? {
                roots.add(certificate).map_err(|error| refused(error.to_string()))?;
            }
            // Whoever has none may still bring a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| refused(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let ends = identity.as_ref().and_then(|(chain, _)| chain.first()).and_then(Leaf::of).map(|leaf| leaf.ends_at());
    let mut config = match identity {
        Some((chain, key)) => builder.with_single_cert(chain, key).map_err(unusable)?,
        // It knows of no certificate at all.
        None => builder.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if let Some(ends) = ends {
        metrics.serving_certificate(ends);
    }
    Ok(config)
}

fn files(certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = certificates("--tls-cert-file", certificate)?;
    let flag = "--tls-private-key-file";
    let key_pem = bytes(flag, key)?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|source| TlsError::Pem {
        flag,
        path: key.to_owned(),
        source,
    })?;
    Ok((chain, key))
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Pem { flag, path: path.to_owned(), source };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&bytes(flag, path)?).collect::<Result<_, _>>().map_err(unreadable)?;
    if chain.is_empty() { Err(unreadable(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

fn bytes(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File { flag, path: path.to_owned(), source })
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

    fn told(certificate: &Path, key: &Path, client_ca: Option<PathBuf>) -> String {
        let files = SecureConfig {
            address: "127.0.0.1:0".parse().unwrap(),
            certificate: ServingCertificate::Files { certificate: certificate.to_owned(), key: key.to_owned() },
            client_ca,
        };
        match ServerTls::load(files, Arc::default()) {
            Ok(_) => String::new(),
            Err(error) => in_full(&error),
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_flag_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let (a, a_key) = pair(folder.path(), "a");
        let (_, b_key) = pair(folder.path(), "b");
        let nothing = folder.path().join("nothing");
        let text = folder.path().join("text");
        std::fs::write(&text, "no PEM").unwrap();
        assert_eq!(told(&a, &a_key, Some(a.clone())), "");
        for (certificate, key, ca, words) in [
            (&nothing, &a_key, None, ["--tls-cert-file", "nothing", "No such file"]),
            (&a, &nothing, None, ["--tls-private-key-file", "nothing", "No such file"]),
            (&text, &a_key, None, ["--tls-cert-file", "text", "PEM"]),
            (&a, &text, None, ["--tls-private-key-file", "text", "PEM"]),
            (&a, &b_key, None, ["a.crt", "b.key", "KeyMismatch"]),
            (&a, &a_key, Some(text.clone()), ["--client-ca-file", "text", "PEM"]),
            (&a, &a_key, Some(nothing.clone()), ["--client-ca-file", "nothing", "No such file"]),
        ] {
            let told = told(certificate, key, ca);
            for word in words {
                assert!(told.contains(word), "no {word:?} in {told:?}");
            }
        }
    }
}
