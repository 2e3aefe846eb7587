//! Certificates for tests: an authority, and certificates that it signs for servers and clients, some of them expired.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use weir_upstream::CertificateInfo;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::request::{CertReq, ExtensionReq};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its private key, PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The authority that the clients and daemons of this process trust, and a certificate of it.
pub struct Shared {
    /// The authority.
    pub authority: Authority,
    /// The certificate of the API servers at 127.0.0.1.
    pub server: Pair,
}

/// What the clients and daemons of this process trust where a test does not say otherwise.
#[must_use]
pub fn shared() -> &'static Shared {
    static SHARED: LazyLock<Shared> = LazyLock::new(|| {
        let authority = Authority::new("the cluster of the tests");
        Shared { server: authority.server(), authority }
    });
    &SHARED
}

/// A kubeconfig for the API server at `server`, with this user in it. It trusts [`shared`] and the certificates of `ca`, PEM, which
/// may be empty.
#[must_use]
pub fn kubeconfig(server: &str, ca: &str, user: &str) -> String {
    let trusted = base64(&format!("{ca}{}", shared().authority.pem()));
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c,
          clusters: [{{name: a, cluster: {{server: \"{server}\", certificate-authority-data: {trusted}}}}}],
          users: [{{name: u, user: {{{user}}}}}], contexts: [{{name: c, context: {{cluster: a, user: u}}}}]}}"
    )
}

/// The fields of a kubeconfig's user that has this client certificate.
#[must_use]
pub fn certificate_user(pair: &Pair) -> String {
    let Pair { certificate, key } = pair;
    format!("client-certificate-data: {}, client-key-data: {}", base64(certificate), base64(key))
}

/// The text in base64, as a kubeconfig has certificates.
#[must_use]
pub fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

impl Authority {
    /// A new authority of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for a server at 127.0.0.1.
    #[must_use]
    pub fn server(&self) -> Pair {
        self.sign(Self::server_parameters())
    }

    /// Issues a certificate for a server at 127.0.0.1 that expires after `life`.
    #[must_use]
    pub fn server_for(&self, life: Duration) -> Pair {
        let mut parameters = Self::server_parameters();
        limit(&mut parameters, life);
        self.sign(parameters)
    }

    /// Issues a certificate for a server at these addresses.
    #[must_use]
    pub fn server_at(&self, addresses: impl IntoIterator<Item = String>) -> Pair {
        let mut parameters = CertificateParams::new(addresses.into_iter().collect::<Vec<_>>()).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(parameters)
    }

    /// Issues a certificate for a server at 127.0.0.1 that expired long ago.
    #[must_use]
    pub fn expired_server(&self) -> Pair {
        let mut parameters = Self::server_parameters();
        parameters.not_after = date_time_ymd(2001, 1, 1);
        self.sign(parameters)
    }

    /// Issues a client certificate for a user and a group.
    #[must_use]
    pub fn client(&self, user: &str, group: &str) -> Pair {
        self.sign(Self::client_parameters(user, group))
    }

    /// Issues a client certificate for a user and a group that expires after `life`.
    #[must_use]
    pub fn client_for(&self, user: &str, group: &str, life: Duration) -> Pair {
        let mut parameters = Self::client_parameters(user, group);
        limit(&mut parameters, life);
        self.sign(parameters)
    }

    /// Signs a request as the signer kubernetes.io/kubelet-serving does, valid from now on for `life`. Returns PEM.
    ///
    /// # Errors
    /// If that signer would refuse the request.
    pub fn certify(&self, request: &str, life: Duration) -> Result<String, String> {
        let der =
            CertificateSigningRequestDer::from_pem_slice(request.as_bytes()).map_err(|error| error.to_string())?;
        let request = CertReq::from_der(&der).map_err(|error| error.to_string())?.info;
        let subject = request.subject.to_string();
        if !subject.contains("CN=system:node:") || !subject.contains("O=system:nodes") {
            return Err(format!("not the subject of a node: {subject}"));
        }
        let extensions = request.attributes.iter().find(|attribute| attribute.oid == ExtensionReq::OID);
        let extensions = extensions.and_then(|attribute| attribute.values.get(0)).ok_or("no extensions")?;
        let ExtensionReq(extensions) =
            extensions.decode_as().map_err(|error: x509_cert::der::Error| error.to_string())?;
        let names = match &extensions[..] {
            [only] if only.extn_id == SubjectAltName::OID => only.extn_value.as_bytes(),
            _ => return Err("it asks for other extensions than names".to_owned()),
        };
        let names = SubjectAltName::from_der(names).map_err(|error| error.to_string())?;
        let mut parameters = CertificateParams::new(CertificateInfo::names(&names.0).into_iter().collect::<Vec<_>>())
            .map_err(|error| error.to_string())?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        limit(&mut parameters, life);
        let key = Public(request.public_key.subject_public_key.raw_bytes().to_vec());
        Ok(parameters.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?.pem())
    }

    fn client_parameters(user: &str, group: &str) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, group);
        parameters.distinguished_name.push(DnType::CommonName, user);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters
    }

    fn server_parameters() -> CertificateParams {
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters
    }

    fn sign(&self, parameters: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// Makes a certificate valid from now on for `life`.
fn limit(parameters: &mut CertificateParams, life: Duration) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    parameters.not_before = date_time_ymd(1970, 1, 1) + since;
    parameters.not_after = parameters.not_before + life;
}

/// A public key on the curve P-256.
struct Public(Vec<u8>);

impl PublicKeyData for Public {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
