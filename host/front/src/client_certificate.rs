//! The user and groups of a client certificate, as kube-apiserver reads them: the last common name is the user, each
//! organization is a group.

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME};
use x509_cert::ext::pkix::name::DirectoryString;

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// The subject of a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The user name.
    pub user: String,
    /// The groups. `system:authenticated` is the last one.
    pub groups: Vec<String>,
}

impl Subject {
    /// Returns the subject; none if the certificate names no user, or if a name is not valid in an impersonation header.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let named = |oid| {
            let values = certificate.tbs_certificate().subject().iter().filter(move |part| part.oid == oid);
            values.map(|part| part.value.decode_as::<DirectoryString>().ok().map(|text| text.value().into_owned()))
        };
        // Go's crypto/x509 keeps the last one.
        let user = named(COMMON_NAME).last()??;
        let mut groups: Vec<String> = named(ORGANIZATION_NAME).collect::<Option<_>>()?;
        groups.push(AUTHENTICATED.to_owned());
        let fits = |text: &String| !text.is_empty() && HeaderValue::from_str(text).is_ok();
        (fits(&user) && groups.iter().all(fits)).then_some(Self { user, groups })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn subject(parts: &[(DnType, &str)]) -> Option<Subject> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, text) in parts {
            parameters.distinguished_name.push(kind.clone(), *text);
        }
        Subject::of(parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_a_group() {
        let found =
            subject(&[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "system:node:edge-a")]).unwrap();
        assert_eq!(found.user, "system:node:edge-a");
        assert_eq!(found.groups, ["system:nodes", "system:authenticated"]);
    }

    /// `openssl` and Go write any number of them.
    #[test]
    fn of_several_common_names_the_last_one_is_the_user() {
        let names = |first: &str, last: &str| {
            let custom = DnType::CustomDnType(vec![2, 5, 4, 3]);
            subject(&[(DnType::CommonName, first), (custom, last)]).unwrap().user
        };
        assert_eq!(names("admin", "tenant"), "tenant");
        assert_eq!(names("tenant", "admin"), "admin");
    }

    #[test]
    fn a_certificate_without_a_valid_user_has_no_subject() {
        assert_eq!(subject(&[(DnType::OrganizationName, "system:masters")]), None);
        assert_eq!(subject(&[(DnType::CommonName, "a\nb")]), None);
        assert_eq!(subject(&[(DnType::CommonName, "")]), None);
        assert_eq!(Subject::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
