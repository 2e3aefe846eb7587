//! The wiring of the watch caches: stores, views, and the local status.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::Instrument;
use weir_runtime::Serving;
use weir_store::disk::DiskCache;
use weir_store::{
    CheckConfig, CheckMetrics, DelegatedClients, Peers, ReflectorClient, ReflectorTiming, ResourceStores,
    ResourceStoresConfig, UplinkLimit, UserClients,
};
use weir_upstream::{RefusalSender, Tasks, Upstream};

use crate::config::ServeConfig;
use crate::local_status::{LocalStatus, LocalStatusConfig, LocalStatusMetrics, read_boot_id};
use weir_process::ledger::Ledger;
use weir_view::{CacheMetrics, Views, ViewsConfig};

/// The part of what a watch cache has received that comparisons may take beyond one each interval: a metered link hardly notices it.
const CHECK_SHARE: f64 = 0.01;

/// How watch caches are compared with the API server. Without the flags' comparisons, those remain that a version needs before it
/// is continued.
pub(crate) fn cache_check(config: &ServeConfig, metrics: Arc<CheckMetrics>) -> CheckConfig {
    let share = config.cache_check.map_or(0.0, |_| CHECK_SHARE);
    CheckConfig::new(config.cache_check, share, metrics)
}

/// Sets up the stores of what the API servers have.
pub(crate) fn resource_stores(
    config: &ServeConfig,
    upstream: &Arc<Upstream>,
    peers: Peers,
    disk: Option<Arc<DiskCache>>,
    check: CheckConfig,
    (refusals, tasks): (RefusalSender, &Tasks),
) -> ResourceStores {
    let connectivity = upstream.connectivity();
    let client = |client| ReflectorClient { client, connectivity: connectivity.clone(), delegated: None };
    let impersonating = upstream.clone();
    let reads = connectivity.clone();
    let users: UserClients = Arc::new(move |user| {
        let client = impersonating.client_impersonating(&user.user, &user.groups).ok()?;
        Some(ReflectorClient { client, connectivity: reads.clone(), delegated: None })
    });
    let (upstream_client, reads) = (upstream.clone(), connectivity.clone());
    let delegated: DelegatedClients = Arc::new(move |credential| ReflectorClient {
        client: upstream_client.client_with_delegated(credential.clone(), refusals.clone()),
        connectivity: reads.clone(),
        delegated: Some(credential),
    });
    let stores = ResourceStoresConfig {
        users: Some(users),
        delegated: Some(delegated),
        daemon: Some(client(upstream.client())),
        node: upstream.has_node_credential().then(|| client(upstream.node_client())),
        peers,
        timing: ReflectorTiming::default(),
        uplink: config.uplink_rate.map(UplinkLimit::new),
        disk,
        check,
        shared: config.cache_resources.shared(),
    };
    ResourceStores::new(stores, tasks.clone())
}

/// Sets up the watch caches. If no resource is cached, they are for filtered watches alone.
pub(crate) fn open_views(
    config: &ServeConfig,
    stores: ResourceStores,
    client: kube::Client,
    (metrics, ledger): (Arc<CacheMetrics>, Ledger),
    served: watch::Receiver<Serving>,
    tasks: &Tasks,
) -> Arc<Views> {
    let (resources, watch_memory) = (config.cache_resources.clone(), config.memory.events);
    let secrets_for = config.cache_secrets_for.clone();
    let views_config = ViewsConfig { resources, secrets_for, stores, client, metrics, watch_memory, ledger };
    let views = Views::new(views_config, served, tasks.clone());
    tasks.spawn_until_stop(views.clone().close_idle());
    views
}

/// Sets up the local status; `None` if it is off, or if nothing is cached that it could change.
pub(crate) fn local_status(
    config: &ServeConfig,
    upstream: &Arc<Upstream>,
    stores: &ResourceStores,
    (disk, peers): (Option<Arc<DiskCache>>, &Peers),
    metrics: Arc<LocalStatusMetrics>,
    tasks: &Tasks,
) -> Option<Arc<LocalStatus>> {
    if !config.local_status || config.cache_resources.is_off() {
        return None;
    }
    let (node, stores, upstream) = (config.node_name.clone(), stores.clone(), upstream.clone());
    let boot_id = read_boot_id(&config.boot_id_file);
    let status = LocalStatus::new(LocalStatusConfig {
        node,
        stores,
        upstream,
        disk,
        boot_id,
        peer_silence: config.peer_silence,
        metrics,
    });
    let span = tracing::info_span!("local-status");
    tasks.spawn_until_stop(status.clone().run().instrument(span.clone()));
    for peer in peers.all() {
        tasks.spawn_until_stop(status.clone().follow_peer(peer.clone()).instrument(span.clone()));
    }
    Some(status)
}
