//! Public keys of signatures.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// A public key: ECDSA on P-256 or P-384, Ed25519 or RSA. cosign generates P-256.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey {
    algorithms: Vec<&'static dyn VerificationAlgorithm>,
    bytes: Vec<u8>,
}

/// Why a text is no public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It is no PEM text of a public key.
    #[error("it is not a public key in PEM, which begins with -----BEGIN PUBLIC KEY-----")]
    Pem,
    /// It is of another kind.
    #[error("its kind of key ({0}) is not supported: give ECDSA on P-256 or P-384, Ed25519 or RSA")]
    Algorithm(String),
}

impl PublicKey {
    /// Parses PEM.
    ///
    /// # Errors
    /// It is no public key, or of a kind that is not supported.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).map_err(|_| KeyError::Pem)?;
        let info = SubjectPublicKeyInfoOwned::from_der(&der).map_err(|_| KeyError::Pem)?;
        let curve = info.algorithm.parameters.as_ref().and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
        let algorithms: Vec<&'static dyn VerificationAlgorithm> = match (info.algorithm.oid, curve) {
            (EC, Some(P256)) => vec![&ECDSA_P256_SHA256_ASN1],
            (EC, Some(P384)) => vec![&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1],
            (ED, _) => vec![&ED25519],
            (RSA, _) => vec![&RSA_PKCS1_2048_8192_SHA256, &RSA_PSS_2048_8192_SHA256],
            (kind, curve) => {
                let curve = curve.map(|curve| format!(", curve {curve}")).unwrap_or_default();
                return Err(KeyError::Algorithm(format!("{kind}{curve}")));
            }
        };
        Ok(Self { algorithms, bytes: info.subject_public_key.raw_bytes().to_vec() })
    }

    /// Whether a signature of the message is of this key.
    #[must_use]
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verifies = |algorithm: &&'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(*algorithm, &self.bytes).verify(message, signature).is_ok()
        };
        self.algorithms.iter().any(verifies)
    }
}
