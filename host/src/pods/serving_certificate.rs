//! Manages the serving certificate that the daemon requests from the cluster.
//!
//! It stores the certificate on disk, and requests a new one well before expiry or when the required names change. After
//! a failure it logs the reason and retries, and the current certificate stays in use.
//!
//! Memory: one certificate with its key.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use sha2::{Digest as _, Sha256};

use super::cert_store::{CertStore, KeyAndChain};
use super::certificate_request::{CertificateError, CertificateRequester};
use weir_front::{ServerTls, ServerTlsError};
use weir_upstream::{BackOff, CertificateInfo, Upstream, clock, error_report, jitter};

/// The time between two checks of the required names.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// The time to the next check after a failed one.
const CHECK_RETRY: Duration = Duration::from_secs(60);
/// The delay after a failure, doubled up to the maximum.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The delay after a rejected request, doubled up to the maximum. It needs action by an operator.
const REJECTED: Duration = Duration::from_secs(10);
const REJECTED_MAX: Duration = Duration::from_secs(3600);

/// The task that provides the HTTPS port with a certificate.
pub struct CertificateManager {
    requester: CertificateRequester,
    /// The pod address, and the host at which peers reach this Weir.
    hosts: Vec<String>,
    store: CertStore,
    tls: Arc<ServerTls>,
    upstream: Arc<Upstream>,
}

/// The certificate in use.
struct InUse {
    info: CertificateInfo,
    renew_at: SystemTime,
    chain: Vec<CertificateDer<'static>>,
    /// The CA bundle for which it was issued, or that has verified it: its digest.
    ca: Option<String>,
}

impl CertificateManager {
    /// Creates the task without starting it. It requests certificates for `node` with this client. They are for the Service
    /// `kubernetes` and these hosts.
    #[must_use]
    pub fn new(upstream: Arc<Upstream>, node: &str, hosts: Vec<String>, cache: &Path, tls: Arc<ServerTls>) -> Self {
        let requester = CertificateRequester { client: upstream.node_client(), node: node.to_owned() };
        Self { requester, hosts, store: CertStore::new(cache, node), tls, upstream }
    }

    /// Runs until it is cancelled. Cancel safe: an open request is resumed after a restart.
    pub async fn run(self) {
        let stored = self.store.load().await;
        let mut in_use = stored.and_then(|pair| {
            self.install(pair, "stored")
                .inspect_err(|error| {
                    tracing::warn!(reason = error_report(error), "stored certificate for the HTTPS port is not valid");
                })
                .ok()
        });
        let (mut failed, mut rejected) = (BackOff::new(RETRY, RETRY_MAX), BackOff::new(REJECTED, REJECTED_MAX));
        let mut logged = None;
        loop {
            let wait = match self.step(&mut in_use).await {
                Ok(wait) => {
                    failed.reset();
                    rejected.reset();
                    logged = None;
                    wait
                }
                Err(error) => {
                    let reason = error_report(&error);
                    if logged.as_ref() != Some(&reason) {
                        tracing::error!(reason, "cannot obtain a certificate for the HTTPS port, retrying");
                        logged = Some(reason);
                    }
                    if error.is_rejection() { rejected.next_delay() } else { failed.next_delay() }
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Obtains a new certificate if one is due, and returns the time until the next check.
    ///
    /// Cancel safe: the key of an open request is on disk.
    async fn step(&self, in_use: &mut Option<InUse>) -> Result<Duration, CertificateError> {
        let mut names = match (self.requester.names().await, &in_use) {
            (Ok(names), _) => names,
            // The names are unknown, but the certificate in use is not due for renewal.
            (Err(_), Some(in_use)) if in_use.renew_at > clock::now() => return Ok(jitter(CHECK_RETRY)),
            (Err(error), _) => return Err(error),
        };
        names.extend(self.hosts.iter().cloned());
        let roots = self.upstream.roots();
        let is_trusted = in_use.as_mut().is_none_or(|in_use| in_use.is_trusted(roots.as_deref()));
        if !is_trusted {
            tracing::info!(
                "the cluster has another CA than the one that issued the certificate of the HTTPS port, requesting another one"
            );
        }
        if let Some(due) = in_use.as_ref().filter(|_| is_trusted).and_then(|in_use| in_use.remaining(&names)) {
            return Ok(due.min(jitter(CHECK_INTERVAL)));
        }
        let key = self.key().await?;
        let issued = self.requester.request(&key, &names).await;
        if !issued.as_ref().is_err_and(|error| !error.is_rejection()) {
            self.store.remove_pending().await;
        }
        let mut pair = issued?;
        pair.ca = roots.as_deref().map(digest);
        if let Err(error) = self.store.store(&pair).await {
            tracing::warn!(path = %self.store.path.display(), %error, "cannot store the certificate for the HTTPS port, the next start requests another one");
        }
        let installed = self.install(pair, "issued").map_err(CertificateError::Install)?;
        Ok(in_use.insert(installed).remaining(&names).unwrap_or_default().min(jitter(CHECK_INTERVAL)))
    }

    /// Returns the key of the request that an earlier run left open, otherwise a new key.
    ///
    /// The key is stored before the request is created. A restarted daemon then resumes the request, and nobody has to
    /// approve a second one.
    async fn key(&self) -> Result<KeyPair, CertificateError> {
        if let Some(key) = self.store.pending().await {
            return Ok(key);
        }
        let key = KeyPair::generate().map_err(CertificateError::Generate)?;
        if let Err(error) = self.store.store_pending(&key).await {
            tracing::warn!(path = %self.store.pending.display(), %error, "cannot store the key of the certificate request, a restart creates another request");
        }
        Ok(key)
    }

    /// Installs a certificate on the HTTPS port. `origin` is `stored` or `issued`.
    fn install(&self, pair: KeyAndChain, origin: &'static str) -> Result<InUse, ServerTlsError> {
        let (info, ca, chain) = (pair.info, pair.ca, pair.chain.clone());
        self.tls.install(pair.chain, pair.key)?;
        let left = info.not_after.duration_since(clock::now()).unwrap_or_default();
        tracing::info!(days_left = left.as_secs() / 86_400, "installed {origin} certificate on the HTTPS port");
        Ok(InUse { renew_at: renewal_time(&info), info, chain, ca })
    }
}

impl InUse {
    /// Returns the time until renewal, or `None` if renewal is due or a name is missing.
    fn remaining(&self, names: &BTreeSet<String>) -> Option<Duration> {
        if !names.is_subset(&self.info.names) {
            return None;
        }
        self.renew_at.duration_since(clock::now()).ok().filter(|left| !left.is_zero())
    }

    /// Whether the cluster's CA bundle is that for which the certificate was issued, or verifies it. A cluster may have another
    /// signer than that: a certificate that was issued for the present bundle is not requested again.
    fn is_trusted(&mut self, roots: Option<&[CertificateDer<'static>]>) -> bool {
        let Some(roots) = roots else { return true };
        let digest = digest(roots);
        let is_trusted = self.ca.as_ref() == Some(&digest) || self.is_verified_by(roots);
        if is_trusted {
            self.ca = Some(digest);
        }
        is_trusted
    }

    fn is_verified_by(&self, roots: &[CertificateDer<'static>]) -> bool {
        let Some((first, others)) = self.chain.split_first() else { return false };
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        // Whether it has expired is another question.
        let middle = self.info.not_before + self.info.validity().lifetime / 2;
        let now = UnixTime::since_unix_epoch(middle.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        ParsedCertificate::try_from(first).is_ok_and(|first| {
            verify_server_cert_signed_by_trust_anchor(&first, &store, others, now, algorithms.all).is_ok()
        })
    }
}

/// The digest of a CA bundle.
fn digest(roots: &[CertificateDer<'static>]) -> String {
    let mut digest = Sha256::new();
    for root in roots {
        digest.update((root.len() as u64).to_be_bytes());
        digest.update(root);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a random time at 70 to 90 % of the lifetime, so that a thousand nodes do not renew at once.
fn renewal_time(info: &CertificateInfo) -> SystemTime {
    let lifetime = info.validity().lifetime;
    let fifth = lifetime / 5;
    info.not_before + lifetime * 7 / 10 + (jitter(fifth * 2).saturating_sub(fifth))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer};

    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_70_to_90_percent_of_its_lifetime_or_when_names_change() {
        let begins = clock::now();
        let day = Duration::from_secs(86_400);
        let names = BTreeSet::from(["kubernetes".to_owned()]);
        let info = CertificateInfo { not_before: begins, not_after: begins + day, names: names.clone() };
        let mut ends = (day, Duration::ZERO);
        for _ in 0..100 {
            let at = renewal_time(&info).duration_since(begins).unwrap();
            ends = (ends.0.min(at), ends.1.max(at));
        }
        assert!(ends.0 >= day * 7 / 10 && ends.1 <= day * 9 / 10 && ends.1 - ends.0 > day / 20, "{ends:?}");
        let in_use = |renew_at| InUse { renew_at, info: info.clone(), chain: Vec::new(), ca: None };
        let due = in_use(renewal_time(&info));
        assert!(due.remaining(&names).unwrap() > day * 6 / 10);
        assert_eq!(due.remaining(&BTreeSet::from(["other".to_owned()])), None);
        assert_eq!(in_use(begins).remaining(&names), None);
    }

    #[test]
    fn a_certificate_counts_for_the_ca_bundle_that_it_was_issued_for_or_that_verifies_it() {
        let authority = |name: &str| {
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap().der().clone();
            (Issuer::new(parameters, key), certificate)
        };
        let ((issuer, ca), (_, other)) = (authority("a"), authority("b"));
        let certificate = CertificateParams::new(vec!["kubernetes".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let info = CertificateInfo::of(certificate.der()).unwrap();
        let chain = vec![certificate.der().clone()];
        let in_use = |ca| InUse { renew_at: info.not_after, info: info.clone(), chain: chain.clone(), ca };
        let (own, changed) = ([ca.clone()], [other.clone()]);
        assert!(in_use(None).is_trusted(Some(&own)) && in_use(None).is_trusted(Some(&[other, ca])));
        assert!(!in_use(None).is_trusted(Some(&changed)) && !in_use(Some(digest(&own))).is_trusted(Some(&changed)));
        assert!(in_use(Some(digest(&changed))).is_trusted(Some(&changed)), "the signer is not in the bundle");
        assert!(in_use(None).is_trusted(None), "nobody knows the bundle");
    }
}
