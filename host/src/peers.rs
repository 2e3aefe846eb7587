//! The clients of the other Weirs of the pool, each with the client certificate of the node.

use std::sync::Arc;

use weir_store::{PeerClient, Peers};
use weir_upstream::{
    FirstLoad, ReloadedCredential, ServerRole, ServerSource, SetupError, Tasks, Upstream, UpstreamConfig,
    UpstreamMetrics, error_report,
};

use crate::config::ServeConfig;

/// Sets up the clients of the peers, their probes, and the reload of the node's certificate.
///
/// # Errors
/// A URL or a file is not usable. A certificate that does not exist yet is no error: kubelet creates it when it joins.
pub(crate) async fn connect_peers(
    config: &ServeConfig,
    metrics: &Arc<UpstreamMetrics>,
    tasks: &Tasks,
) -> Result<Peers, SetupError> {
    let mut peers = Vec::new();
    for (node, source) in config.peers.iter().flat_map(|peers| peers.others(&config.node_name)) {
        let upstream = Arc::new(connect(node, source, metrics).await?);
        upstream.start_probes(tasks);
        tasks.spawn_until_stop(upstream.clone().reload_credential(
            ReloadedCredential::Daemon,
            source.clone(),
            FirstLoad::Ended(None),
        ));
        peers.push(PeerClient::new(node, upstream));
    }
    Ok(Peers::new(&config.node_name, peers))
}

async fn connect(node: &str, source: &ServerSource, metrics: &Arc<UpstreamMetrics>) -> Result<Upstream, SetupError> {
    let loaded = match (source.load().await, source) {
        (Ok(loaded), _) => loaded.config,
        (Err(error), ServerSource::Peer { url, .. }) => {
            let reason = error_report(&error);
            tracing::warn!(peer = node, reason, "the node's certificate is not valid, the peer refuses until it is");
            kube::Config::new(url.clone())
        }
        (Err(error), _) => return Err(SetupError::Address(error_report(&error))),
    };
    let mut config = UpstreamConfig::new(loaded);
    config.role = ServerRole::Peer;
    Upstream::new(&config, metrics.clone())
}
