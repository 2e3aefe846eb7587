//! # endpoints: each ingress controller serves its own node pool
//!
//! An ingress controller of this node sees, of every Service, only the endpoints on nodes of this node's pool; no
//! annotation is needed. Endpoints without any address left are hidden; EndpointSlices stay, if need be empty. A node
//! in no pool, or in a pool that does not exist, sees everything, and so it is for endpoints whose Service is not
//! there.
//!
//! ```yaml
//! - name: endpoints
//!   module: endpoints.wasm
//!   settings:
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     poolSource: nodepools      # or nodebuckets, nodelabels: where the pool's members are written
//!     slices: true               # false: EndpointSlices are left alone
//! ```

use serde::Deserialize;
use weir_edge::addresses::Shape;
use weir_edge::pool::{PoolMembers, PoolSource};
use weir_filter::{Error, Filter, Lookup, Object, Plan, Verdict};

/// The settings: see the crate's documentation.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    node_pool: Option<String>,
    pool_source: PoolSource,
    slices: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { node_pool: None, pool_source: PoolSource::default(), slices: true }
    }
}

/// The filter.
pub struct Endpoints {
    members: PoolMembers,
    slices: bool,
}

impl Filter for Endpoints {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self { members: PoolMembers::configure(settings.node_pool, settings.pool_source)?, slices: settings.slices })
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
        let shape = match Shape::of(object) {
            Some(Shape::Slice(_)) if !self.slices => return Ok(Verdict::Keep),
            Some(shape) => shape,
            None => return Ok(Verdict::Keep),
        };
        if shape.service(object).is_none() {
            return Ok(Verdict::Keep);
        }
        let Some(members) = self.members.get() else {
            return Ok(Verdict::Keep);
        };
        let left = shape.cut(object, members.name_set())?;
        Ok(if left { Verdict::Keep } else { Verdict::Hide })
    }
}

weir_filter::export!(Endpoints);
weir_filter::cases!(Endpoints);
