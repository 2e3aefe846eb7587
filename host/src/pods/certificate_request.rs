//! Obtains a serving certificate through a CertificateSigningRequest.
//!
//! It creates the request, and polls it until it is approved and signed. The private key never leaves the daemon. The name
//! of the request derives from the key, so that a restarted daemon with the same key finds its open request.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use sha2::{Digest as _, Sha256};

use super::cert_store::KeyAndChain;
use weir_front::ServerTlsError;
use weir_upstream::BackOff;
use weir_upstream::clock;

/// The signer of kubelet serving certificates.
const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The DNS names of the API server in pods.
const NAMES: &[&str] =
    &["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
/// The timeout of a request to the API server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The first poll interval, doubled up to the maximum because approval may be manual.
const POLL: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_secs(60);

/// Requests certificates for a node, with the credential of a client.
#[derive(Clone)]
pub(super) struct CertificateRequester {
    pub(super) client: kube::Client,
    pub(super) node: String,
}

/// No certificate was obtained.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// A request to the API server failed.
    #[error("{what} failed")]
    Api {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    /// A request to the API server timed out.
    #[error("{0}: no response within {TIMEOUT:?}")]
    Timeout(&'static str),
    /// The request was denied, or signing failed.
    #[error("CertificateSigningRequest {name} was {how}: {reason}")]
    Rejected {
        name: String,
        /// `denied` or `failed`.
        how: &'static str,
        reason: String,
    },
    /// The request was deleted. kube-controller-manager deletes requests that stay pending for a day.
    #[error("CertificateSigningRequest {0} was deleted before a decision")]
    Deleted(String),
    /// The issued certificate does not match the request.
    #[error("the certificate issued for CertificateSigningRequest {name} is not usable: {reason}")]
    Unusable { name: String, reason: String },
    /// The issued certificate does not match the key.
    #[error("cannot use the issued certificate")]
    Install(#[source] ServerTlsError),
    /// Generating the key or the request failed.
    #[error("cannot generate a key and a certificate request")]
    Generate(#[source] rcgen::Error),
}

impl CertificateError {
    /// Returns whether the cluster decided on the request, so that retrying soon would not help.
    pub(super) fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Deleted(_) | Self::Unusable { .. } | Self::Install(_))
    }

    /// Returns whether the object exists already.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()))
    }
}

impl CertificateRequester {
    /// Returns the names and addresses of the Service `default/kubernetes`, which the certificate must contain. Cancel safe.
    pub(super) async fn names(&self) -> Result<BTreeSet<String>, CertificateError> {
        let services = Api::<Service>::namespaced(self.client.clone(), "default");
        let service = with_timeout("reading the Service default/kubernetes", services.get("kubernetes")).await?;
        let spec = service.spec.unwrap_or_default();
        let addresses = spec.cluster_ips.unwrap_or_default().into_iter().chain(spec.cluster_ip);
        let addresses = addresses.filter(|address| address.parse::<std::net::IpAddr>().is_ok());
        Ok(NAMES.iter().map(ToString::to_string).chain(addresses).collect())
    }

    /// Requests a certificate for these names and addresses, and waits until it is issued or rejected.
    ///
    /// Cancel safe: a later call with the same key and names resumes the open request.
    pub(super) async fn request(
        &self,
        key: &KeyPair,
        names: &BTreeSet<String>,
    ) -> Result<KeyAndChain, CertificateError> {
        let request = self.signing_request(key, names).map_err(CertificateError::Generate)?;
        let name = request.metadata.name.clone().unwrap_or_default();
        let requests = Api::<CertificateSigningRequest>::all(self.client.clone());
        let what = "creating a CertificateSigningRequest";
        match with_timeout(what, requests.create(&PostParams::default(), &request)).await {
            Ok(_) => {
                tracing::info!(
                    name,
                    signer = SIGNER,
                    "requested a certificate for the HTTPS port, waiting for approval"
                );
            }
            Err(error) if error.is_conflict() => {
                tracing::info!(name, signer = SIGNER, "resumed the open certificate request for the HTTPS port");
            }
            Err(error) => return Err(error),
        }
        let chain = wait_for_decision(&requests, &name).await?;
        let unusable =
            |reason: &dyn fmt::Display| CertificateError::Unusable { name: name.clone(), reason: reason.to_string() };
        let chain = String::from_utf8(chain).map_err(|error| unusable(&error))?;
        let pair = KeyAndChain::from_pem(key.serialize_pem() + &chain).map_err(|error| unusable(&error))?;
        let missing: Vec<_> = names.difference(&pair.info.names).cloned().collect();
        if !missing.is_empty() {
            return Err(unusable(&format_args!("it lacks {}", missing.join(", "))));
        }
        if pair.info.not_after <= clock::now() {
            return Err(unusable(&"it has expired"));
        }
        Ok(pair)
    }

    /// Derives the name of the request from the key and the names.
    fn request_name(&self, key: &KeyPair, names: &BTreeSet<String>) -> String {
        let mut digest = Sha256::new_with_prefix(key.public_key_pem());
        for name in names {
            digest.update(name);
            digest.update([0]);
        }
        let suffix: String = digest.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        format!("weir-{}-{suffix}", self.node)
    }

    fn signing_request(
        &self,
        key: &KeyPair,
        names: &BTreeSet<String>,
    ) -> Result<CertificateSigningRequest, rcgen::Error> {
        let mut parameters = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        parameters.distinguished_name.push(DnType::CommonName, format!("system:node:{}", self.node));
        Ok(CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(self.request_name(key, names)), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(parameters.serialize_request(key)?.pem()?.into_bytes()),
                signer_name: SIGNER.to_owned(),
                // Without "key encipherment", which applies to RSA keys only.
                usages: Some(vec!["digital signature".to_owned(), "server auth".to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
    }
}

/// Polls a request until it is decided, and returns the issued chain. Retries failed polls. Cancel safe.
async fn wait_for_decision(requests: &Api<CertificateSigningRequest>, name: &str) -> Result<Vec<u8>, CertificateError> {
    let mut polls = BackOff::new(POLL, POLL_MAX);
    loop {
        polls.wait().await;
        let request = match with_timeout("reading a CertificateSigningRequest", requests.get_opt(name)).await {
            Ok(Some(request)) => request,
            Ok(None) => return Err(CertificateError::Deleted(name.to_owned())),
            Err(error) => {
                let reason = weir_upstream::error_report(&error);
                tracing::warn!(name, reason, "cannot read the certificate request, retrying");
                continue;
            }
        };
        let status = request.status.unwrap_or_default();
        for condition in status.conditions.unwrap_or_default() {
            let how = match condition.type_.as_str() {
                "Denied" => "denied",
                "Failed" => "failed",
                _ => continue,
            };
            let reason = [condition.reason, condition.message].into_iter().flatten().filter(|text| !text.is_empty());
            let reason: String =
                reason.collect::<Vec<_>>().join(", ").chars().filter(|c| !c.is_control()).take(300).collect();
            return Err(CertificateError::Rejected { name: name.to_owned(), how, reason });
        }
        if let Some(ByteString(chain)) = status.certificate.filter(|chain| !chain.0.is_empty()) {
            return Ok(chain);
        }
    }
}

/// Awaits a response with a timeout.
async fn with_timeout<T>(
    what: &'static str,
    response: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CertificateError> {
    match tokio::time::timeout(TIMEOUT, response).await {
        Ok(response) => response.map_err(|source| CertificateError::Api { what, source: Box::new(source) }),
        Err(_) => Err(CertificateError::Timeout(what)),
    }
}
