//! Reloads credentials that change while the daemon runs.
//!
//! It covers rotated certificates, tokens, kubeconfigs that are created later, and what exec plugins print.
//!
//! New requests use the last credential that loaded. Requests in flight keep their connections. A credential that is not
//! usable changes nothing and is logged.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use weir_process::WatchedFiles;

use super::config::without_credential;
use super::{NodeCredential, Upstream};
use crate::certificates::CertificateValidity;
use crate::clock;
use crate::transport::Transport;
use crate::{ServerConfig, ServerSource, SetupError, SourceError, error_report, jitter};

/// The minimum time between two runs of an exec plugin.
const EXEC_INTERVAL: Duration = Duration::from_secs(5);
/// The time between looks at the clock, which may jump or stand still while the machine is suspended.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// Selects the credential to reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadedCredential {
    /// The daemon's own credential, and the CA bundle for all servers.
    Daemon,
    /// The node credential.
    Node,
}

/// The first load of a credential, for which the start does not wait long.
pub enum FirstLoad {
    /// It has ended. When the credential expires: now, if there is none.
    Ended(Option<SystemTime>),
    /// It goes on: an exec plugin has not ended yet.
    GoesOn(BoxFuture<'static, Result<ServerConfig, SourceError>>),
}

impl Upstream {
    /// The validity of the client certificates of the daemon and of the node; `None` for one that has none.
    #[must_use]
    pub fn certificate_validity(&self) -> [(&'static str, Option<CertificateValidity>); 2] {
        let node = match &**self.node.load() {
            NodeCredential::Usable(transport) => transport.validity,
            NodeCredential::Unusable(_) | NodeCredential::None => None,
        };
        [("daemon", self.daemon.load().validity), ("node", node)]
    }

    /// The CA certificates that verify API servers now; `None` if they are those of the system, or not readable.
    #[must_use]
    pub fn roots(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.daemon.load().roots.clone()
    }

    /// Reloads a credential when one of its files changes, and before that of an exec plugin expires. `files` are those of the first
    /// load.
    ///
    /// Never returns. Cancel safe: a credential is replaced in one step.
    pub async fn reload_credential(
        self: Arc<Self>,
        which: ReloadedCredential,
        source: ServerSource,
        files: WatchedFiles,
        first: FirstLoad,
    ) {
        let mut logged = String::new();
        let (mut renewal, mut first) = match first {
            FirstLoad::Ended(expires) => (expires.map(renewal_before), None),
            FirstLoad::GoesOn(load) => (None, Some(load)),
        };
        loop {
            let loaded = match first.take() {
                Some(load) => load.await,
                None => {
                    tokio::select! {
                        () = files.changed() => {}
                        () = due(renewal) => {}
                    }
                    files.begin_load();
                    let loaded = source.load(&files).await;
                    if loaded.is_ok() {
                        // Those that it names may be others now.
                        files.end_load();
                    }
                    loaded
                }
            };
            renewal = match &loaded {
                Ok(loaded) => loaded.expires.map(renewal_before),
                // The plugin may work the next time.
                Err(SourceError::ExecPlugin { .. }) => Some(clock::now() + jitter(2 * EXEC_INTERVAL)),
                Err(_) => renewal.map(|_| clock::now() + jitter(2 * EXEC_INTERVAL)),
            };
            if !self.take_credential(which, loaded, &mut logged) {
                // A renewal of a pair writes one file after the other.
                renewal = renewal.or_else(|| Some(clock::now() + jitter(2 * EXEC_INTERVAL)));
            }
        }
    }

    /// Uses what was loaded, or says why it cannot, which is false. `logged` is the reason that the log has already.
    pub fn take_credential(
        &self,
        which: ReloadedCredential,
        loaded: Result<ServerConfig, SourceError>,
        logged: &mut String,
    ) -> bool {
        if let (ReloadedCredential::Daemon, Ok(loaded)) = (which, &loaded) {
            self.named_now.store(self.others(&loaded.servers).map(Arc::new));
        }
        let result = match (loaded, self.named_now()) {
            // Connections, probes and metrics belong to the servers known at startup. The credential may be meant for
            // another cluster, so Weir must not send it to these. The node credential always goes to these servers.
            (Ok(_), Some(others)) if which == ReloadedCredential::Daemon => {
                Err(format!("the API server changed to {others}, which requires a restart"))
            }
            (Ok(loaded), _) => self.replace(which, &loaded.config).map_err(|error| error_report(&error)),
            (Err(error), _) => Err(error_report(&error)),
        };
        match result {
            Ok(()) => {
                logged.clear();
                tracing::info!(identity = ?which, "reloaded credential");
                true
            }
            Err(reason) => {
                let effect = match self.set_unusable_reason(which, &reason) {
                    true => "there is none, retrying",
                    false => "keeping the last valid one",
                };
                // A plugin may fail for days.
                if reason != *logged {
                    tracing::error!(identity = ?which, reason, "cannot reload credential, {effect}");
                    *logged = reason;
                }
                false
            }
        }
    }

    /// The servers that the daemon's configuration names since it has changed, if they are others than those that this client has
    /// since the start.
    #[must_use]
    pub fn named_now(&self) -> Option<Arc<String>> {
        self.named_now.load_full()
    }

    /// These servers, if they are others than those of this client.
    fn others(&self, servers: &[http::Uri]) -> Option<String> {
        let names = || servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (!self.servers.matches(servers)).then(names)
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
                if self.daemon_unusable.swap(None).is_some() {
                    self.connectivity.reconnect();
                }
            }
            ReloadedCredential::Node => self.node.store(Arc::new(NodeCredential::Usable(transport))),
        }
        Ok(())
    }

    /// Updates the reason that clients receive, if no usable credential was loaded before. Returns whether that is so.
    fn set_unusable_reason(&self, which: ReloadedCredential, reason: &str) -> bool {
        let is_unusable = match which {
            ReloadedCredential::Daemon => self.daemon_unusable.load().is_some(),
            ReloadedCredential::Node => matches!(**self.node.load(), NodeCredential::Unusable(_)),
        };
        match which {
            _ if !is_unusable => {}
            ReloadedCredential::Daemon => self.daemon_unusable.store(Some(Arc::new(reason.to_owned()))),
            ReloadedCredential::Node => self.node.store(Arc::new(NodeCredential::Unusable(reason.to_owned()))),
        }
        is_unusable
    }
}

/// When to run an exec plugin again, well before its credential expires.
fn renewal_before(expires: SystemTime) -> SystemTime {
    let now = clock::now();
    let remaining = expires.duration_since(now).unwrap_or_default();
    now + jitter(remaining * 4 / 5).max(EXEC_INTERVAL)
}

/// Resolves at a time; never without one. Cancel safe.
async fn due(renewal: Option<SystemTime>) {
    let Some(renewal) = renewal else { return std::future::pending().await };
    while let Ok(left) = renewal.duration_since(clock::now()) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(CLOCK_INTERVAL)).await;
    }
}
