//! Credentials that change while the daemon runs: certificates that are rotated, tokens, kubeconfigs that arrive late, and
//! certificates that an exec plug-in issues for a time (its tokens are kube's to renew).
//!
//! New requests travel with what was loaded last; those under way keep their connections. What can not be loaded changes
//! nothing and is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::Files;
use crate::ServerSource;
use crate::connect::with_roots;
use crate::in_full;
use crate::spread;
use crate::upstream::{NodeCredential, anonymous};
use crate::wire::Wire;
use crate::{SetupError, Upstream};

/// Between two requests to a plug-in, whatever it says of the time.
const PLUGIN: Duration = Duration::from_secs(5);

/// Whose credential is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The daemon's own, and by whom servers are trusted.
    Own,
    /// The node credential.
    Node,
}

impl Upstream {
    /// Loads a credential again whenever one of its files changes, and before what a plug-in issued ends. Ends with the daemon
    /// only.
    pub async fn renew(self: Arc<Self>, which: Renewal, source: ServerSource) {
        let mut named: Vec<PathBuf> = source.files();
        let mut files = Files::new(named.clone());
        let mut issued = source.load().await.ok().and_then(|loaded| due(&loaded.config));
        loop {
            let due_again = async {
                match issued {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = files.changed() => {}
                () = due_again => {}
            }
            // If it fails.
            issued = issued.map(|_| spread(2 * PLUGIN));
            let result = match source.load().await {
                // Connections, probes and metrics are of the servers that the daemon began with. A credential may be that
                // of another cluster, so it is not taken alone. The node credential goes to the daemon's own servers anyway.
                Ok(loaded) if which == Renewal::Own && !self.servers.are(&loaded.servers) => {
                    let named: Vec<_> = loaded.servers.iter().map(ToString::to_string).collect();
                    Err(format!("another API server is named now ({}): that takes a restart", named.join(", ")))
                }
                Ok(loaded) => {
                    let taken = self.take(which, &loaded.config);
                    taken.map(|()| issued = due(&loaded.config)).map_err(|error| in_full(&error))
                }
                Err(error) => Err(in_full(&error)),
            };
            match result {
                Ok(()) => tracing::info!(identity = ?which, "credentials were renewed"),
                Err(reason) => {
                    tracing::error!(identity = ?which, reason, "credentials have changed and cannot be used: the last good ones stay");
                    self.still_unusable(which, &reason);
                }
            }
            let now = source.files();
            if now != named {
                files = Files::new(now.clone());
                named = now;
            }
        }
    }

    /// Puts what was loaded into force.
    fn take(&self, which: Renewal, config: &kube::Config) -> Result<(), SetupError> {
        let (count, timeout) = (self.servers.len(), self.connect_timeout);
        let wire = Arc::new(Wire::new(config, count, timeout)?);
        match which {
            Renewal::Own => {
                self.bare.store(Arc::new(Wire::bare(&anonymous(config), count, timeout)?));
                self.own.store(wire);
            }
            Renewal::Node => self.node.store(Arc::new(NodeCredential::Usable(wire))),
        }
        Ok(())
    }

    /// Keeps the newest reason for clients, if no usable node credential was ever loaded.
    fn still_unusable(&self, which: Renewal, reason: &str) {
        if which == Renewal::Node && matches!(**self.node.load(), NodeCredential::Unusable(_)) {
            self.node.store(Arc::new(NodeCredential::Unusable(reason.to_owned())));
        }
    }
}

/// When a plug-in is to be asked again for a certificate: well before it says that the one that it gives now ends. It is
/// asked for that, because it alone knows.
fn due(config: &kube::Config) -> Option<Duration> {
    config.auth_info.exec.as_ref()?;
    let ends = (*kube::Client::try_from(with_roots(config).ok()?).ok()?.valid_until())?;
    let left = Duration::try_from(ends.duration_since(Timestamp::now())).unwrap_or_default();
    Some(spread(left * 4 / 5).max(PLUGIN))
}
