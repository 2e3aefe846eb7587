//! # endpoints: an ingress controller uses endpoints of its own node pool
//!
//! An ingress controller on this node receives, for every Service, only the endpoints on nodes of this node's pool. Services
//! need no annotation. The filter hides Endpoints objects without any remaining address. It never hides EndpointSlices, but
//! they may become empty. It changes nothing if the node is in no pool, if the pool does not exist, or if the endpoints have
//! no Service.
//!
//! ```yaml
//! - name: endpoints
//!   module: endpoints.wasm
//!   settings:
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     poolSource: nodepools      # or nodebuckets, nodelabels: the source of the pool's members
//!     slices: true               # false: leave EndpointSlices alone
//!     withoutNode: drop          # keep: keep addresses without a node, which are on no pod
//! ```

use serde::Deserialize;
use weir_edge::addresses::Format;
use weir_edge::pool::{PoolMembers, PoolSource};
use weir_filter::{Error, Filter, Lookup, Object, Plan, Verdict};

/// The settings, see the crate's documentation.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    node_pool: Option<String>,
    pool_source: PoolSource,
    slices: bool,
    without_node: WithoutNode,
}

/// The handling of addresses without a node.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WithoutNode {
    Drop,
    Keep,
}

impl Default for Settings {
    fn default() -> Self {
        Self { node_pool: None, pool_source: PoolSource::default(), slices: true, without_node: WithoutNode::Drop }
    }
}

/// The filter.
pub struct Endpoints {
    members: PoolMembers,
    slices: bool,
    without_node: WithoutNode,
}

impl Filter for Endpoints {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            members: PoolMembers::configure(settings.node_pool, settings.pool_source)?,
            slices: settings.slices,
            without_node: settings.without_node,
        })
    }

    fn plan(&self) -> Plan {
        Plan::matching(
            ["endpoints", "endpointslices"]
                .map(|resource| format!("nginx-ingress-controller/{resource}#get;list;watch")),
        )
        .with(Lookup::of("services").metadata_only())
        .with_all(self.members.lookups())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let format = match Format::of(object) {
            Some(Format::Slice(_)) if !self.slices => return Ok(Verdict::Keep),
            Some(format) => format,
            None => return Ok(Verdict::Keep),
        };
        if format.service(object).is_none() {
            return Ok(Verdict::Keep);
        }
        let Some(members) = self.members.get()? else {
            return Ok(Verdict::Keep);
        };
        members.log_kept();
        let left = match self.without_node {
            WithoutNode::Drop => format.cut(object, members.name_set())?,
            WithoutNode::Keep => {
                format.cut_by(object, |node| node.is_none_or(|node| node.is_empty() || members.contains(node)))?
            }
        };
        Ok(if left { Verdict::Keep } else { Verdict::Hide })
    }
}

weir_filter::export!(Endpoints);
weir_filter::cases!(Endpoints);
