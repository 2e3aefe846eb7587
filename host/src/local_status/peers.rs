//! Reports of the other nodes of the pool: each Weir sends its peers the status of its own node's pods.
//!
//! One line of JSON is one message: the whole state when it has changed, or a sign of life. A peer speaks for its own node
//! alone: what it says counts for endpoints that the API server's objects bind to that node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::PodCondition;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_store::PeerClient;
use weir_upstream::{AnsweredBy, BackOff, Purpose, RequestHead, jitter, no_request_body};

use super::endpoints::PodReport;
use super::overlay::PodKey;
use super::peer_lines::Lines;
use super::state::{LocalPod, LocalStatus, PeerState, State};
use weir_kube::{Identity, PodStatus};

/// The path of the reports, below the one for peers.
pub(crate) const PATH: &str = "/local-status";
/// How often a peer that has nothing to say gives a sign of life, six times before it counts as silent.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the first attempt waits. The Weirs of a site start together: one that is found down meanwhile is left out by the
/// watch caches until their next watches.
const START: Duration = Duration::from_secs(2);
/// The delays between attempts to read from a peer.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(10);
/// How long a peer is left alone whose Weir knows no reports.
const UNSUPPORTED: Duration = Duration::from_secs(300);
/// The most pods of one peer, in a message and in memory, and of all peers: kubelet runs 110 by default.
const MAX_PODS: usize = 2048;
const MAX_ALL_PODS: usize = 8192;
/// The least time between two messages of a peer. One that has more to say is read more slowly.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest uid, and the most addresses of a pod.
const MAX_UID: usize = 64;
const MAX_ADDRESSES: usize = 16;

/// One message of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PeerMessage {
    /// The node of the peer.
    node: String,
    /// The boot of that node.
    boot_id: Option<String>,
    /// Changes with the state.
    version: u64,
    /// The pods by uid; absent if they are those of the last message.
    pods: Option<BTreeMap<String, PeerPod>>,
}

/// What a peer shows of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PeerPod {
    /// The addresses; absent if the peer's kubelet has not reported the pod since its node was restarted.
    addresses: Option<Vec<IpAddr>>,
    ready: bool,
}

/// Why a peer's reports are not read any more.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("its Weir knows no reports of pods ({0})")]
    Unsupported(StatusCode),
    #[error("it answers {0}")]
    Refused(StatusCode),
    #[error("{0}")]
    Request(#[from] weir_upstream::UpstreamError),
    #[error("it is not readable: {0}")]
    Body(String),
    #[error("a message is not valid: {0}")]
    Message(String),
    #[error("it ended the reports")]
    Ended,
}

impl LocalStatus {
    /// The messages for a peer that has this version, until the daemon stops.
    pub(crate) fn messages(self: &Arc<Self>, known: Option<u64>) -> impl Stream<Item = Bytes> + use<> {
        let changes = self.generation.subscribe();
        stream::unfold((self.clone(), changes, known), |(status, mut changes, known)| async move {
            let is_new = known != Some(*changes.borrow_and_update() + status.epoch);
            if !is_new {
                let heartbeat = HEARTBEAT.min(status.peer_silence / 3);
                let _ = tokio::time::timeout(heartbeat, changes.changed()).await;
            }
            let version = *changes.borrow_and_update() + status.epoch;
            let line = status.message(version, known != Some(version));
            Some((line, (status, changes, Some(version))))
        })
    }

    fn message(&self, version: u64, whole: bool) -> Bytes {
        let pods = whole
            .then(|| self.state().pods.iter().filter_map(|(key, pod)| self.report_for_peers(&key.uid, pod)).collect());
        let message = PeerMessage { node: self.node.to_string(), boot_id: self.boot_id.clone(), version, pods };
        let mut line = serde_json::to_vec(&message).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }

    /// Returns the report of a pod for peers; `None` for pods of other nodes, and for those whose status the API server has.
    fn report_for_peers(&self, uid: &Arc<str>, pod: &LocalPod) -> Option<(String, PeerPod)> {
        let report = match &pod.report {
            PodReport::Awaited => PeerPod { addresses: None, ready: false },
            PodReport::Reported(status) if status.is_terminal() => {
                PeerPod { addresses: Some(Vec::new()), ready: false }
            }
            PodReport::Reported(status) => {
                PeerPod { addresses: Some(status.addresses.clone()), ready: status.is_ready() }
            }
        };
        (pod.node == self.node && pod.handed_over.is_none()).then(|| (uid.to_string(), report))
    }

    /// Reads the reports of one peer. Runs until it is dropped.
    pub(crate) async fn follow_peer(self: Arc<Self>, peer: PeerClient) {
        let node = peer.node().clone();
        self.state().peers.entry(node.clone()).or_default();
        tokio::time::sleep(jitter(START)).await;
        let mut back_off = BackOff::new(FIRST_RETRY, MAX_RETRY);
        let mut logged = String::new();
        loop {
            let error = self.read_peer(&peer, &mut back_off).await;
            let is_supported = !matches!(error, PeerError::Unsupported(_));
            self.state().peers.entry(node.clone()).or_default().is_supported = is_supported;
            let text = error.to_string();
            if logged != text {
                tracing::debug!(peer = %node, error = text, "reports of a peer's pods are not read, retrying");
                logged = text;
            }
            tokio::time::sleep(if is_supported { back_off.next_delay() } else { UNSUPPORTED }).await;
        }
    }

    async fn read_peer(&self, peer: &PeerClient, back_off: &mut BackOff) -> PeerError {
        let known = self.state().peers.get(peer.node()).and_then(|peer| peer.version);
        let path = known.map_or_else(|| PATH.to_owned(), |version| format!("{PATH}?version={version}"));
        let Ok(path) = path.parse() else { return PeerError::Ended };
        let head =
            RequestHead { method: Method::GET, path, headers: HeaderMap::new(), answered_by: AnsweredBy::Server };
        let response = peer.upstream().send(Identity::Daemon, Purpose::Watch, head, no_request_body()).await;
        let response = match response {
            Ok(response) => response,
            Err(error) => return error.into(),
        };
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST) => {
                return PeerError::Unsupported(status);
            }
            status => return PeerError::Refused(status),
        }
        let (mut body, mut lines, mut earliest) = (response.into_body(), Lines::default(), Instant::now());
        loop {
            let data = match body.frame().await {
                None => return PeerError::Ended,
                Some(Err(error)) => return PeerError::Body(error.to_string()),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            lines.push(&data);
            while let Some(line) = match lines.next() {
                Ok(line) => line,
                Err(error) => return PeerError::Message(error.to_string()),
            } {
                tokio::time::sleep_until(earliest).await;
                earliest = Instant::now() + PAUSE;
                if let Err(error) = self.take(peer.node(), &line) {
                    tracing::warn!(peer = %peer.node(), error, "a report of a peer's pods is not valid, it does not count");
                    return PeerError::Message(error);
                }
                back_off.reset();
            }
        }
    }

    /// Takes a message of the peer on a node.
    fn take(&self, node: &Arc<str>, line: &[u8]) -> Result<(), String> {
        let message: PeerMessage = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if message.node != **node {
            return Err(format!("it is about node {:?}", message.node.chars().take(MAX_UID).collect::<String>()));
        }
        let reports = message.pods.map(reports).transpose()?;
        let mut state = self.state();
        let peer = state.peers.entry(node.clone()).or_default();
        (peer.heard, peer.is_supported, peer.version) = (Instant::now(), true, Some(message.version));
        if let Some(reports) = reports {
            take_reports(&mut state, node, reports)?;
        }
        self.publish(&state);
        Ok(())
    }

    /// Marks the peers that have given no sign of life: while the API server cannot be reached, their pods count as not ready.
    /// While it can, its word counts instead of what they said.
    pub(super) fn check_silence(&self, state: &mut State, is_reachable: bool) {
        let is_silent = |peer: &PeerState| peer.is_supported && peer.heard.elapsed() > self.peer_silence;
        let silent = state.peers.iter().filter(|(_, peer)| is_silent(peer)).map(|(node, _)| node.clone());
        let silent: BTreeSet<_> = silent.collect();
        if !is_reachable {
            for node in silent.difference(&state.silent) {
                tracing::warn!(peer = %node, silence = ?self.peer_silence, "no sign of life of a peer: the endpoints of its pods are not ready");
            }
            state.silent = silent;
            return;
        }
        state.silent.clear();
        for node in silent {
            let before = state.pods.len();
            state.pods.retain(|_, pod| pod.node != node);
            let pods = before - state.pods.len();
            if pods > 0 {
                tracing::info!(peer = %node, pods, "no sign of life of a peer: the API server's objects of its pods are shown again");
            }
        }
    }
}

/// The reports of a message by uid.
fn reports(pods: BTreeMap<String, PeerPod>) -> Result<BTreeMap<Arc<str>, PodReport>, String> {
    if pods.len() > MAX_PODS {
        return Err(format!("it names {} pods, the limit is {MAX_PODS}", pods.len()));
    }
    let report = |(uid, PeerPod { addresses, ready }): (String, PeerPod)| {
        if uid.len() > MAX_UID || addresses.as_ref().is_some_and(|addresses| addresses.len() > MAX_ADDRESSES) {
            return Err(format!("pod {:?} is not one", uid.chars().take(MAX_UID).collect::<String>()));
        }
        if let Some(address) = addresses.iter().flatten().find(|address| !is_pod_address(**address)) {
            return Err(format!("{address} is no address of a pod"));
        }
        let status = if ready { "True" } else { "False" };
        let condition =
            PodCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..PodCondition::default() };
        let status =
            addresses.map(|addresses| PodStatus { addresses, phase: String::new(), conditions: vec![condition] });
        Ok((uid.into(), status.into()))
    };
    pods.into_iter().map(report).collect()
}

/// Whether kube-apiserver takes an address for an endpoint, and more: no group of machines has one pod.
fn is_pod_address(address: IpAddr) -> bool {
    // ::ffff:127.0.0.1 is loopback, too.
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_link_local || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Replaces what a peer has said before. What it says no more, the API server says.
///
/// # Errors
/// All peers together say too much.
fn take_reports(state: &mut State, node: &Arc<str>, reports: BTreeMap<Arc<str>, PodReport>) -> Result<(), String> {
    make_room(state, node, &reports)?;
    for (key, pod) in state.pods.iter_mut().filter(|(key, _)| key.node == *node) {
        if !reports.contains_key(&key.uid) && !pod.is_accepted {
            (pod.is_accepted, pod.since) = (true, Instant::now());
        }
    }
    for (uid, report) in reports {
        let key = PodKey { node: node.clone(), uid };
        let is_same = state.pods.get(&key).is_some_and(|known| known.report == report && !known.is_accepted);
        if !is_same {
            state.pods.insert(key, LocalPod::new(node.clone(), "", "", report));
        }
    }
    Ok(())
}

/// Drops what the peer says no more, the oldest first, where there is no room for that and what it says.
fn make_room(state: &mut State, node: &Arc<str>, reports: &BTreeMap<Arc<str>, PodReport>) -> Result<(), String> {
    let is_peers = |pod: &LocalPod| pod.namespace.is_empty();
    let others = state.pods.values().filter(|pod| is_peers(pod) && pod.node != *node).count();
    let room = MAX_PODS.min(MAX_ALL_PODS.saturating_sub(others));
    let Some(room) = room.checked_sub(reports.len()) else {
        return Err(format!("with it, all peers together name more than {MAX_ALL_PODS} pods"));
    };
    let former = state.pods.iter().filter(|(key, _)| key.node == *node && !reports.contains_key(&key.uid));
    let mut former: Vec<_> = former.map(|(key, pod)| (pod.since, key.clone())).collect();
    former.sort_unstable();
    let superfluous = former.len().saturating_sub(room);
    for (_, key) in former.drain(..superfluous) {
        state.pods.remove(&key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_bounded_and_has_nothing_but_addresses_and_readiness() {
        let parse = |pods: serde_json::Value| reports(serde_json::from_value(pods).unwrap());
        let found = parse(json!({"a": {"addresses": ["10.0.0.1"], "ready": true}, "b": {"ready": false}})).unwrap();
        assert!(matches!(&found["a"], PodReport::Reported(status) if status.is_ready() && status.addresses.len() == 1));
        assert_eq!(found["b"], PodReport::Awaited);
        let many: BTreeMap<_, _> = (0..3000).map(|n| (n.to_string(), json!({"ready": true}))).collect();
        assert!(parse(json!(many)).unwrap_err().contains("3000 pods"));
        assert!(parse(json!({"x".repeat(65): {"ready": true}})).is_err());
        assert!(parse(json!({"a": {"ready": true, "addresses": vec!["10.0.0.1"; 17]}})).is_err());
    }

    #[test]
    fn an_address_that_no_pod_has_is_refused() {
        let parse = |address: &str| {
            let pods = json!({"a": {"addresses": ["10.0.0.1", address], "ready": true}});
            reports(serde_json::from_value(pods).unwrap())
        };
        for address in ["10.1.2.3", "192.0.2.1", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert!(parse(address).is_ok(), "{address}");
        }
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(parse(address).unwrap_err().contains("no address of a pod"), "{address}");
        }
    }

    #[test]
    fn what_peers_say_is_bounded_for_each_and_for_all() {
        let mut state = State::default();
        let reports = |from: usize, count: usize| -> BTreeMap<Arc<str>, PodReport> {
            (from..from + count).map(|uid| (uid.to_string().into(), PodReport::Awaited)).collect()
        };
        let node: Arc<str> = "a".into();
        for round in 0..5 {
            take_reports(&mut state, &node, reports(round * 2000, 2000)).unwrap();
            assert!(state.pods.len() <= MAX_PODS, "{} pods of one peer", state.pods.len());
        }
        let current = state.pods.iter().filter(|(_, pod)| !pod.is_accepted).count();
        assert_eq!(current, 2000, "what it says now counts");
        for peer in 0..3 {
            let node: Arc<str> = format!("b{peer}").into();
            take_reports(&mut state, &node, reports(100_000 + peer * 10_000, 2048)).unwrap();
        }
        let more = take_reports(&mut state, &"c".into(), reports(900_000, 200));
        assert!(more.unwrap_err().contains("all peers together"));
        assert!(state.pods.len() <= MAX_ALL_PODS);
    }

    #[test]
    fn a_peer_replaces_its_own_words_only_and_silences_nobody() {
        let mut state = State::default();
        let report = || PodReport::Awaited;
        let nodes: [Arc<str>; 2] = ["a".into(), "b".into()];
        let mut take = |node: usize, uids: &[&str]| {
            let reports = uids.iter().map(|uid| (Arc::from(*uid), report())).collect();
            take_reports(&mut state, &nodes[node], reports).unwrap();
        };
        take(0, &["1", "2"]);
        take(1, &["1", "3"]);
        take_reports(&mut state, &nodes[0], BTreeMap::from([("1".into(), report())])).unwrap();
        let said: Vec<_> = state.pods.iter().map(|(key, pod)| (&*key.node, &*key.uid, !pod.is_accepted)).collect();
        assert_eq!(said, [("a", "1", true), ("a", "2", false), ("b", "1", true), ("b", "3", true)]);
    }
}
