//! The wiring of the connections to the API servers.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use weir_store::{PeerClient, Peers};
use weir_upstream::{
    Relay, ReloadedCredential, ServerConfig, ServerSource, SetupError, SourceError, Tasks, Upstream, UpstreamConfig,
    UpstreamMetrics, clock, error_report,
};

use crate::config::ServeConfig;
use crate::traces::pass_context_on;

/// How long the start waits for an exec plugin of the node credential. Other clients do not need it.
const NODE_CREDENTIAL: Duration = Duration::from_secs(5);

/// Sets up the connections to the API servers, their probes, and the renewal of credentials.
pub(crate) async fn connect(
    config: &ServeConfig,
    loaded: ServerConfig,
    peers: &Peers,
    metrics: Arc<UpstreamMetrics>,
    tasks: &Tasks,
) -> Result<Arc<Upstream>, SetupError> {
    let expires = loaded.expires;
    let mut upstream_config = UpstreamConfig::new(loaded.config);
    upstream_config.other_servers = loaded.servers.iter().skip(1).cloned().collect();
    upstream_config.server_mode = config.server_mode;
    upstream_config.trace_context = config.otlp_endpoint.as_ref().map(|_| pass_context_on as fn(&mut HeaderMap));
    if config.relay_rate.is_some() {
        let relay = |peer: &PeerClient| Relay { node: peer.node().clone(), peer: peer.upstream().clone() };
        upstream_config.relays = peers.in_own_order().map(relay).collect();
    }
    let node = config.node_kubeconfig.clone().map(ServerSource::Kubeconfig);
    // The file may not exist yet: kubelet writes it when it joins the cluster.
    let mut node_expires = None;
    upstream_config.node_credential = match &node {
        Some(node) => Some(match tokio::time::timeout(NODE_CREDENTIAL, node.load()).await {
            Ok(Ok(loaded)) => {
                node_expires = loaded.expires;
                Ok(loaded.config)
            }
            Err(_) => {
                node_expires = Some(clock::now());
                Err(format!("its exec plugin has not ended within {NODE_CREDENTIAL:?}"))
            }
            Ok(Err(error)) => {
                // What an exec plugin did not give it may give soon.
                node_expires = matches!(error, SourceError::ExecPlugin { .. }).then(clock::now);
                let reason = error_report(&error);
                tracing::error!(
                    reason,
                    "node credential is not valid, local requests without a credential get 503 until it is"
                );
                Err(reason)
            }
        }),
        None => None,
    };
    let upstream = Arc::new(Upstream::new(&upstream_config, metrics)?);
    upstream.start_probes(tasks);
    let node = node.map(|node| (ReloadedCredential::Node, node, node_expires));
    for (which, source, expires) in
        std::iter::once((ReloadedCredential::Daemon, config.upstream.clone(), expires)).chain(node)
    {
        tasks.spawn_until_stop(upstream.clone().reload_credential(which, source, expires));
    }
    Ok(upstream)
}
