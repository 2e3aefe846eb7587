//! Whether the servers that this daemon asks are those that answered last: an API server that has moved looks like a link that
//! is down.
//!
//! While a server answers, its URL and the addresses that its name has are kept, in a file of the cache directory, too. While none
//! does, what the names mean now is compared with that. Nothing here decides where requests go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use weir_process::files;
use weir_upstream::{ServerState, Upstream};

/// The file: in each line a URL and the addresses of its host.
pub(crate) const NAME: &str = "api-servers-answered";
const MAX: usize = 64 << 10;
/// How often names are resolved. A change of the link is noticed at once.
const PERIOD: Duration = Duration::from_secs(60);
/// How often they are while servers answer: one question on the link each time.
const REACHABLE_PERIOD: Duration = Duration::from_secs(600);
/// The time to resolve a name.
const RESOLVE: Duration = Duration::from_secs(10);

/// The addresses of servers, by URL.
type Addresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// The servers and what is known of them.
#[derive(Debug)]
pub(crate) struct ServerAddresses {
    upstream: Arc<Upstream>,
    /// In the order of [`Upstream::server_status`].
    servers: Vec<Uri>,
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Those that answered last, with the addresses of that time.
    answered: Addresses,
    /// What the names mean now, while no server answers.
    now: Addresses,
}

impl ServerAddresses {
    pub(crate) fn new(upstream: Arc<Upstream>, servers: Vec<Uri>, directory: Option<&Path>) -> Arc<Self> {
        let file = directory.map(|directory| directory.join(NAME));
        Arc::new(Self { upstream, servers, file, known: Mutex::default() })
    }

    /// Continues with the addresses in the file of the cache directory.
    async fn restore(&self) {
        if let Some(file) = &self.file {
            let answered = read(file).await;
            self.known().answered = answered;
        }
    }

    /// Follows the servers. Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        self.restore().await;
        loop {
            let is_reachable = self.upstream.is_reachable();
            self.look().await;
            let period = if is_reachable && self.upstream.has_answered() { REACHABLE_PERIOD } else { PERIOD };
            // An error means that nothing has changed for a while.
            let _ = tokio::time::timeout(period, self.upstream.reachable_changed(is_reachable)).await;
        }
    }

    /// Notes the servers that answer, or what the names of those that do not mean now.
    async fn look(&self) {
        if !self.upstream.is_reachable() {
            let now = resolved(self.servers.iter()).await;
            self.known().now = now;
            return;
        }
        if !self.upstream.has_answered() {
            return;
        }
        let status = self.upstream.server_status();
        let up = self.servers.iter().zip(&status).filter(|(_, status)| status.state == ServerState::Up);
        let up = resolved(up.map(|(server, _)| server)).await;
        if let (Some(answered), Some(file)) = (self.note_answered(up), self.file.clone()) {
            write(&file, &answered).await;
        }
    }

    /// Notes the servers that answer. Returns all that do or did, if that is news.
    fn note_answered(&self, up: Addresses) -> Option<Addresses> {
        let servers: BTreeSet<_> = self.servers.iter().map(ToString::to_string).collect();
        let mut known = self.known();
        known.now.clear();
        let mut answered = known.answered.clone();
        answered.extend(up);
        answered.retain(|url, _| servers.contains(url));
        if answered == known.answered {
            return None;
        }
        known.answered.clone_from(&answered);
        Some(answered)
    }

    /// Says that the servers may be elsewhere, and what to do, in one line.
    pub(crate) fn notice(&self) -> Option<String> {
        let ours = self.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if let Some(others) = self.upstream.named_now() {
            return Some(format!(
                "the kubeconfig names the API server {others} now, Weir goes on with {ours} as since its start: restart Weir"
            ));
        }
        // While one answers, it is the right one.
        self.upstream.offline_since()?;
        if let Some(server) = self.upstream.server_status().iter().find(|server| server.is_stranger) {
            return Some(format!(
                "what answers at {} has a certificate of another name or another CA: another machine has this address, or the cluster has a new CA; check --server or the kubeconfig",
                server.name
            ));
        }
        let Known { answered, now } = &*self.known();
        let is_other = !answered.is_empty() && !self.servers.iter().any(|url| answered.contains_key(&url.to_string()));
        if is_other && !self.upstream.has_answered() {
            let before = answered.keys().cloned().collect::<Vec<_>>().join(", ");
            return Some(format!(
                "no API server has ever answered at {ours}, {before} answered last: check --server or the kubeconfig"
            ));
        }
        let moved = now.iter().filter_map(|(url, now)| Some((url, answered.get(url)?, now)));
        let mut moved = moved.filter(|(_, before, now)| !before.is_empty() && before.is_disjoint(now));
        moved.next().map(|(url, before, now)| {
            format!(
                "the name in {url} means {} now, and meant {} when the API server answered last: check DNS and /etc/hosts of this node, or where the cluster is",
                listed(now),
                listed(before)
            )
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The present addresses of hosts. One whose name has none now is left out: names need the link, too.
async fn resolved(servers: impl Iterator<Item = &Uri>) -> Addresses {
    let lookups = servers.filter_map(|url| {
        let (host, url) = (url.host()?.trim_matches(['[', ']']).to_owned(), url.to_string());
        Some(async move {
            let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host, 0))).await.ok()?.ok()?;
            let found: BTreeSet<_> = found.map(|address| address.ip()).collect();
            (!found.is_empty()).then_some((url, found))
        })
    });
    futures_util::future::join_all(lookups).await.into_iter().flatten().collect()
}

fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Unreadable content counts as none.
async fn read(path: &Path) -> Addresses {
    let text = match files::read(path, MAX).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Addresses::new(),
        read => read.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)),
    };
    let text = text.inspect_err(|error| {
        tracing::warn!(path = %path.display(), %error, "the addresses of the API servers on disk are not used");
    });
    let line = |line: &str| {
        let mut words = line.split(' ');
        let url = words.next().filter(|url| url.parse::<Uri>().is_ok_and(|url| url.scheme().is_some()))?;
        Some((url.to_owned(), words.map(str::parse).collect::<Result<_, _>>().ok()?))
    };
    let text = text.unwrap_or_default();
    let found: Addresses = text.lines().filter_map(line).collect();
    if text.lines().any(|text| line(text).is_none()) {
        tracing::warn!(path = %path.display(), reason = "not every line is a URL with addresses", "the addresses of the API servers on disk are not all used");
    }
    found
}

async fn write(path: &Path, addresses: &Addresses) {
    let words = addresses.iter().map(|(url, found)| {
        std::iter::once(url.clone()).chain(found.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
    });
    let text: String = words.map(|line| line + "\n").collect();
    if let Err(error) = files::replace(path, text.into_bytes()).await {
        tracing::warn!(path = %path.display(), %error, "the addresses of the API servers cannot be kept on disk");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_upstream::{UpstreamConfig, clock};

    use super::*;

    /// A server at which nothing listens, by name. Probes have found that.
    async fn offline(url: &str, directory: Option<&Path>) -> Arc<ServerAddresses> {
        let url: Uri = url.parse().unwrap();
        let config = UpstreamConfig::new(kube::Config::new(url.clone()));
        let upstream = Arc::new(Upstream::new(&config, Arc::default()).unwrap());
        upstream.resume_outage(clock::now()).await;
        assert!(!upstream.is_reachable());
        let servers = ServerAddresses::new(upstream, vec![url], directory);
        servers.restore().await;
        servers
    }

    /// One of each kind, each with what it is about.
    pub(crate) async fn moved(directory: &Path) -> [(&'static str, Arc<ServerAddresses>); 2] {
        let file = directory.join(NAME);
        std::fs::write(&file, "http://other:1/ 192.0.2.1\n").unwrap();
        let other = offline("http://localhost:1", Some(directory)).await;
        std::fs::write(&file, "http://localhost:1/ 192.0.2.1 192.0.2.2\n").unwrap();
        let named = offline("http://localhost:1", Some(directory)).await;
        named.look().await;
        [("http://localhost:1/, http://other:1/ answered last", other), ("meant 192.0.2.1, 192.0.2.2 when", named)]
    }

    #[tokio::test]
    async fn an_outage_alone_is_no_other_address() {
        let folder = tempfile::tempdir().unwrap();
        for kept in ["", "http://localhost:1/\n", "http://localhost:1/ 127.0.0.1 ::1\n", "damaged\nhttp://[ 1.1.1.1\n"]
        {
            std::fs::write(folder.path().join(NAME), kept).unwrap();
            let servers = offline("http://localhost:1", Some(folder.path())).await;
            servers.look().await;
            assert_eq!(servers.notice(), None, "{kept}");
        }
        let unknown = offline("http://name.invalid:1", None).await;
        unknown.known().answered =
            [("http://name.invalid:1/".to_owned(), ["192.0.2.1".parse().unwrap()].into())].into();
        unknown.look().await;
        assert_eq!(unknown.notice(), None, "names cannot be resolved without a link");
    }

    #[tokio::test]
    async fn addresses_come_back_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert!(read(&path).await.is_empty());
        let addresses: Addresses = [
            ("https://a:6443/".to_owned(), ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap()).into()),
            ("https://b/".to_owned(), ["192.0.2.2"].map(|ip| ip.parse().unwrap()).into()),
        ]
        .into();
        write(&path, &addresses).await;
        assert_eq!(read(&path).await, addresses);
    }
}
