//! How long a certificate is valid, and its subject alternative names.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

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
    /// Returns whether it has ended, or ends in the last tenth of its lifetime, of which seven days count.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        let left = self.ends.duration_since(clock::now()).unwrap_or_default();
        left <= SOON.min(self.lifetime / LAST_PART)
    }
}

/// Validity and names of the first certificate of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The start of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
    /// Its DNS names and IP addresses, as text.
    pub names: BTreeSet<String>,
}

impl CertificateInfo {
    /// Parses a certificate; none if it is malformed.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let certificate = certificate.tbs_certificate();
        let validity = certificate.validity();
        let names = certificate.get_extension::<SubjectAltName>().ok()?.map(|(_, names)| names.0).unwrap_or_default();
        Some(Self {
            not_before: SystemTime::UNIX_EPOCH + validity.not_before.to_unix_duration(),
            not_after: SystemTime::UNIX_EPOCH + validity.not_after.to_unix_duration(),
            names: Self::names(&names),
        })
    }

    /// Returns the DNS names and IP addresses among these names, as text.
    #[must_use]
    pub fn names(names: &[GeneralName]) -> BTreeSet<String> {
        names.iter().filter_map(name).collect()
    }

    /// Its validity.
    #[must_use]
    pub fn validity(&self) -> CertificateValidity {
        let lifetime = self.not_after.duration_since(self.not_before).unwrap_or_default();
        CertificateValidity { ends: self.not_after, lifetime }
    }
}

fn name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// The validity of the client certificate of a configuration; `None` without one that is readable.
pub(crate) fn validity(config: &kube::Config) -> Option<CertificateValidity> {
    let pem = STANDARD.decode(config.auth_info.client_certificate_data.as_ref()?).ok()?;
    CertificateInfo::of(&CertificateDer::from_pem_slice(&pem).ok()?).map(|info| info.validity())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn validity_and_names_are_read_from_a_certificate() {
        let names = ["kubernetes", "169.254.20.10", "fd00::1"].map(str::to_owned);
        let mut parameters = CertificateParams::new(names.to_vec()).unwrap();
        (parameters.not_before, parameters.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2024, 1, 3));
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let info = CertificateInfo::of(certificate.der()).unwrap();
        assert_eq!(info.names, BTreeSet::from(names));
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_704_240_000);
        assert_eq!(info.validity(), CertificateValidity { ends, lifetime: Duration::from_secs(2 * 86_400) });
        assert_eq!(CertificateInfo::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
