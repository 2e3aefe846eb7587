//! Verifies client certificates, as handshakes and each request do.
//!
//! The time that a former process has left in a file does not end a certificate by itself: nobody vouches for it any more.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use weir_upstream::clock;

/// The most certificates of a chain that may each have expired by the time of the file.
const MAX_CHAIN: usize = 4;

/// A verifier of client certificates.
#[derive(Debug)]
pub(crate) struct ClientVerifier(pub(crate) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let mut result = self.0.verify_client_cert(end_entity, intermediates, now);
        for _ in 0..MAX_CHAIN {
            let Some(time) = result.as_ref().err().and_then(clock::despite_file) else { break };
            result = self.0.verify_client_cert(end_entity, intermediates, time);
        }
        result
    }

    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
