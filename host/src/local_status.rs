//! Local status: what kubelet reports of its pods while the API server cannot take it.
//!
//! After a reboot without the API server, pods come back with new addresses, and the cached EndpointSlices name the old ones.
//! kubelet sends each pod's status to the API server by a patch, and repeats it until that succeeds. Weir remembers what a
//! refused patch says. Clients see EndpointSlices, Endpoints and pods with it, until the API server's own objects say the same.
//!
//! ```text
//! PATCH pods/NAME/status ─► PodReport ─► LocalStatus ─► StatusFilter, first in every chain (set_layer)
//!                                            ▲ hand_over drops what the API server says, too
//! ```
//!
//! The Weirs of a pool exchange these reports, so that Services across the nodes of a site work, too (`peers`).
//!
//! kubelet itself reads what the API server has, so that its patches stay whole differences.
//!
//! Modules depend on each other in one direction: `set_layer`, `hand_over` ─► `peers` (with `peer_lines`), `restore` ─► `state` ─► `overlay` ─►
//! `endpoints`; `state` ─► `saved_status`, `node_pods`, `metrics`.

mod endpoints;
mod hand_over;
mod metrics;
mod node_pods;
mod overlay;
mod peer_lines;
mod peers;
mod restore;
mod saved_status;
mod set_layer;
mod state;

pub use self::metrics::LocalStatusMetrics;
pub(crate) use self::peers::PATH as PEER_REPORTS;
pub(crate) use self::saved_status::read_boot_id;
pub(crate) use self::set_layer::layer;
pub use self::state::LocalStatus;
pub(crate) use self::state::LocalStatusConfig;
