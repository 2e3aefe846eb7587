//! Connects the parts of the operator.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::Admin;
use crate::client::{client, cluster};
use crate::config::{FlagError, PoolSource, ServeFlags};
use crate::evictions::controller::{EvictionController, PODS};
use crate::health::{Health, report};
use crate::ingress::controller::IngressController;
use crate::leader::{self, Candidate, LeaseLost};
use crate::metrics::Metrics;
use crate::pools::{Inventory, NODES, POOLS};

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A flag cannot be used.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// There is no configuration of a cluster, or it cannot be used.
    #[error("the configuration of the cluster: {0}")]
    Cluster(String),
    /// The admin port or the signals cannot be used.
    #[error("{0}")]
    System(String),
    /// Another replica acts now.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
}

/// Runs the operator until SIGTERM, SIGINT, or the loss of its Lease.
///
/// # Errors
/// It cannot start, or has lost its Lease.
pub async fn serve(flags: ServeFlags) -> Result<(), ServeError> {
    let surroundings = flags.objects.surroundings()?;
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [mut terminate, mut interrupt] = {
        let [terminate, interrupt] = signals;
        let system = |error: std::io::Error| ServeError::System(format!("signals: {error}"));
        [terminate.map_err(system)?, interrupt.map_err(system)?]
    };
    let metrics = Metrics::default();
    let cluster = cluster(&flags.cluster).await.map_err(ServeError::Cluster)?;
    // Errors of its requests do not name it.
    tracing::info!(server = %cluster.config.cluster_url, source = cluster.source(), "API server");
    let connect = |rate| client(&cluster.config, rate, &metrics).map_err(|error| ServeError::Cluster(report(&error)));
    let (paced, pods, election) = (connect(Some(flags.requests_per_second))?, connect(None)?, connect(None)?);
    let health = Arc::new(Health::starting([leader::PART]));
    let listener = TcpListener::bind(flags.admin_address).await;
    let listener =
        listener.map_err(|error| ServeError::System(format!("--admin-address {}: {error}", flags.admin_address)))?;
    let address = listener.local_addr().map_or(flags.admin_address, |address| address);
    tracing::info!(%address, "admin port listens");
    let admin = Admin::new(health.clone(), metrics.clone());
    let identity = flags.identity.clone().unwrap_or_else(host_name);
    let candidate =
        Candidate::new(election, &flags.operator_namespace, &flags.lease_name, &identity, flags.lease_duration());

    let controllers = async {
        candidate.acquire(&health).await;
        metrics.leads();
        tracing::info!(identity, lease = flags.lease_name, "holds the Lease");
        let (inventory, inventory_watch) = Inventory::new(paced.clone(), flags.pool_source, &surroundings.pool_label);
        let ingresses = IngressController {
            client: paced,
            surroundings,
            inventory: inventory.clone(),
            operator_namespace: flags.operator_namespace.clone(),
            identity: identity.clone(),
            metrics: metrics.clone(),
        };
        starting(&health, &flags);
        let evictions = async {
            if !flags.no_evictions {
                let rate = flags.pods_per_second;
                EvictionController::new(pods, inventory, rate, &identity, metrics.clone()).run(&health).await;
            }
        };
        let work = async { tokio::join!(inventory_watch.run(&health), ingresses.run(&health), evictions) };
        tokio::select! {
            lost = candidate.hold(&health) => Err(ServeError::from(lost)),
            ((), (), ()) = work => Err(ServeError::System("the watches ended".to_owned())),
        }
    };
    let result = tokio::select! {
        result = controllers => result,
        never = admin.serve(listener) => match never {},
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if result.is_ok() {
        tracing::info!("stops");
        candidate.release().await;
    }
    result
}

/// Nothing is ready before it has seen the cluster.
fn starting(health: &Health, flags: &ServeFlags) {
    let mut parts: Vec<String> = IngressController::parts().chain([NODES.to_owned()]).collect();
    if flags.pool_source == PoolSource::NodePools {
        parts.push(POOLS.to_owned());
    }
    if !flags.no_evictions {
        parts.push(PODS.to_owned());
    }
    for part in parts {
        health.starts(&part);
    }
}

/// The name of the host, which is that of the pod.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", name.trim(), std::process::id())
}
