//! The serving certificate that the daemon asks for itself: kept from start to start, renewed well before it ends, or when
//! what it has to prove has changed. Whatever goes wrong on the way is told and tried again; the one in use stays.
//!
//! Memory: one certificate with its key.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;

use super::issue::{IssueError, Issuer};
use super::kept::{Kept, Pair};
use crate::proxy::{Leaf, ServerTls, TlsError};
use weir_upstream::in_full;
use weir_upstream::{BackOff, spread};

/// Between two looks at what the certificate has to prove.
const LOOK: Duration = Duration::from_secs(3600);
/// The same after one that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// After a failure, doubled up to the longest.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// After a decision against it: somebody has to do something about that first.
const REFUSED: Duration = Duration::from_secs(10);
const REFUSED_LONGEST: Duration = Duration::from_secs(3600);

/// Keeps the HTTPS port in a certificate.
pub struct ServingKeeper {
    issuer: Issuer,
    address: IpAddr,
    kept: Kept,
    tls: Arc<ServerTls>,
}

/// A certificate in use.
struct InUse {
    leaf: Leaf,
    renew_at: SystemTime,
}

impl ServingKeeper {
    /// For a node, asking with the identity of this client. Does nothing yet.
    #[must_use]
    pub fn new(client: kube::Client, node: &str, address: IpAddr, cache: &Path, tls: Arc<ServerTls>) -> Self {
        let issuer = Issuer { client, node: node.to_owned() };
        Self { issuer, address, kept: Kept::new(cache), tls }
    }

    /// Keeps it until the daemon stops.
    pub async fn keep(self) {
        let kept = self.kept.load().filter(|pair| pair.leaf.ends > SystemTime::now());
        let mut in_use = kept.and_then(|pair| self.show(pair, "was kept").ok());
        let (mut failed, mut refused) = (BackOff::new(RETRY, RETRY_LONGEST), BackOff::new(REFUSED, REFUSED_LONGEST));
        let mut told = None;
        loop {
            let wait = match self.step(&mut in_use).await {
                Ok(wait) => {
                    failed.reset();
                    refused.reset();
                    told = None;
                    wait
                }
                Err(error) => {
                    let reason = in_full(&error);
                    if told.as_ref() != Some(&reason) {
                        tracing::error!(
                            reason,
                            "there is no new certificate for the HTTPS port: it is asked for again"
                        );
                        told = Some(reason);
                    }
                    if error.is_decision() { refused.take() } else { failed.take() }
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Looks whether a new one is due and gets it; until when there is nothing to do.
    async fn step(&self, in_use: &mut Option<InUse>) -> Result<Duration, IssueError> {
        let mut names = match (self.issuer.names().await, &in_use) {
            (Ok(names), _) => names,
            // Nothing is due that would need it.
            (Err(_), Some(in_use)) if in_use.renew_at > SystemTime::now() => return Ok(spread(LOOK_AGAIN)),
            (Err(error), _) => return Err(error),
        };
        names.insert(self.address.to_string());
        if let Some(due) = in_use.as_ref().and_then(|in_use| in_use.good_for(&names)) {
            return Ok(due.min(spread(LOOK)));
        }
        let key = self.key()?;
        let issued = self.issuer.issue(&key, &names).await;
        if !issued.as_ref().is_err_and(|error| !error.is_decision()) {
            self.kept.remove_pending();
        }
        let pair = issued?;
        if let Err(error) = self.kept.store(&pair) {
            tracing::warn!(%error, "the new certificate of the HTTPS port could not be kept: the next start asks for another");
        }
        let shown = self
            .show(pair, "was issued")
            .map_err(|error| IssueError::Unusable { name: "just issued".to_owned(), reason: in_full(&error) })?;
        Ok(in_use.insert(shown).good_for(&names).unwrap_or_default().min(spread(LOOK)))
    }

    /// The key of the request that an earlier start left open, else a new one. It is on disk before the request is made: a
    /// daemon that ends meanwhile goes on with that request, and nobody has to approve a second one.
    fn key(&self) -> Result<KeyPair, IssueError> {
        if let Some(key) = self.kept.pending() {
            return Ok(key);
        }
        let key = KeyPair::generate().map_err(IssueError::Request)?;
        if let Err(error) = self.kept.store_pending(&key) {
            tracing::warn!(%error, "the key of the certificate request could not be kept: a restart makes another request");
        }
        Ok(key)
    }

    fn show(&self, pair: Pair, what: &'static str) -> Result<InUse, TlsError> {
        let leaf = pair.leaf;
        self.tls.show(pair.chain, pair.key).inspect_err(|error| {
            tracing::warn!(reason = in_full(error), "a certificate for the HTTPS port can not be used");
        })?;
        let left = leaf.ends.duration_since(SystemTime::now()).unwrap_or_default();
        tracing::info!(days_left = left.as_secs() / 86_400, "the certificate of the HTTPS port {what}");
        Ok(InUse { renew_at: renewal(&leaf), leaf })
    }
}

impl InUse {
    /// How long it is good still for these names, before it should be renewed; none: a new one is due.
    fn good_for(&self, names: &BTreeSet<String>) -> Option<Duration> {
        if !names.is_subset(&self.leaf.names) {
            return None;
        }
        self.renew_at.duration_since(SystemTime::now()).ok().filter(|left| !left.is_zero())
    }
}

/// Between 70 and 90 % of its life, so that a thousand nodes do not come at once.
fn renewal(leaf: &Leaf) -> SystemTime {
    let fifth = leaf.life() / 5;
    leaf.begins + leaf.life() * 7 / 10 + (spread(fifth * 2).saturating_sub(fifth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_renewed_after_seven_to_nine_tenths_of_its_life_and_at_once_for_other_names() {
        let begins = SystemTime::now();
        let day = Duration::from_secs(86_400);
        let names = BTreeSet::from(["kubernetes".to_owned()]);
        let leaf = Leaf { begins, ends: begins + day, names: names.clone() };
        let mut ends = (day, Duration::ZERO);
        for _ in 0..100 {
            let at = renewal(&leaf).duration_since(begins).unwrap();
            ends = (ends.0.min(at), ends.1.max(at));
        }
        assert!(ends.0 >= day * 7 / 10 && ends.1 <= day * 9 / 10 && ends.1 - ends.0 > day / 20, "{ends:?}");
        let in_use = InUse { renew_at: renewal(&leaf), leaf: leaf.clone() };
        assert!(in_use.good_for(&names).unwrap() > day * 6 / 10);
        assert_eq!(in_use.good_for(&BTreeSet::from(["other".to_owned()])), None);
        assert_eq!(InUse { renew_at: begins, leaf }.good_for(&names), None);
    }
}
