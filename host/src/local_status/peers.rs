//! Reports of the other nodes of the pool: each Weir tells its peers what it shows of its own node's pods.
//!
//! One line of JSON is one message: the whole state when it has changed, or a sign of life. A peer speaks for its own node
//! alone: what it says counts for endpoints that the API server's objects bind to that node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::PodCondition;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_store::PeerClient;
use weir_upstream::{AnsweredBy, BackOff, Identity, Purpose, RequestHead, jitter, no_request_body};

use super::endpoints::PodReport;
use super::state::{LocalPod, LocalStatus, PeerState, State};
use weir_kube::PodStatus;

/// The path of the reports, below the one for peers.
pub(crate) const PATH: &str = "/local-status";
/// How often a peer that has nothing to say gives a sign of life, at least three times in `--peer-silence`.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the first attempt waits. The Weirs of a site start together: one that is found down meanwhile is left out by the
/// watch caches until their next watches.
const START: Duration = Duration::from_secs(2);
/// The delays between attempts to read from a peer.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(10);
/// How long a peer is left alone whose Weir knows no reports.
const UNSUPPORTED: Duration = Duration::from_secs(300);
/// The largest message, and the most pods in one: kubelet runs 110 by default.
const MAX_MESSAGE: usize = 1 << 20;
const MAX_PODS: usize = 2048;
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
        let pods = whole.then(|| self.state().pods.iter().filter_map(|(uid, pod)| self.told(uid, pod)).collect());
        let message = PeerMessage { node: self.node.to_string(), boot_id: self.boot_id.clone(), version, pods };
        let mut line = serde_json::to_vec(&message).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }

    /// What peers are told of a pod; nothing of those of other nodes, and of those that the API server has right.
    fn told(&self, uid: &Arc<str>, pod: &LocalPod) -> Option<(String, PeerPod)> {
        let told = match &pod.report {
            PodReport::Awaited => PeerPod { addresses: None, ready: false },
            PodReport::Reported(status) if status.is_terminal() => {
                PeerPod { addresses: Some(Vec::new()), ready: false }
            }
            PodReport::Reported(status) => {
                PeerPod { addresses: Some(status.addresses.clone()), ready: status.is_ready() }
            }
        };
        (pod.node == self.node && pod.handed_over.is_none()).then(|| (uid.to_string(), told))
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
        let (mut body, mut buffer) = (response.into_body(), BytesMut::new());
        loop {
            let data = match body.frame().await {
                None => return PeerError::Ended,
                Some(Err(error)) => return PeerError::Body(error.to_string()),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                if let Err(error) = self.take(peer.node(), &line) {
                    tracing::warn!(peer = %peer.node(), error, "a report of a peer's pods is not valid, it does not count");
                    return PeerError::Message(error);
                }
                back_off.reset();
            }
            if buffer.len() > MAX_MESSAGE {
                return PeerError::Message(format!("it has more than {MAX_MESSAGE} bytes"));
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
            take_reports(&mut state, node, reports);
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
        let status = if ready { "True" } else { "False" };
        let condition =
            PodCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..PodCondition::default() };
        let status =
            addresses.map(|addresses| PodStatus { addresses, phase: String::new(), conditions: vec![condition] });
        Ok((uid.into(), status.into()))
    };
    pods.into_iter().map(report).collect()
}

/// Replaces what a peer has said before. What it says no more, the API server says.
fn take_reports(state: &mut State, node: &Arc<str>, reports: BTreeMap<Arc<str>, PodReport>) {
    for (uid, pod) in state.pods.iter_mut().filter(|(_, pod)| pod.node == *node) {
        if !reports.contains_key(uid) && !pod.is_accepted {
            (pod.is_accepted, pod.since) = (true, Instant::now());
        }
    }
    for (uid, report) in reports {
        let known = state.pods.get(&uid);
        // A pod of another node is not this peer's.
        let is_foreign = known.is_some_and(|known| known.node != *node);
        let is_same = known.is_some_and(|known| known.report == report && !known.is_accepted);
        if !is_foreign && !is_same {
            state.pods.insert(uid, LocalPod::new(node.clone(), "", "", report));
        }
    }
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
    fn a_peer_replaces_its_own_pods_only() {
        let mut state = State::default();
        let report = || PodReport::Awaited;
        let nodes: [Arc<str>; 2] = ["a".into(), "b".into()];
        take_reports(&mut state, &nodes[0], BTreeMap::from([("1".into(), report()), ("2".into(), report())]));
        take_reports(&mut state, &nodes[1], BTreeMap::from([("1".into(), report()), ("3".into(), report())]));
        let node = |state: &State, uid: &str| state.pods[uid].node.to_string();
        assert_eq!((node(&state, "1"), node(&state, "3")), ("a".to_owned(), "b".to_owned()));
        take_reports(&mut state, &nodes[0], BTreeMap::from([("1".into(), report())]));
        assert!(state.pods["2"].is_accepted && !state.pods["1"].is_accepted && !state.pods["3"].is_accepted);
    }
}
