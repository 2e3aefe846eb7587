//! The certificates of a configuration: when that of a client expires, and those that verify API servers.

use std::path::PathBuf;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// When the client certificate of a configuration expires; `None` without one that is readable.
pub(crate) fn expiry(config: &kube::Config) -> Option<SystemTime> {
    let auth = &config.auth_info;
    let pem = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    let certificate = CertificateDer::from_pem_slice(&pem).ok()?;
    let certificate = Certificate::from_der(&certificate).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(certificate.tbs_certificate().validity().not_after.to_unix_duration())
}

/// The CA certificates that verify API servers.
#[derive(Debug, Clone)]
pub(crate) enum Roots {
    /// Those of the system.
    System,
    /// In a file that may change.
    File(PathBuf),
    /// Those of the configuration.
    Given(Vec<CertificateDer<'static>>),
}

impl Roots {
    pub(crate) fn of(config: &kube::Config) -> Self {
        match (&config.root_cert_file, &config.root_cert) {
            (Some(path), _) => Self::File(path.clone()),
            (None, Some(roots)) => Self::Given(roots.iter().cloned().map(CertificateDer::from).collect()),
            (None, None) => Self::System,
        }
    }

    /// The certificates now; `None` if they are not known.
    pub(crate) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        match self {
            Self::System => None,
            Self::File(path) => {
                CertificateDer::pem_slice_iter(&std::fs::read(path).ok()?).collect::<Result<_, _>>().ok()
            }
            Self::Given(roots) => Some(roots.clone()),
        }
    }
}
