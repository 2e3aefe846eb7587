//! What the roll-out of filters depends on: the labels of this daemon's Node, and the annotation that turns all filters off.

use std::collections::BTreeMap;

use tokio::sync::watch;
use weir_document::{Document, path};
use weir_kube::GroupResource;
use weir_spec::LookupSpec;
use weir_store::{Change, ReflectorHandle, Reflectors};
use weir_upstream::Tasks;

/// The annotation of a Node that turns its filters off.
pub const SWITCH: &str = "weir.dev/filters";
/// The value that does it.
pub const OFF: &str = "off";
/// The value that says what is so without the annotation.
const ON: &str = "on";
/// The longest value that is shown.
const SHOWN: usize = 63;

/// What is known of this daemon's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// It has not been read yet.
    Pending,
    /// It has not been read yet, and no API server answers: it may take long.
    Away,
    /// What it says, or last said; nothing if there was no such Node.
    Known(NodeFacts),
    /// It cannot be read, for this reason, until an operator does something about it.
    Unreadable(String),
}

impl NodeState {
    /// Whether the Node turns all filters off.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Known(facts) if facts.is_off)
    }
}

/// What a Node says about filters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether all filters are off.
    pub is_off: bool,
    /// A value of the annotation that means nothing.
    pub unknown_switch: Option<String>,
    /// Whether the cluster has no such Node.
    pub is_missing: bool,
}

/// Follows the Node of this name. The state is in memory, and after a restart without the API server from disk.
#[must_use]
pub fn follow_node(reflectors: &Reflectors, node_name: &str, tasks: &Tasks) -> watch::Receiver<NodeState> {
    let (sender, receiver) = watch::channel(NodeState::Pending);
    let lookup = LookupSpec {
        name: Some(node_name.to_owned()),
        metadata_only: true,
        ..LookupSpec::all(GroupResource::new("nodes", ""))
    };
    // Subscribed first: no change after the first read is missed.
    let (mut changes, reflectors) = (reflectors.changes(), reflectors.clone());
    let handle = reflectors.open(&lookup);
    tasks.spawn_until_stop(async move {
        let mut is_missing = false;
        loop {
            let seen = handle.state();
            let synced = tokio::select! {
                biased;
                synced = handle.synced() => Some(synced),
                () = is_away(&handle), if *sender.borrow() == NodeState::Pending => None,
            };
            let state = match synced {
                None => NodeState::Away,
                Some(Ok(())) => {
                    reflectors.load_last_known().await;
                    let facts = read(&reflectors, &handle);
                    note_missing(handle.lookup().name.as_deref(), &mut is_missing, facts.is_missing);
                    NodeState::Known(facts)
                }
                Some(Err(error)) => NodeState::Unreadable(error.to_string()),
            };
            if let NodeState::Unreadable(reason) = &state
                && *sender.borrow() != state
            {
                tracing::warn!(
                    reason,
                    "the Node of this daemon cannot be read: filters with `nodes` are refused, and the annotation {SWITCH} has no effect"
                );
            }
            sender.send_if_modified(|current| {
                let differs = *current != state;
                *current = state;
                differs
            });
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) if concerns(&change, &handle) => {}
                    Some(_) => continue_until(&mut changes, &handle).await,
                    None => return,
                },
                _ = handle.state_after(&seen) => {}
            }
        }
    });
    receiver
}

/// Resolves when the Node is not on disk, and no API server answers. Cancel-safe.
async fn is_away(handle: &ReflectorHandle) {
    let mut state = handle.state();
    while state.synced || state.error.is_none() {
        state = handle.state_after(&state).await;
    }
}

/// Waits for a change that concerns the Node.
async fn continue_until(changes: &mut weir_store::Changes, handle: &ReflectorHandle) {
    while let Some(change) = changes.next().await {
        if concerns(&change, handle) {
            return;
        }
    }
}

fn concerns(change: &Change, handle: &ReflectorHandle) -> bool {
    match change {
        Change::Objects { lookup, .. } | Change::AllObjects { lookup } => lookup == handle.lookup(),
        Change::Lagged => true,
        Change::Addresses => false,
    }
}

/// Logs that there is no such Node, and that there is one at last.
fn note_missing(node: Option<&str>, before: &mut bool, is_missing: bool) {
    match (std::mem::replace(before, is_missing), is_missing) {
        (false, true) => tracing::warn!(
            node,
            "the cluster has no Node of this name: check --node-name. Filters by pool keep the pool that it last had, and kube-proxy gets no endpoints of this node alone"
        ),
        (true, false) => tracing::info!(node, "the cluster has the Node of this daemon now"),
        _ => {}
    }
}

/// Returns the facts of the Node. A deleted one keeps its last facts, also across restarts: deleting a Node to move it to another
/// pool does not turn filters off, or on.
fn read(reflectors: &Reflectors, handle: &ReflectorHandle) -> NodeFacts {
    let (lookup, snapshot) = (handle.lookup(), reflectors.snapshot());
    let name = lookup.name.as_deref().unwrap_or_default();
    let is_missing = snapshot.get(lookup, None, name).is_none();
    let Some(node) = snapshot.last_known(lookup, None, name) else {
        return NodeFacts { is_missing, ..NodeFacts::default() };
    };
    NodeFacts { is_missing, ..NodeFacts::of(node.document()) }
}

impl NodeFacts {
    /// The facts of a Node.
    pub(crate) fn of(node: &Document) -> Self {
        let labels = node.deserialize_at(&path!("metadata.labels")).ok().flatten().unwrap_or_default();
        let switch = node.annotation(SWITCH).ok().flatten();
        let switch = switch.as_deref().map(str::trim).filter(|value| !value.is_empty());
        let unknown = switch.filter(|value| ![OFF, ON].contains(value));
        Self {
            labels,
            is_off: switch == Some(OFF),
            unknown_switch: unknown.map(|value| weir_process::one_line(value, SHOWN)),
            is_missing: false,
        }
    }
}
