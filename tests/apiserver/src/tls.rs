//! The TLS configuration of a server, from PEM: one certificate chain. ALPN offers HTTP/2 before HTTP/1.1.
//!
//! Memory: the certificate and the key.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A reason that TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerTlsError {
    /// It is not PEM, or not of the right kind.
    #[error("{what} is not readable as PEM")]
    Pem {
        /// Certificate or key.
        what: &'static str,
        /// The error of the PEM reader.
        #[source]
        source: tokio_rustls::rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not match.
    #[error("certificate and key cannot be used")]
    Unusable(#[source] tokio_rustls::rustls::Error),
    /// The client CA cannot verify any certificate.
    #[error("the client CA cannot be used")]
    ClientCa(#[source] VerifierBuilderError),
}

pub(crate) fn config(
    certificates: &[u8],
    key: &[u8],
    client_ca: Option<&[u8]>,
) -> Result<ServerConfig, ServerTlsError> {
    let unreadable = |what| move |source| ServerTlsError::Pem { what, source };
    let chain = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable("the certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(unreadable("the key"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(ServerTlsError::Unusable)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(pem).map_err(unreadable("the client CA"))?)
                .map_err(ServerTlsError::Unusable)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(ServerTlsError::ClientCa)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(ServerTlsError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
