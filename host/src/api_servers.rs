//! The wiring of the connections to the API servers.
//!
//! Nothing external stands before the ports: a start does not wait for exec plugins, and goes on without a credential that cannot be
//! read now, which is loaded as soon as it can be.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use weir_process::WatchedFiles;
use weir_store::{PeerClient, Peers};
use weir_upstream::{
    FirstLoad, Relay, ReloadedCredential, ServerConfig, ServerSource, SetupError, SourceError, Tasks, Upstream,
    UpstreamConfig, UpstreamMetrics, clock, error_report,
};

use crate::config::ServeConfig;
use crate::server_addresses::ServerAddresses;
use crate::server_file::ServerFile;
use crate::traces::pass_context_on;

/// How long the start waits for exec plugins and for files. Clients wait for the ports.
const PLUGINS: Duration = Duration::from_millis(200);

/// What is known of the API servers at the start.
pub(crate) struct ApiServers {
    servers: ServerConfig,
    /// Why the daemon has no credential, if it has none.
    unusable: Option<String>,
    first: FirstLoad,
    /// The files of the daemon's credential.
    files: WatchedFiles,
    /// The servers of the last start.
    last: Vec<Uri>,
    node: Option<Loaded>,
}

/// A credential.
struct Loaded {
    config: Result<ServerConfig, Unloaded>,
    first: FirstLoad,
    files: WatchedFiles,
}

/// Why there is none yet.
enum Unloaded {
    Failed(SourceError),
    GoesOn,
}

impl ApiServers {
    /// Loads the servers and the credentials.
    ///
    /// # Errors
    /// The daemon's own credential is not usable, and no earlier start has saved the addresses of the servers.
    pub(crate) async fn load(config: &ServeConfig) -> Result<Self, SourceError> {
        let node = async {
            match config.node_kubeconfig.clone() {
                Some(path) => Some(load(&ServerSource::Kubeconfig(path.into())).await),
                None => None,
            }
        };
        // The file of the node credential may not exist yet: kubelet writes it when it joins the cluster.
        let (Loaded { config: loaded, first, files }, node) = tokio::join!(load(&config.upstream), node);
        let file = config.cache_dir.as_deref().map(ServerFile::new);
        let mut last = match &file {
            Some(file) => file.read().await,
            None => Vec::new(),
        };
        if let (ServerSource::Server { urls, .. }, false) = (&config.upstream, last.is_empty()) {
            last.clone_from(urls);
        }
        let unloaded = match loaded {
            Ok(servers) => {
                if let Some(file) = file {
                    file.write(&servers.servers).await;
                }
                return Ok(Self { servers, unusable: None, first, files, last, node });
            }
            Err(unloaded) => unloaded,
        };
        let reason = unloaded.to_string();
        let servers = match (unloaded, config.upstream.load_servers(&files).await) {
            // Only the plugin does not do what it should.
            (Unloaded::GoesOn | Unloaded::Failed(SourceError::ExecPlugin { .. }), Ok(servers)) => servers,
            (Unloaded::Failed(error), _) | (Unloaded::GoesOn, Err(error)) => {
                ServerConfig::unverified(last.clone()).ok_or(error)?
            }
        };
        tracing::error!(reason, "the daemon has no credential for the API servers yet, it serves what is on disk");
        Ok(Self { servers, unusable: Some(reason), first, files, last, node })
    }

    /// The URLs of the servers.
    pub(crate) fn names(&self) -> String {
        self.servers.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Sets up the connections, their probes, and the renewal of credentials, and follows what the names of the servers mean.
    ///
    /// # Errors
    /// A certificate or another part of the credential is not usable, and no earlier start has saved the addresses of the
    /// servers.
    pub(crate) fn connect(
        self,
        config: &ServeConfig,
        peers: &Peers,
        metrics: Arc<UpstreamMetrics>,
        tasks: &Tasks,
    ) -> Result<(Arc<Upstream>, Arc<ServerAddresses>), SetupError> {
        let Self { servers, unusable, first, files, last, node } = self;
        let mut upstream_config = UpstreamConfig::new(servers.config);
        upstream_config.unusable = unusable;
        upstream_config.other_servers = servers.servers.iter().skip(1).cloned().collect();
        upstream_config.server_mode = config.server_mode;
        upstream_config.trace_context = config.otlp_endpoint.as_ref().map(|_| pass_context_on as fn(&mut HeaderMap));
        if config.relay_rate.is_some() {
            let relay = |peer: &PeerClient| Relay { node: peer.node().clone(), peer: peer.upstream().clone() };
            upstream_config.relays = peers.in_own_order().map(relay).collect();
        }
        upstream_config.node_credential = node.as_ref().map(Loaded::of_node);
        let urls = servers.servers;
        let (upstream, first, urls) = match Upstream::new(&upstream_config, metrics.clone()) {
            Ok(upstream) => (upstream, first, urls),
            Err(error) => {
                let unverified = ServerConfig::unverified(last);
                let reason = error_report(&error);
                let servers = unverified.ok_or(error)?;
                tracing::error!(
                    reason,
                    "the daemon has no credential for the API servers yet, it serves what is on disk"
                );
                upstream_config.upstream = servers.config;
                upstream_config.other_servers = servers.servers.iter().skip(1).cloned().collect();
                upstream_config.unusable = Some(reason);
                let first = FirstLoad::Ended(Some(clock::now()));
                (Upstream::new(&upstream_config, metrics)?, first, servers.servers)
            }
        };
        let upstream = Arc::new(upstream);
        upstream.start_probes(tasks);
        if upstream_config.unusable.is_some() {
            // No request of the daemon finds out that no server responds.
            let upstream = upstream.clone();
            tasks.spawn_until_stop(async move {
                upstream.responds().await;
            });
        }
        let addresses = ServerAddresses::new(upstream.clone(), urls, config.cache_dir.as_deref());
        tasks.spawn_until_stop(addresses.clone().run());
        let source = config.upstream.clone();
        tasks.spawn_until_stop(upstream.clone().reload_credential(ReloadedCredential::Daemon, source, files, first));
        if let Some((path, node)) = config.node_kubeconfig.clone().zip(node) {
            let source = ServerSource::Kubeconfig(path.into());
            let Loaded { first, files, .. } = node;
            tasks.spawn_until_stop(upstream.clone().reload_credential(ReloadedCredential::Node, source, files, first));
        }
        Ok((upstream, addresses))
    }
}

impl Loaded {
    fn of_node(&self) -> Result<kube::Config, String> {
        match &self.config {
            Ok(loaded) => Ok(loaded.config.clone()),
            Err(unloaded) => {
                let reason = unloaded.to_string();
                tracing::error!(
                    reason,
                    "node credential is not valid, local requests without a credential get 503 until it is"
                );
                Err(reason)
            }
        }
    }
}

impl std::fmt::Display for Unloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(error) => f.write_str(&error_report(error)),
            Self::GoesOn => {
                write!(f, "its files are not read, or its exec plugin has not ended, within {PLUGINS:?}, which goes on")
            }
        }
    }
}

/// Loads a credential. One whose exec plugin takes its time is loaded later.
async fn load(source: &ServerSource) -> Loaded {
    let files = WatchedFiles::default();
    let (owned, followed) = (source.clone(), files.clone());
    let mut load = Box::pin(async move { owned.load(&followed).await });
    let (config, first) = match tokio::time::timeout(PLUGINS, &mut load).await {
        Ok(Ok(loaded)) => {
            let expires = loaded.expires;
            (Ok(loaded), FirstLoad::Ended(expires))
        }
        // A file that cannot be read now may appear before it is watched.
        Ok(Err(error)) => (Err(Unloaded::Failed(error)), FirstLoad::Ended(Some(clock::now()))),
        Err(_) => (Err(Unloaded::GoesOn), FirstLoad::GoesOn(load)),
    };
    Loaded { config, first, files }
}
