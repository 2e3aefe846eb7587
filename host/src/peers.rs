//! The clients of the other Weirs of the pool, each with the client certificate of the node.

use std::sync::Arc;
use std::time::Duration;

use weir_process::WatchedFiles;
use weir_store::{PeerClient, Peers};
use weir_upstream::{
    ReloadedCredential, ServerRole, ServerSource, SetupError, Tasks, Upstream, UpstreamConfig, UpstreamMetrics,
    error_report,
};

use crate::config::ServeConfig;

/// How soon after a change all files are read again.
const AGAIN: Duration = Duration::from_secs(10);

/// Sets up the clients of the peers, their probes, and the reload of the node's certificate.
///
/// # Errors
/// A URL or a file is not usable. A certificate that does not exist yet is no error: kubelet creates it when it joins.
pub(crate) async fn connect_peers(
    config: &ServeConfig,
    metrics: &Arc<UpstreamMetrics>,
    tasks: &Tasks,
) -> Result<Peers, SetupError> {
    if config.peers.as_ref().is_some_and(|peers| peers.others.is_empty()) {
        tracing::warn!(
            node = config.node_name,
            "--peer names no other Weir of this node's pool: caches are filled by API servers alone"
        );
    }
    let (mut peers, mut reloaded, files) = (Vec::new(), Vec::new(), WatchedFiles::default());
    for (node, source) in config.peers.iter().flat_map(|peers| &peers.others) {
        let upstream = Arc::new(connect(node, source, &files, metrics).await?);
        upstream.start_probes(tasks);
        reloaded.push((upstream.clone(), source.clone(), String::new()));
        peers.push(PeerClient::new(node, upstream));
    }
    if !reloaded.is_empty() {
        tasks.spawn_until_stop(reload(reloaded, files));
    }
    Ok(Peers::new(&config.node_name, peers))
}

/// Reloads the certificate of the node, which all of them are sent, when it changes. Runs until it is dropped.
async fn reload(mut peers: Vec<(Arc<Upstream>, ServerSource, String)>, files: WatchedFiles) {
    let mut is_loaded = true;
    loop {
        // One of them may have read what another one finds replaced.
        let again = async {
            match is_loaded {
                true => std::future::pending().await,
                false => tokio::time::sleep(AGAIN).await,
            }
        };
        let has_changed = tokio::select! {
            () = files.changed() => true,
            () = again => false,
        };
        is_loaded = !has_changed;
        for (upstream, source, logged) in &mut peers {
            is_loaded &= upstream.take_credential(ReloadedCredential::Daemon, source.load(&files).await, logged);
        }
    }
}

async fn connect(
    node: &str,
    source: &ServerSource,
    files: &WatchedFiles,
    metrics: &Arc<UpstreamMetrics>,
) -> Result<Upstream, SetupError> {
    let loaded = match (source.load(files).await, source) {
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
