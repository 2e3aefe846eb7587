//! # servicetopology: a Service's endpoints near this node
//!
//! Clients of this node receive only the endpoints on the same node or in the same node pool, for each Service that requests
//! it. The Service requests it with the annotation `openyurt.io/topologyKeys`:
//!
//! | value | remaining endpoints |
//! |---|---|
//! | `kubernetes.io/hostname` | on this node |
//! | `openyurt.io/nodepool`, `openyurt.io/zone`, `kubernetes.io/zone` | on the nodes of this node's pool |
//! | a list, such as `kubernetes.io/hostname, openyurt.io/nodepool, *` | those of the first key that leaves a ready endpoint; `*` means all |
//! | anything else, or none | all |
//!
//! The filter chooses the key of a list once per Service, address family and port name, over all slices of the Service,
//! because kube-proxy balances each of these on its own. If no key leaves a ready endpoint, the last key applies. A slice
//! with several ports is cut by that of their keys which stands last in the list. A list with an unknown key counts as
//! "anything else". A pool key keeps all endpoints if the node is in no
//! pool or if the pool does not exist. Endpoints without a node name are removed whenever a key applies. Slices are never
//! hidden, but may become empty.
//!
//! ```yaml
//! - name: servicetopology
//!   module: servicetopology.wasm
//!   settings:
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     poolSource: nodepools      # or nodebuckets, nodelabels: the source of the pool's members
//!     poolTopology: true         # false: pool keys keep all endpoints
//!     preferenceLists: true      # false: lists count as "anything else", and the daemon need not hold all
//!                                # slices of the cluster in memory
//! ```

mod choice;
mod keys;
mod subsets;

use std::rc::Rc;

use serde::Deserialize;
use weir_edge::addresses::{Format, SERVICE_LABEL};
use weir_edge::pool::{PoolMembers, PoolNodes, PoolSource};
use weir_filter::{Error, Filter, Lookup, Memo, Object, Path, Plan, StringSet, Verdict, cluster};

use choice::{ADDRESS_TYPE, Choices, Groups, PORT_NAMES, READY};
use keys::{Near, TopologyKey};

const TOPOLOGY_KEYS: &str = "openyurt.io/topologyKeys";
const SLICES: &str = "endpointslices.discovery.k8s.io";

static TOPOLOGY: Path = Path::new("metadata.annotations['openyurt.io/topologyKeys']");

/// The settings, see the crate's documentation.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    node_pool: Option<String>,
    pool_source: PoolSource,
    pool_topology: bool,
    preference_lists: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { node_pool: None, pool_source: PoolSource::default(), pool_topology: true, preference_lists: true }
    }
}

/// The filter.
pub struct ServiceTopology {
    members: PoolMembers,
    /// The name of this node.
    this_node: StringSet,
    pool_topology: bool,
    preference_lists: bool,
    /// The chosen keys of a Service's groups. The key of an entry is the fingerprint of everything that they depend on.
    choices: Memo<[u64; 6], Rc<Choices>>,
}

impl Filter for ServiceTopology {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        let members = PoolMembers::configure(settings.node_pool, settings.pool_source)?;
        Ok(Self {
            this_node: [members.pool().node()].into_iter().collect(),
            members,
            pool_topology: settings.pool_topology,
            preference_lists: settings.preference_lists,
            choices: Memo::keeping(32),
        })
    }

    fn plan(&self) -> Plan {
        let clients = ["kube-proxy", "coredns", "nginx-ingress-controller"];
        let matches = clients.iter().flat_map(|client| {
            ["endpointslices", "endpoints"].map(|resource| format!("{client}/{resource}#get;list;watch"))
        });
        let mut plan = Plan::matching(matches).with(Lookup::of("services").metadata_only());
        if self.pool_topology {
            plan = plan.with_all(self.members.lookups());
        }
        if self.preference_lists {
            plan = plan.with(Lookup::of(SLICES).versions(["v1", "v1beta1"]).selected(SERVICE_LABEL).optional());
        }
        plan
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        self.cut(object)?;
        Ok(Verdict::Keep)
    }
}

impl ServiceTopology {
    fn cut(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let Some(format) = Format::of(object) else {
            return Ok(());
        };
        let Some(service) = format.service(object) else {
            return Ok(());
        };
        let Some(keys) = service.annotation(TOPOLOGY_KEYS).as_deref().and_then(TopologyKey::parse) else {
            return Ok(());
        };

        // Without known members, pool keys keep all endpoints.
        let members = if self.pool_topology && keys.contains(&TopologyKey::Pool) { self.members.get()? } else { None };
        let near = Near { node: self.members.pool().node(), members: members.as_deref() };
        let key = match (keys.as_slice(), format) {
            ([], _) => return Ok(()),
            ([key], _) => *key,
            _ if !self.preference_lists => return Ok(()),
            (keys, Format::Endpoints) => return subsets::cut(object, keys, near),
            (keys, Format::Slice(nodes)) => {
                let position = self.choose(object, nodes, &service, keys, near);
                keys.get(position).copied().unwrap_or(TopologyKey::All)
            }
        };
        near.log_kept(key);
        match (key, near.members) {
            (TopologyKey::Node, _) => format.cut(object, &self.this_node)?,
            (TopologyKey::Pool, Some(members)) => format.cut(object, members.name_set())?,
            (TopologyKey::Pool, None) | (TopologyKey::All, _) => true,
        };
        Ok(())
    }

    /// Returns the position of the key for a slice, chosen over all slices of the Service.
    fn choose(
        &self,
        slice: &Object<'_>,
        nodes: &Path,
        service: &Object<'_>,
        keys: &[TopologyKey],
        near: Near<'_>,
    ) -> usize {
        let (family, ports) = (slice.text(&ADDRESS_TYPE).unwrap_or_default(), choice::port_names(slice));
        let all = cluster::find(SLICES, slice.namespace().as_deref(), &format!("{SERVICE_LABEL}={}", service.name()));
        let known = match all.at(0).as_ref().and_then(Format::of) {
            Some(Format::Slice(nodes)) => {
                let members = near.members.map_or(0, PoolNodes::fingerprint);
                let [nodes_now, ready, families, names] =
                    [nodes, &READY, &ADDRESS_TYPE, &PORT_NAMES].map(|at| all.fingerprint(at));
                let inputs = [nodes_now, ready, families, names, service.fingerprint(&TOPOLOGY), members];
                let choices = self.choices.get(inputs, || {
                    let mut groups = Groups::default();
                    (0..all.count())
                        .filter_map(|index| all.at(index))
                        .for_each(|slice| groups.add_slice(&slice, nodes, near));
                    Rc::new(groups.choose(keys, near))
                });
                choices.position(&family, &ports)
            }
            _ => None,
        };
        // The lookup lags behind, so that for some group only this slice is known.
        known
            .or_else(|| {
                let mut groups = Groups::default();
                groups.add_slice(slice, nodes, near);
                groups.choose(keys, near).position(&family, &ports)
            })
            .unwrap_or_default()
    }
}

weir_filter::export!(ServiceTopology);
weir_filter::cases!(ServiceTopology);
