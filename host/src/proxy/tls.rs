//! TLS of the HTTPS port: its certificate, who may prove themselves by one, and what happens when the files change.
//!
//! One crypto provider (ring), TLS 1.2 and up, HTTP/2 by ALPN. Connections that are open keep what they began with; a pair
//! that can not be used is told and the last good one stays. Memory: one configuration, a second one while a connection
//! that began with it is open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::SecureConfig;
use crate::files::Files;
use crate::problem::in_full;

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
    files: SecureConfig,
    config: ArcSwap<ServerConfig>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`], naming the file.
    pub fn load(files: SecureConfig) -> Result<Arc<Self>, TlsError> {
        let config = read(&files)?;
        Ok(Arc::new(Self { files, config: ArcSwap::from_pointee(config) }))
    }

    /// For one connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    /// Reads the files again whenever they change. Ends with the daemon only.
    pub(super) async fn follow(self: Arc<Self>) {
        let paths = [&self.files.certificate, &self.files.key].into_iter().chain(&self.files.client_ca);
        let mut files = Files::new(paths.cloned().collect());
        // They may have changed while nobody looked.
        self.renew("was read");
        loop {
            files.changed().await;
            self.renew("has changed");
        }
    }

    fn renew(&self, what: &str) {
        match read(&self.files) {
            Ok(config) => {
                self.config.store(Arc::new(config));
                tracing::info!(certificate = %self.files.certificate.display(), "the certificate of the HTTPS port {what}");
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

fn read(files: &SecureConfig) -> Result<ServerConfig, TlsError> {
    let chain = certificates("--tls-cert-file", &files.certificate)?;
    let key = bytes("--tls-private-key-file", &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|source| TlsError::Pem {
        flag: "--tls-private-key-file",
        path: files.key.clone(),
        source,
    })?;
    let pair = |source| TlsError::Pair { certificate: files.certificate.clone(), key: files.key.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &files.client_ca {
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
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
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
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_ca,
        };
        match ServerTls::load(files) {
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
