//! The client certificate of a configuration: how long it is valid.

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
    let pem = STANDARD.decode(config.auth_info.client_certificate_data.as_ref()?).ok()?;
    let certificate = CertificateDer::from_pem_slice(&pem).ok()?;
    let certificate = Certificate::from_der(&certificate).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let time = |time: &x509_cert::time::Time| SystemTime::UNIX_EPOCH.checked_add(time.to_unix_duration());
    Some(CertificateValidity::between(time(&validity.not_before)?, time(&validity.not_after)?))
}
