//! What a serving certificate says of itself: for how long it is good, and for which names and addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Read from the first certificate of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// From when on it is good.
    pub begins: SystemTime,
    /// Until when.
    pub ends: SystemTime,
    /// The DNS names and addresses that it proves, as text.
    pub names: BTreeSet<String>,
}

impl Leaf {
    /// None: it is no certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let certificate = certificate.tbs_certificate();
        let validity = certificate.validity();
        let names = certificate.get_extension::<SubjectAltName>().ok()?.map(|(_, names)| names.0).unwrap_or_default();
        Some(Self {
            begins: SystemTime::UNIX_EPOCH + validity.not_before.to_unix_duration(),
            ends: SystemTime::UNIX_EPOCH + validity.not_after.to_unix_duration(),
            names: Self::names(&names),
        })
    }

    /// The DNS names and addresses among these, as text.
    #[must_use]
    pub fn names(names: &[GeneralName]) -> BTreeSet<String> {
        names.iter().filter_map(name).collect()
    }

    /// Its end in seconds since 1970.
    #[must_use]
    pub fn ends_at(&self) -> u64 {
        self.ends.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// How long it is good in all.
    #[must_use]
    pub fn life(&self) -> Duration {
        self.ends.duration_since(self.begins).unwrap_or_default()
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
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_tells_its_life_and_its_names() {
        let names = ["kubernetes", "169.254.20.10", "fd00::1"].map(str::to_owned);
        let mut parameters = CertificateParams::new(names.to_vec()).unwrap();
        (parameters.not_before, parameters.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2024, 1, 3));
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let leaf = Leaf::of(certificate.der()).unwrap();
        assert_eq!(leaf.names, BTreeSet::from(names));
        assert_eq!((leaf.life(), leaf.ends_at()), (Duration::from_secs(2 * 86_400), 1_704_240_000));
        assert_eq!(Leaf::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
