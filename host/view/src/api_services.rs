//! Whether the API server itself serves the resources of an API group, or an aggregated API server does.
//!
//! An aggregated API may answer each user differently, so that no view may serve it. The groups of Kubernetes are known; for
//! any other the APIService says. Until its answer is there, the group counts as aggregated, and requests are forwarded.
//! Memory: one entry per group and version that a filter matches, at most [`MAX_KNOWN`]. A client may name any version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_kube::GroupResource;
use weir_store::disk::{CachedValue, DiskCache};
use weir_upstream::clock;
use weir_upstream::{Tasks, error_report};

/// How long an answer other than yes is valid.
const RECHECK: Duration = Duration::from_secs(300);
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a yes is kept on disk.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// The most groups.
const MAX_KNOWN: usize = 1024;

/// What is known of API groups.
pub(super) struct ApiServices {
    client: kube::Client,
    disk: Option<Arc<DiskCache>>,
    tasks: Tasks,
    known: Mutex<HashMap<String, ApiService>>,
    /// Wakes those who wait for an answer.
    answered: Notify,
}

/// What is known of one version of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApiService {
    /// The API server itself serves it.
    Local,
    /// It is being asked.
    Asked,
    /// Another server does, or this is not known. It is asked again from this time on.
    NotLocal(Instant),
}

impl ApiServices {
    pub(super) fn new(client: kube::Client, disk: Option<Arc<DiskCache>>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { client, disk, tasks, known: Mutex::default(), answered: Notify::new() })
    }

    /// Whether the API server itself is known to serve a group. If that is not known, it is asked, for the next request.
    pub(super) fn is_local(self: &Arc<Self>, group: &str, version: &str) -> bool {
        if GroupResource::is_built_in(group) {
            return true;
        }
        let name = format!("{version}.{group}");
        let mut known = self.known();
        match known.get(&name).copied() {
            Some(ApiService::Local) => return true,
            Some(ApiService::Asked) => return false,
            Some(ApiService::NotLocal(until)) if until > Instant::now() => return false,
            None if !make_room(&mut known) => return false,
            Some(ApiService::NotLocal(_)) | None => {}
        }
        known.insert(name.clone(), ApiService::Asked);
        drop(known);
        let services = self.clone();
        self.tasks.spawn_until_stop(async move {
            let found = match services.ask(&name).await {
                true => ApiService::Local,
                false => ApiService::NotLocal(Instant::now() + RECHECK),
            };
            services.known().insert(name, found);
            services.answered.notify_waiters();
        });
        false
    }

    /// Returns [`Self::is_local`] once the answer is there. Cancel-safe.
    pub(super) async fn is_found_local(self: &Arc<Self>, group: &str, version: &str) -> bool {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.is_local(group, version) {
                return true;
            }
            if !matches!(self.known().get(&format!("{version}.{group}")), Some(ApiService::Asked)) {
                return false;
            }
            answered.await;
        }
    }

    /// Whether the API server itself is known to serve a group. Asks nobody, and keeps nothing.
    pub(super) fn is_known_local(&self, group: &str, version: &str) -> bool {
        GroupResource::is_built_in(group)
            || matches!(self.known().get(&format!("{version}.{group}")), Some(ApiService::Local))
    }

    async fn ask(&self, name: &str) -> bool {
        let on_disk = format!("local-api/{name}");
        let services: Api<APIService> = Api::all(self.client.clone());
        let reason = match tokio::time::timeout(TIMEOUT, services.get_opt(name)).await {
            Ok(Ok(Some(service))) => {
                let is_local = service.spec.is_some_and(|spec| spec.service.is_none());
                match &self.disk {
                    Some(disk) if is_local => {
                        let expires = clock::now() + KEEP;
                        disk.put(&on_disk, CachedValue { bytes: Vec::new(), expires }, false).await;
                    }
                    Some(disk) => disk.remove(&on_disk).await,
                    None => {}
                }
                return is_local;
            }
            Ok(Ok(None)) => return false,
            Ok(Err(kube::Error::Api(status))) => {
                tracing::warn!(api_service = name, reason = %status, "cannot read the APIService, its resources are not cached");
                return false;
            }
            Ok(Err(error)) => error_report(&error),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        let remembered = match &self.disk {
            Some(disk) => disk.get(&on_disk).await.is_some(),
            None => false,
        };
        tracing::debug!(api_service = name, reason, remembered, "cannot read the APIService");
        remembered
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, ApiService>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more group: of those that are not local, the one that expires first goes, expired or not. `false`: there
/// is none.
fn make_room(known: &mut HashMap<String, ApiService>) -> bool {
    if known.len() < MAX_KNOWN {
        return true;
    }
    let expiring = known.iter().filter_map(|(name, found)| match found {
        ApiService::NotLocal(until) => Some((*until, name)),
        ApiService::Local | ApiService::Asked => None,
    });
    let first = expiring.min().map(|(_, name)| name.clone());
    first.is_some_and(|name| known.remove(&name).is_some())
}

impl std::fmt::Debug for ApiServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServices").field("known", &self.known().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use weir_apiserver::{Action, ApiServer};
    use weir_upstream::{Upstream, UpstreamConfig};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_full_table_the_group_goes_that_is_not_local_for_the_longest_time() {
        let mut known = HashMap::new();
        for n in 0..MAX_KNOWN {
            assert!(make_room(&mut known));
            let found = if n < 10 { ApiService::Local } else { ApiService::NotLocal(Instant::now() + RECHECK) };
            known.insert(format!("v{n}.example"), found);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for n in 10..20 {
            assert!(make_room(&mut known));
            assert!(!known.contains_key(&format!("v{n}.example")));
            known.insert(format!("more{n}.example"), ApiService::Asked);
        }
        assert_eq!(known.len(), MAX_KNOWN);
        known.retain(|_, found| !matches!(found, ApiService::NotLocal(_)));
        known.extend((0..MAX_KNOWN).map(|n| (format!("local{n}.example"), ApiService::Local)));
        assert!(!make_room(&mut known) && known.contains_key("v0.example"));
    }

    const LOCAL: &str = r#"{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"a"},
        "spec":{"groupPriorityMinimum":1,"versionPriority":1}}"#;
    const AGGREGATED: &str = r#"{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"a"},
        "spec":{"groupPriorityMinimum":1,"versionPriority":1,"service":{"name":"s","namespace":"n"}}}"#;
    const MISSING: &str = r#"{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;

    #[tokio::test]
    async fn only_groups_that_the_api_server_itself_serves_are_local() {
        let server = ApiServer::builder().start().await.unwrap();
        server.on_request(|request| match request.path.rsplit('/').next() {
            Some("v1.local.example") => Action::json(200, LOCAL),
            Some("v1.far.example") => Action::json(200, AGGREGATED),
            _ => Action::json(404, MISSING),
        });
        let config = UpstreamConfig::new(kube::Config::new(server.url().parse().unwrap()));
        let upstream = Arc::new(Upstream::new(&config, Arc::default()).unwrap());
        let services = ApiServices::new(upstream.client(), None, Tasks::default());
        for group in ["far.example", "none.example"] {
            assert!(!services.is_local(group, "v1"), "it is not known");
        }
        for (group, is_local) in [("local.example", true), ("far.example", false), ("none.example", false)] {
            let found = tokio::time::timeout(Duration::from_secs(20), services.is_found_local(group, "v1"));
            assert_eq!(found.await.expect("the APIService is read"), is_local, "{group}");
        }
        for group in ["far.example", "none.example", "metrics.k8s.io"] {
            assert!(!services.is_local(group, "v1"), "{group}");
        }
        for group in ["", "apps", "networking.k8s.io"] {
            assert!(services.is_local(group, "v1"), "{group}");
        }
        let asked = server.requests().iter().filter(|request| request.path.ends_with("v1.local.example")).count();
        assert_eq!(asked, 1);
    }
}
