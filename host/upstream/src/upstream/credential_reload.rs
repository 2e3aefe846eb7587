//! Reloads credentials that change while the daemon runs.
//!
//! It covers rotated certificates, tokens, kubeconfigs that are created later, and client certificates of exec plugins.
//! kube itself renews the tokens of exec plugins.
//!
//! New requests use the last credential that loaded. Requests in flight keep their connections. A credential that is not
//! usable changes nothing and is logged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{NodeCredential, Upstream, without_credential};
use crate::clock;
use crate::connect::with_roots;
use crate::transport::Transport;
use crate::{ServerSource, SetupError, WatchedFiles, error_report, jitter};

/// The minimum time between two runs of an exec plugin.
const EXEC_INTERVAL: Duration = Duration::from_secs(5);

/// Selects the credential to reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadedCredential {
    /// The daemon's own credential, and the CA bundle for all servers.
    Daemon,
    /// The node credential.
    Node,
}

impl Upstream {
    /// Reloads a credential when one of its files changes, and before the certificate of an exec plugin expires.
    ///
    /// Never returns. Cancel safe: a credential is replaced in one step.
    pub async fn reload_credential(self: Arc<Self>, which: ReloadedCredential, source: ServerSource) {
        let mut paths: Vec<PathBuf> = source.files();
        let mut files = WatchedFiles::new(paths.clone());
        let mut exec_renewal = source.load().await.ok().and_then(|loaded| exec_renewal_delay(&loaded.config));
        loop {
            let exec_due = async {
                match exec_renewal {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = files.changed() => {}
                () = exec_due => {}
            }
            // The delay until the next attempt if this one fails.
            exec_renewal = exec_renewal.map(|_| jitter(2 * EXEC_INTERVAL));
            let result = match source.load().await {
                // Connections, probes and metrics belong to the servers known at startup. The credential may be meant for
                // another cluster, so Weir must not send it to these. The node credential always goes to these servers.
                Ok(loaded) if which == ReloadedCredential::Daemon && !self.servers.matches(&loaded.servers) => {
                    let urls: Vec<_> = loaded.servers.iter().map(ToString::to_string).collect();
                    Err(format!("the API server changed to {}, which requires a restart", urls.join(", ")))
                }
                Ok(loaded) => {
                    let replaced = self.replace(which, &loaded.config);
                    replaced
                        .map(|()| exec_renewal = exec_renewal_delay(&loaded.config))
                        .map_err(|error| error_report(&error))
                }
                Err(error) => Err(error_report(&error)),
            };
            match result {
                Ok(()) => tracing::info!(identity = ?which, "reloaded credential"),
                Err(reason) => {
                    tracing::error!(identity = ?which, reason, "cannot reload credential, keeping the last valid one");
                    self.set_unusable_reason(which, &reason);
                }
            }
            let new_paths = source.files();
            if new_paths != paths {
                files = WatchedFiles::new(new_paths.clone());
                paths = new_paths;
            }
        }
    }

    /// Replaces a credential for all new requests.
    fn replace(&self, which: ReloadedCredential, config: &kube::Config) -> Result<(), SetupError> {
        let (servers, timeout) = (&self.servers, self.connect_timeout);
        let transport = Arc::new(Transport::new(config, servers, timeout)?);
        match which {
            ReloadedCredential::Daemon => {
                let passthrough = Transport::without_headers(&without_credential(config), servers, timeout)?;
                self.passthrough.store(Arc::new(passthrough));
                self.daemon.store(transport);
            }
            ReloadedCredential::Node => self.node.store(Arc::new(NodeCredential::Usable(transport))),
        }
        Ok(())
    }

    /// Updates the reason that clients receive, unless a usable node credential was loaded before.
    fn set_unusable_reason(&self, which: ReloadedCredential, reason: &str) {
        if which == ReloadedCredential::Node && matches!(**self.node.load(), NodeCredential::Unusable(_)) {
            self.node.store(Arc::new(NodeCredential::Unusable(reason.to_owned())));
        }
    }
}

/// Returns when to run the exec plugin again, well before its certificate expires, or `None` without an exec plugin.
///
/// Only the plugin knows the expiry, so this runs it.
fn exec_renewal_delay(config: &kube::Config) -> Option<Duration> {
    config.auth_info.exec.as_ref()?;
    let expiry = (*kube::Client::try_from(with_roots(config).ok()?).ok()?.valid_until())?;
    let remaining = Duration::try_from(expiry.duration_since(clock::timestamp())).unwrap_or_default();
    Some(jitter(remaining * 4 / 5).max(EXEC_INTERVAL))
}
