//! Leader election by a Lease, as client-go does it: one replica acts, the others wait.
//!
//! A replica that cannot renew its Lease before the others may take it stops the process: two acting replicas would undo each
//! other's work. Clocks of replicas are not compared: a Lease is old if it did not change for its duration, as seen here.
//! Kept by hand for that: kube has no leader election, and `kube-leader-election` compares the Lease's time with the local clock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::clock;
use crate::health::{Health, explain};

/// The part of the election in `/readyz`.
pub const PART: &str = "leader election";

/// A candidate for the Lease.
pub struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    duration: Duration,
}

/// The Lease was lost: the process must end.
#[derive(Debug, thiserror::Error)]
#[error("the Lease {0} was lost: {1}")]
pub struct LeaseLost(String, String);

/// The Lease as it was last seen.
struct Seen {
    version: Option<String>,
    at: Instant,
}

impl Candidate {
    /// A candidate with this identity.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, duration: Duration) -> Self {
        let leases = Api::namespaced(client, namespace);
        Self { leases, name: name.to_owned(), identity: identity.to_owned(), duration }
    }

    /// Waits until this replica holds the Lease. Cancel safe: a Lease that was taken meanwhile expires.
    pub async fn acquire(&self, health: &Health) {
        let mut seen = Seen { version: None, at: Instant::now() };
        loop {
            match self.within_duration(self.try_acquire(&mut seen)).await {
                Ok(true) => return health.works(PART),
                Ok(false) => health.works(PART),
                Err(reason) => health.fails(PART, reason),
            }
            tokio::time::sleep(self.duration / 6).await;
        }
    }

    /// Renews the Lease until it is lost.
    pub async fn hold(&self, health: &Health) -> LeaseLost {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.duration / 3).await;
            match self.within_duration(self.renew()).await {
                Ok(true) => {
                    renewed = Instant::now();
                    health.works(PART);
                }
                Ok(false) => return LeaseLost(self.name.clone(), "another replica holds it".to_owned()),
                Err(reason) => {
                    health.fails(PART, reason.clone());
                    // The others take it after its whole duration.
                    if renewed.elapsed() + self.duration / 3 >= self.duration {
                        return LeaseLost(self.name.clone(), reason);
                    }
                }
            }
        }
    }

    /// Gives the Lease back, so that another replica need not wait.
    pub async fn release(&self) {
        let released = async {
            let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
            if self.is_own(&lease) {
                lease.spec.get_or_insert_default().holder_identity = None;
                self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        if let Err(reason) = self.within_duration(released).await {
            tracing::warn!(lease = self.name, reason, "the Lease is not released");
        }
    }

    async fn within_duration<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
        match tokio::time::timeout(self.duration / 3, request).await {
            Ok(result) => result.map_err(|error| explain(&error)),
            Err(_) => Err("the API server does not respond".to_owned()),
        }
    }

    async fn try_acquire(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(0)) };
            return taken(self.leases.create(&PostParams::default(), &lease).await);
        };
        if seen.version != lease.metadata.resource_version {
            *seen = Seen { version: lease.metadata.resource_version.clone(), at: Instant::now() };
        }
        let spec = lease.spec.get_or_insert_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let lasts = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let is_old = seen.at.elapsed() >= Duration::from_secs(lasts);
        if !holder.is_empty() && holder != self.identity && !is_old {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or_default().saturating_add(1);
        *spec = self.spec(transitions);
        taken(self.leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    async fn renew(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(false) };
        if !self.is_own(&lease) {
            return Ok(false);
        }
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(clock::now()));
        taken(self.leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    fn is_own(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
        holder.is_some_and(|holder| *holder == self.identity)
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(clock::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

/// Whether a write took the Lease. A conflict: another replica was faster.
fn taken(written: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_server::{self, Reply};

    const DURATION: Duration = Duration::from_secs(15);
    const HOUR: Duration = Duration::from_secs(3600);

    fn candidate(client: Client) -> Candidate {
        Candidate::new(client, "operator", "lease", "own", DURATION)
    }

    fn lease(holder: &str, version: u64) -> Value {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lease", "namespace": "operator", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": DURATION.as_secs()}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_renewed_is_given_up_before_another_replica_may_take_it() {
        for (reply, reason) in
            [(|| Reply::Refused, "refused"), (|| Reply::Silence, "does not respond")] as [(fn() -> Reply, &str); 2]
        {
            let (begun, health) = (Instant::now(), Health::default());
            let lost = candidate(fake_server::client(move |_| reply())).hold(&health).await;
            assert!(begun.elapsed() < DURATION, "{:?}", begun.elapsed());
            assert!(lost.to_string().contains(reason) && health.report().contains(reason), "{lost}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_takes_the_lease_when_the_api_server_is_back_after_an_hour() {
        let (begun, health) = (Instant::now(), Health::starting([PART]));
        let client = fake_server::client(move |(method, _, body)| match (begun.elapsed(), method) {
            (outage, _) if outage < HOUR => Reply::Silence,
            (_, &Method::POST) => Reply::Json(201, body),
            _ => Reply::Json(
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "-"}),
            ),
        });
        let candidate = candidate(client);
        let outage = async {
            tokio::time::sleep(HOUR / 2).await;
            assert!(health.report().contains("does not respond"), "{}", health.report());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = candidate.acquire(&health) => {}
            () = outage => {}
        }
        assert!(begun.elapsed() < HOUR + DURATION, "{:?}", begun.elapsed());
        assert_eq!(health.report(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_its_holder_did_not_renew_it_for_its_duration() {
        // The other replica renews it for a minute.
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        let client = fake_server::client(move |(method, _, body)| match method {
            &Method::PUT => Reply::Json(200, body),
            _ => Reply::Json(200, lease("other", 1 + begun.elapsed().min(minute).as_secs() / 5)),
        });
        candidate(client).acquire(&Health::default()).await;
        let took = begun.elapsed();
        assert!(took >= minute + DURATION && took < minute + DURATION * 2, "{took:?}");
    }
}
