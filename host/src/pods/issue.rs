//! One serving certificate from the cluster: a CertificateSigningRequest is made, and asked for until somebody has approved
//! it and the signer has signed it. The key never leaves the daemon. The name of the request follows from the key, so that a
//! restarted daemon that kept the key finds its open request again.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use sha2::{Digest as _, Sha256};

use super::kept::Pair;
use weir_upstream::BackOff;

/// The signer of what kube-apiserver and pods trust kubelets by.
const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Under which names pods look for the API server.
const NAMES: &[&str] =
    &["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
/// For one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a request, doubled up to the longest: somebody may have to approve it by hand.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_LONGEST: Duration = Duration::from_secs(60);

/// Asks the API server. Which identity does so is the client's affair.
#[derive(Clone)]
pub(super) struct Issuer {
    pub(super) client: kube::Client,
    pub(super) node: String,
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    /// The API server refuses, or is not to be reached.
    #[error("{what} failed")]
    Api {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    /// It takes too long.
    #[error("{0}: no answer within {PATIENCE:?}")]
    Slow(&'static str),
    /// Somebody refused.
    #[error("CertificateSigningRequest {name} was {how}: {reason}")]
    Refused {
        name: String,
        /// `denied` or `failed`.
        how: &'static str,
        reason: String,
    },
    /// It was deleted, which is also what becomes of requests that nobody decides for a day.
    #[error("CertificateSigningRequest {0} is gone undecided")]
    Gone(String),
    /// What was signed is not what was asked for.
    #[error("what was issued for CertificateSigningRequest {name} is of no use: {reason}")]
    Unusable { name: String, reason: String },
    /// The request can't be put into words.
    #[error("a key and a request can not be made")]
    Request(#[source] rcgen::Error),
}

impl IssueError {
    /// Whether somebody has decided so: asking again soon would not change it.
    pub(super) fn is_decision(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Gone(_) | Self::Unusable { .. })
    }

    /// Whether an object of this name is there already.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()))
    }
}

impl Issuer {
    /// What the certificate has to prove beside the pod address: the Service that pods know the API server by. Cancel-safe.
    pub(super) async fn names(&self) -> Result<BTreeSet<String>, IssueError> {
        let services = Api::<Service>::namespaced(self.client.clone(), "default");
        let service = asked("reading the Service default/kubernetes", services.get("kubernetes")).await?;
        let spec = service.spec.unwrap_or_default();
        let addresses = spec.cluster_ips.unwrap_or_default().into_iter().chain(spec.cluster_ip);
        let addresses = addresses.filter(|address| address.parse::<std::net::IpAddr>().is_ok());
        Ok(NAMES.iter().map(ToString::to_string).chain(addresses).collect())
    }

    /// Requests a certificate of this key for these names and addresses, and waits until that is decided. Dropping the
    /// future leaves the request open: a later call with the same key and names takes it up again.
    pub(super) async fn issue(&self, key: &KeyPair, names: &BTreeSet<String>) -> Result<Pair, IssueError> {
        let request = self.request(key, names).map_err(IssueError::Request)?;
        let name = request.metadata.name.clone().unwrap_or_default();
        let requests = Api::<CertificateSigningRequest>::all(self.client.clone());
        let what = "making a CertificateSigningRequest";
        match asked(what, requests.create(&PostParams::default(), &request)).await {
            Ok(_) => {
                tracing::info!(
                    name,
                    signer = SIGNER,
                    "a certificate for the HTTPS port was asked for: it has to be approved"
                );
            }
            Err(error) if error.is_conflict() => {
                tracing::info!(
                    name,
                    signer = SIGNER,
                    "the open request for a certificate of the HTTPS port is taken up again"
                );
            }
            Err(error) => return Err(error),
        }
        let chain = decided(&requests, &name).await?;
        let unusable =
            |reason: &dyn fmt::Display| IssueError::Unusable { name: name.clone(), reason: reason.to_string() };
        let chain = String::from_utf8(chain).map_err(|error| unusable(&error))?;
        let pair = Pair::from_pem(key.serialize_pem() + &chain).map_err(|error| unusable(&error))?;
        let missing: Vec<_> = names.difference(&pair.leaf.names).cloned().collect();
        if !missing.is_empty() {
            return Err(unusable(&format_args!("it is not for {}", missing.join(", "))));
        }
        if pair.leaf.ends <= SystemTime::now() {
            return Err(unusable(&"it has expired already"));
        }
        Ok(pair)
    }

    /// One name for a key and what is to be proven by it.
    fn request_name(&self, key: &KeyPair, names: &BTreeSet<String>) -> String {
        let mut digest = Sha256::new_with_prefix(key.public_key_pem());
        for name in names {
            digest.update(name);
            digest.update([0]);
        }
        let suffix: String = digest.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        format!("weir-{}-{suffix}", self.node)
    }

    fn request(&self, key: &KeyPair, names: &BTreeSet<String>) -> Result<CertificateSigningRequest, rcgen::Error> {
        let mut parameters = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        parameters.distinguished_name.push(DnType::CommonName, format!("system:node:{}", self.node));
        Ok(CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(self.request_name(key, names)), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(parameters.serialize_request(key)?.pem()?.into_bytes()),
                signer_name: SIGNER.to_owned(),
                // An elliptic key enciphers no other key.
                usages: Some(vec!["digital signature".to_owned(), "server auth".to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
    }
}

/// Waits for the chain that is issued. Errors on the way are no decision: it is asked for again.
async fn decided(requests: &Api<CertificateSigningRequest>, name: &str) -> Result<Vec<u8>, IssueError> {
    let mut looks = BackOff::new(LOOK, LOOK_LONGEST);
    loop {
        looks.wait().await;
        let request = match asked("reading a CertificateSigningRequest", requests.get_opt(name)).await {
            Ok(Some(request)) => request,
            Ok(None) => return Err(IssueError::Gone(name.to_owned())),
            Err(error) => {
                let reason = weir_upstream::in_full(&error);
                tracing::warn!(name, reason, "whether a certificate was issued is not known yet");
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
            return Err(IssueError::Refused { name: name.to_owned(), how, reason });
        }
        if let Some(ByteString(chain)) = status.certificate.filter(|chain| !chain.0.is_empty()) {
            return Ok(chain);
        }
    }
}

async fn asked<T>(what: &'static str, answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, IssueError> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|source| IssueError::Api { what, source: Box::new(source) }),
        Err(_) => Err(IssueError::Slow(what)),
    }
}
