//! Recorded traces as a tree. A node is a host call, and an edge is a result of it.
//!
//! The nodes are in one arena and shared between versions of the tree. A copy of the tree copies pointers. A change
//! copies the changed node only.

use std::borrow::Cow;
use std::sync::Arc;

use weir_document::Document;

use crate::{Extent, HostCall, Observed, Scope, Trace, Verdict, evaluate};

/// The number of calls that must return the same verdict before it is replayed.
pub(super) const AGREED: u8 = 4;
/// The maximum number of nodes of one tree.
pub(super) const NODES: usize = 1024;
/// The maximum number of results of one host call.
pub(super) const RESULTS: usize = 16;
/// The maximum memory of the string sets of all nodes, in bytes.
pub(super) const WEIGHT: usize = 4 << 20;

/// The traces of one filter.
#[derive(Debug, Clone)]
pub(super) struct TraceTree {
    /// The first node is the root. Replaced and evicted nodes stay until the tree is cleared.
    nodes: Vec<Arc<Node>>,
    weight: usize,
    clears: u64,
}

/// The state after a sequence of host calls and results.
#[derive(Debug, Clone)]
enum Node {
    /// No recorded call has reached this node.
    Unknown,
    /// The filter makes a host call.
    HostCall {
        call: HostCall,
        /// Oldest first.
        edges: Vec<Edge>,
        /// Whether this node leads to a verdict that is replayed.
        established: bool,
    },
    /// The filter returns a verdict.
    Verdict { keep: bool, calls: u8 },
    /// The filter makes a host call that is not replayed.
    Unpredictable { calls: u8 },
}

#[derive(Debug, Clone)]
struct Edge {
    observed: Observed<'static>,
    next: usize,
}

/// The result of a replay.
#[derive(Debug)]
pub(super) enum Found {
    /// The verdict.
    Verdict(Verdict),
    /// There is no verdict. The trace of a call would extend the tree.
    Unknown,
    /// There is no verdict, and a trace would not extend the tree.
    Unpredictable,
}

/// Two calls made different host calls, or returned different verdicts, after the same results.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::filter) struct Contradiction;

impl TraceTree {
    /// Returns how often the tree was cleared.
    pub(super) fn clears(&self) -> u64 {
        self.clears
    }

    /// Replays the filter on an object, with the lookups of `scope`.
    pub(super) fn replay(&self, object: &Document, scope: &mut Scope) -> Found {
        let before = object.bytes();
        // Borrowed until the first edit, because reads cache what they parse in the document.
        let mut object = Cow::Borrowed(object);
        let mut at = 0;
        loop {
            match self.nodes.get(at).map(|node| &**node) {
                None | Some(Node::Unknown) => return Found::Unknown,
                Some(Node::Verdict { calls, .. } | Node::Unpredictable { calls }) if *calls < AGREED => {
                    return Found::Unknown;
                }
                Some(Node::Unpredictable { .. }) => return Found::Unpredictable,
                Some(Node::Verdict { keep: false, .. }) => return Found::Verdict(Verdict::Hide),
                Some(Node::Verdict { keep: true, .. }) => {
                    return Found::Verdict(match object {
                        Cow::Borrowed(_) => Verdict::Keep,
                        Cow::Owned(object) => Verdict::of_call(true, object, before),
                    });
                }
                // An edit costs a pass over the bytes, so it is only made if it leads to a verdict.
                Some(Node::HostCall { call, established: false, .. }) if call.is_edit() => return Found::Unknown,
                Some(Node::HostCall { call, edges, .. }) => {
                    // The module's own call reports the error.
                    let Ok(observed) = evaluate(call, &mut object, scope) else { return Found::Unpredictable };
                    match edges.iter().find(|edge| edge.observed == observed) {
                        Some(edge) => at = edge.next,
                        None if observed.is_long() => return Found::Unpredictable,
                        None => return Found::Unknown,
                    }
                }
            }
        }
    }

    /// Returns whether the tree already contains a trace, with enough agreeing calls.
    pub(super) fn holds(&self, trace: &Trace, keep: bool) -> bool {
        if trace.extent() == Extent::Nothing {
            return true;
        }
        let (known, at) = self.follow(trace);
        if known < trace.calls().len() {
            return false;
        }
        match (self.nodes.get(at).map(|node| &**node), trace.extent()) {
            (Some(Node::Verdict { keep: known, calls }), Extent::Whole) => *known == keep && *calls >= AGREED,
            (Some(Node::Unpredictable { calls }), Extent::Prefix) => *calls >= AGREED,
            _ => false,
        }
    }

    /// Returns the number of leading host calls of a trace that the tree contains with the same results, and the node
    /// after them.
    fn follow(&self, trace: &Trace) -> (usize, usize) {
        let mut at = 0;
        for (known, (call, observed)) in trace.calls().iter().enumerate() {
            let edge = match self.nodes.get(at).map(|node| &**node) {
                Some(Node::HostCall { call: next, edges, .. }) if next == call => {
                    edges.iter().find(|edge| edge.observed == *observed)
                }
                _ => None,
            };
            match edge {
                Some(edge) => at = edge.next,
                None => return (known, at),
            }
        }
        (trace.calls().len(), at)
    }

    /// Adds a trace that ended with a verdict. A full tree is cleared first.
    pub(super) fn add(&mut self, trace: &Trace, keep: bool) -> Result<(), Contradiction> {
        let weight = |from| trace.calls().iter().skip(from).map(|(call, _)| call.weight()).sum::<usize>();
        if trace.extent() == Extent::Nothing || weight(0) > WEIGHT {
            return Ok(());
        }
        let (known, _) = self.follow(trace);
        if self.nodes.len() + trace.calls().len() - known > NODES || self.weight + weight(known) > WEIGHT {
            *self = Self { clears: self.clears + 1, ..Self::default() };
        }
        let mut at = 0;
        let mut path = Vec::with_capacity(trace.calls().len());
        // After a fingerprint, an instance without the derived state makes more host calls than one that has kept it.
        let mut memo = false;
        for (call, observed) in trace.calls() {
            path.push(at);
            let next = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at).map(Arc::make_mut) else { return Ok(()) };
            match node {
                Node::HostCall { call: known, .. } if known == call => {}
                _ if memo && node.is_established() => return Ok(()),
                _ if memo || matches!(node, Node::Unknown) => {
                    self.weight += call.weight();
                    *node = Node::host_call(call);
                }
                _ => return Err(Contradiction),
            }
            memo |= call.is_memo_key();
            let Node::HostCall { edges, .. } = node else { return Ok(()) };
            at = match edges.iter().find(|edge| edge.observed == *observed) {
                Some(edge) => edge.next,
                None => {
                    edges.push(Edge { observed: observed.clone(), next });
                    self.nodes.push(Arc::new(Node::Unknown));
                    self.evict_from(path.last().copied().unwrap_or_default());
                    next
                }
            };
        }
        let leaf = match trace.extent() {
            Extent::Whole => Node::Verdict { keep, calls: 1 },
            _ => Node::Unpredictable { calls: 1 },
        };
        if self.end_at(at, leaf, memo)? {
            for at in path {
                if let Some(Node::HostCall { established, .. }) = self.nodes.get_mut(at).map(Arc::make_mut) {
                    *established = true;
                }
            }
        }
        Ok(())
    }

    /// Adds the end of a trace at a node. Returns whether its verdict is replayed from now on.
    fn end_at(&mut self, at: usize, leaf: Node, memo: bool) -> Result<bool, Contradiction> {
        let Some(node) = self.nodes.get_mut(at).map(Arc::make_mut) else { return Ok(false) };
        match (&mut *node, leaf) {
            (Node::Verdict { keep, calls }, Node::Verdict { keep: again, .. }) if *keep == again => {
                *calls = calls.saturating_add(1).min(AGREED);
                return Ok(*calls == AGREED);
            }
            (Node::Unpredictable { calls }, Node::Unpredictable { .. }) => {
                *calls = calls.saturating_add(1).min(AGREED);
            }
            (Node::Unknown, leaf) => *node = leaf,
            (Node::Verdict { .. }, Node::Verdict { .. }) => return Err(Contradiction),
            (_, Node::Unpredictable { .. }) if memo => {}
            (other, leaf) if memo => {
                if !other.is_established() {
                    *node = leaf;
                }
            }
            _ => return Err(Contradiction),
        }
        Ok(false)
    }

    /// Evicts a result of a node that has too many: the oldest one that leads to no replayed verdict, else the oldest.
    fn evict_from(&mut self, at: usize) {
        let leads_nowhere = |edge: &Edge| self.nodes.get(edge.next).is_none_or(|next| !next.is_established());
        let Some(Node::HostCall { edges, .. }) = self.nodes.get(at).map(|node| &**node) else { return };
        if edges.len() <= RESULTS {
            return;
        }
        // The newest one was just added.
        let older = edges.iter().take(RESULTS);
        let oldest = older.clone().position(leads_nowhere).unwrap_or(0);
        if let Some(Node::HostCall { edges, .. }) = self.nodes.get_mut(at).map(Arc::make_mut) {
            edges.remove(oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }
}

impl Default for TraceTree {
    fn default() -> Self {
        Self { nodes: vec![Arc::new(Node::Unknown)], weight: 0, clears: 0 }
    }
}

impl Node {
    fn host_call(call: &HostCall) -> Self {
        Self::HostCall { call: call.clone(), edges: Vec::new(), established: false }
    }

    /// Returns whether this node leads to a verdict that is replayed.
    fn is_established(&self) -> bool {
        match self {
            Self::HostCall { established, .. } => *established,
            Self::Verdict { calls, .. } => *calls >= AGREED,
            Self::Unknown | Self::Unpredictable { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
