//! Whether the API server itself serves the resources of an API group, or an aggregated API server does.
//!
//! An aggregated API may answer each user differently, so that no view may serve it. The groups of Kubernetes are known; for
//! any other the APIService says. Until its answer is there, the group counts as aggregated, and requests are forwarded.
//! Memory: one entry per group and version that a filter matches, at most [`MAX_KNOWN`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use tokio::time::Instant;
use weir_store::disk::{CachedValue, DiskCache};
use weir_upstream::{Tasks, error_report};

/// The groups that the API server itself serves. Those that end in `.k8s.io` but are missing, such as `metrics.k8s.io`, may be
/// aggregated.
const BUILT_IN: [&str; 20] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];
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
}

/// What is known of one version of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApiService {
    /// The API server itself serves it.
    Local,
    /// Another server does, or this is not known. It is asked again from this time on.
    NotLocal(Instant),
}

impl ApiServices {
    pub(super) fn new(client: kube::Client, disk: Option<Arc<DiskCache>>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { client, disk, tasks, known: Mutex::default() })
    }

    /// Whether the API server itself is known to serve a group. If that is not known, it is asked, for the next request.
    pub(super) fn is_local(self: &Arc<Self>, group: &str, version: &str) -> bool {
        if BUILT_IN.contains(&group) {
            return true;
        }
        let name = format!("{version}.{group}");
        let mut known = self.known();
        match known.get(&name) {
            Some(ApiService::Local) => return true,
            Some(ApiService::NotLocal(until)) if *until > Instant::now() => return false,
            None if known.len() >= MAX_KNOWN => return false,
            Some(ApiService::NotLocal(_)) | None => {}
        }
        known.insert(name.clone(), ApiService::NotLocal(Instant::now() + RECHECK));
        drop(known);
        let services = self.clone();
        self.tasks.spawn_until_stop(async move {
            if services.ask(&name).await {
                services.known().insert(name, ApiService::Local);
            }
        });
        false
    }

    async fn ask(&self, name: &str) -> bool {
        let on_disk = format!("local-api/{name}");
        let services: Api<APIService> = Api::all(self.client.clone());
        let reason = match tokio::time::timeout(TIMEOUT, services.get_opt(name)).await {
            Ok(Ok(Some(service))) => {
                let is_local = service.spec.is_some_and(|spec| spec.service.is_none());
                match &self.disk {
                    Some(disk) if is_local => {
                        let expires = SystemTime::now() + KEEP;
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

impl std::fmt::Debug for ApiServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServices").field("known", &self.known().len()).finish_non_exhaustive()
    }
}
