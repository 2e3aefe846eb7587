//! Reads the identity of the cluster that answers, so that no store mixes the objects of two clusters.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use weir_upstream::{BackOff, error_report, jitter};

use super::cache::ReflectorClient;
use super::resource_stores::ResourceStores;

/// The namespace whose uid identifies a cluster: it exists in each, and cannot be deleted.
const IDENTITY: &str = "kube-system";
/// How long it may be another one without an outage that Weir notices.
const AGAIN: Duration = Duration::from_secs(300);
/// The timeout of a request for it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delays between failed requests.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(60);

impl ResourceStores {
    /// Asks the API server for the identity of the cluster until it answers, and again after each lost connection and now and
    /// then: another cluster may answer at the same address. Stores of another cluster are listed again, and its file on disk is
    /// set aside.
    ///
    /// Each set of stores needs this task, once: without it, objects on disk are served whatever cluster they are of. The daemon's
    /// identity must be allowed to get the namespace kube-system. Failures are logged and retried. It runs until it is dropped, and
    /// ends at once without a client of the daemon.
    pub async fn confirm_cluster(self) {
        let Some((ReflectorClient { client, connectivity, .. }, _)) = self.daemon() else { return };
        let (disk, cluster) = (self.disk(), self.cluster_watch());
        let namespaces: Api<Namespace> = Api::all(client);
        let (mut reconnects, mut repeats) = (connectivity.reconnects(), connectivity.repeats());
        let mut backoff = BackOff::new(FIRST_RETRY, MAX_RETRY);
        let mut last = String::new();
        loop {
            let reason = match tokio::time::timeout(TIMEOUT, namespaces.get_metadata(IDENTITY)).await {
                Ok(Ok(namespace)) => match namespace.metadata.uid {
                    Some(uid) => {
                        match &disk {
                            Some(disk) => disk.confirm_cluster(uid).await,
                            None => cluster.confirm(&uid),
                        }
                        backoff.reset();
                        last.clear();
                        tokio::select! {
                            () = reconnects.next() => {}
                            // A server that closes each connection must not cause a busy loop.
                            () = repeats.next() => tokio::time::sleep(jitter(FIRST_RETRY)).await,
                            () = cluster.doubted() => {}
                            () = tokio::time::sleep(jitter(AGAIN)) => {}
                        }
                        continue;
                    }
                    None => "it has no uid".to_owned(),
                },
                Ok(Err(error)) => error_report(&error),
                Err(_) => format!("no response within {TIMEOUT:?}"),
            };
            if let Some(disk) = &disk {
                disk.cluster_unreachable();
            }
            if reason != last {
                tracing::warn!(
                    namespace = IDENTITY,
                    file = disk.as_ref().map(|disk| disk.file()),
                    reason,
                    "cannot read the namespace that identifies the cluster, retrying"
                );
                last = reason;
            }
            backoff.wait_or_reconnect(&mut reconnects).await;
        }
    }
}
