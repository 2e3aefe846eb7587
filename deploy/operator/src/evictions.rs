//! The controller of evictions: pods of nodes that may be offline for long stay.
//!
//! The taint of an unreachable node evicts a pod after the `tolerationSeconds` of its tolerations, 300 by default. This controller
//! sets that time on the pods of annotated nodes, and restores it when the annotation goes. It is the one change of a running
//! pod's tolerations that the API server permits; of several matching tolerations the shortest counts, so that one more would not
//! help. An annotation of the pod keeps the times of before.

pub mod controller;
mod duration;
mod pod;
mod queue;
mod tolerations;

/// The annotation of a Node or NodePool: for how long its pods stay, as OpenYurt has it. `0`: for ever. A label of that name
/// counts, too.
pub const AUTONOMY_DURATION: &str = "node.openyurt.io/autonomy-duration";
/// The annotation of a pod with the times of before.
pub const ORIGINAL: &str = "weir.openyurt.io/original-toleration-seconds";
