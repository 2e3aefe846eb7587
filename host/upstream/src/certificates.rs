//! The certificates of a configuration: how long that of a client is valid, and those that verify API servers.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::clock;

/// The longest time before its end for which a certificate ends soon.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);
/// The last part of a lifetime in which a certificate ends soon. Weir and kubelet renew at 70 to 90 % of it: what is older was not
/// renewed in time, however short the lifetime is.
const LAST_PART: u32 = 10;

/// When a certificate ends, and how long it is valid in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateValidity {
    /// The end of its validity.
    pub ends: SystemTime,
    /// The length of its validity.
    pub lifetime: Duration,
}

impl CertificateValidity {
    /// The validity from one time to another.
    #[must_use]
    pub fn between(begins: SystemTime, ends: SystemTime) -> Self {
        Self { ends, lifetime: ends.duration_since(begins).unwrap_or_default() }
    }

    /// Returns whether it has ended, or ends in the last tenth of its lifetime, of which seven days count.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        let left = self.ends.duration_since(clock::now()).unwrap_or_default();
        left <= SOON.min(self.lifetime / LAST_PART)
    }
}

/// The validity of the client certificate of a configuration; `None` without one that is readable.
pub(crate) fn validity(config: &kube::Config) -> Option<CertificateValidity> {
    let auth = &config.auth_info;
    let pem = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    let certificate = CertificateDer::from_pem_slice(&pem).ok()?;
    let certificate = Certificate::from_der(&certificate).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let time = |time: &x509_cert::time::Time| SystemTime::UNIX_EPOCH.checked_add(time.to_unix_duration());
    Some(CertificateValidity::between(time(&validity.not_before)?, time(&validity.not_after)?))
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
