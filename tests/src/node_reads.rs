//! Reads of kubelet and kube-proxy that go on while a test does something else to the daemon.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Answer, Client, PATIENCE};

/// What kubelet reads: its own Node, and its pods.
const KUBELET: [&str; 2] =
    ["/api/v1/nodes/edge-a", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-a&resourceVersion=0"];
/// What kube-proxy reads.
const KUBE_PROXY: [&str; 2] =
    ["/api/v1/services?resourceVersion=0", "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"];
/// Between two rounds: the reads are no attack of their own.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads again and again, until [`NodeReads::end`].
#[derive(Debug)]
pub struct NodeReads {
    stop: watch::Sender<bool>,
    rounds: JoinSet<Result<usize, String>>,
}

impl NodeReads {
    /// Starts them. All have been answered once when it returns.
    ///
    /// # Panics
    /// One of these is not answered by 200.
    pub async fn start(kubelet: Client, proxy: Client) -> Self {
        round(&kubelet, &proxy).await.expect("the node is served before the attack");
        let (stop, stopped) = watch::channel(false);
        let mut rounds = JoinSet::new();
        rounds.spawn(async move {
            let mut reads = 0;
            while !*stopped.borrow() {
                reads += round(&kubelet, &proxy).await?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(reads)
        });
        Self { stop, rounds }
    }

    /// Ends them. Returns how many there were meanwhile.
    ///
    /// # Errors
    /// The first one that was not answered by 200, and in time.
    ///
    /// # Panics
    /// If they do not end.
    pub async fn ended(mut self) -> Result<usize, String> {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.rounds.join_next()).await.expect("the reads end").unwrap().unwrap()
    }

    /// Ends them.
    ///
    /// # Panics
    /// One was not answered by 200, or there was none meanwhile.
    pub async fn end(self) {
        let reads = self.ended().await.expect("kubelet and kube-proxy are served meanwhile");
        eprintln!("{reads} reads of kubelet and kube-proxy meanwhile");
        assert!(reads > 0);
    }
}

/// One read of each. Returns how many those are.
async fn round(kubelet: &Client, proxy: &Client) -> Result<usize, String> {
    let reads = KUBELET.map(|path| (kubelet, path)).into_iter().chain(KUBE_PROXY.map(|path| (proxy, path)));
    let mut count = 0;
    for (client, path) in reads {
        let answer = tokio::time::timeout(PATIENCE, get(client, path)).await;
        let answer =
            answer.map_err(|_| format!("{path}: no answer in time"))?.map_err(|error| format!("{path}: {error}"))?;
        if answer.status != 200 {
            return Err(format!("{path}: {} {}", answer.status, answer.text()));
        }
        count += 1;
    }
    Ok(count)
}

/// As Go's transport: a get whose kept connection was closed is sent again, on another one.
async fn get(client: &Client, path: &str) -> Result<Answer, String> {
    match client.try_get(path).await {
        Err(error) if ["IncompleteMessage", "ConnectionReset"].iter().any(|kind| error.contains(kind)) => {
            client.try_get(path).await
        }
        answer => answer,
    }
}
