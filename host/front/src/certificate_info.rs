//! The validity and the subject alternative names of a serving certificate.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use weir_upstream::CertificateValidity;

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
        CertificateValidity::between(self.not_before, self.not_after)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
