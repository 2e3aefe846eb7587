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
//! The filter chooses the key of a list once per Service, over all its slices. If no key leaves a ready endpoint, the last
//! key applies. A list with an unknown key counts as "anything else". A pool key keeps all endpoints if the node is in no
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

use serde::Deserialize;
use weir_edge::addresses::{Format, SERVICE_LABEL};
use weir_edge::pool::{PoolMembers, PoolNodes, PoolSource};
use weir_filter::{Column, Error, Filter, Lookup, Memo, Object, Path, Plan, StringSet, Verdict, cluster};

const TOPOLOGY_KEYS: &str = "openyurt.io/topologyKeys";
const SLICES: &str = "endpointslices.discovery.k8s.io";

static TOPOLOGY: Path = Path::new("metadata.annotations['openyurt.io/topologyKeys']");
static READY: Path = Path::new("endpoints[*].conditions.ready");

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
    /// The index of the chosen key in a Service's list. The key of an entry is the fingerprint of everything that the
    /// choice depends on.
    choices: Memo<[u64; 4], usize>,
}

/// A key of the annotation.
#[derive(Clone, Copy, PartialEq)]
enum TopologyKey {
    Node,
    Pool,
    All,
}

impl TopologyKey {
    /// Parses the keys of an annotation. Returns none if one is unknown.
    fn parse(annotation: &str) -> Option<Vec<Self>> {
        let key = |text: &str| match text {
            "kubernetes.io/hostname" => Some(Self::Node),
            "openyurt.io/nodepool" | "openyurt.io/zone" | "kubernetes.io/zone" => Some(Self::Pool),
            "*" => Some(Self::All),
            _ => None,
        };
        if !annotation.contains(',') {
            return key(annotation).map(|key| vec![key]);
        }
        annotation.split(',').map(str::trim).filter(|item| !item.is_empty()).map(key).collect()
    }
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
        let members = if self.pool_topology && keys.contains(&TopologyKey::Pool) { self.members.get() } else { None };
        let key = match keys.as_slice() {
            [] => return Ok(()),
            [key] => *key,
            _ if !self.preference_lists => return Ok(()),
            keys => {
                let chosen = self.choose(
                    object,
                    format,
                    &service.name(),
                    service.fingerprint(&TOPOLOGY),
                    keys,
                    members.as_deref(),
                );
                keys.get(chosen).copied().unwrap_or(TopologyKey::All)
            }
        };
        match (key, members) {
            (TopologyKey::Node, _) => format.cut(object, &self.this_node)?,
            (TopologyKey::Pool, Some(members)) => format.cut(object, members.name_set())?,
            (TopologyKey::Pool, None) | (TopologyKey::All, _) => true,
        };
        Ok(())
    }

    /// Returns the index of the first key that leaves a ready endpoint, over all endpoints of the Service.
    fn choose(
        &self,
        object: &Object<'_>,
        format: Format,
        service: &str,
        list: u64,
        keys: &[TopologyKey],
        members: Option<&PoolNodes>,
    ) -> usize {
        if let Format::Endpoints = format {
            // One Endpoints object holds all endpoints of the Service, and its addresses are the ready ones.
            return self.first(keys, members, &object.column(format.nodes()), None);
        }
        let all = cluster::find(SLICES, object.namespace().as_deref(), &format!("{SERVICE_LABEL}={service}"));
        let Some(Format::Slice(nodes)) = all.at(0).as_ref().and_then(Format::of) else {
            // The lookup lags behind, so only this slice is known.
            return self.first(keys, members, &object.column(format.nodes()), Some(&object.column(&READY)));
        };
        let key = [all.fingerprint(nodes), all.fingerprint(&READY), list, members.map_or(0, PoolNodes::fingerprint)];
        self.choices.get(key, || self.first(keys, members, &all.column(nodes), Some(&all.column(&READY))))
    }

    fn first(
        &self,
        keys: &[TopologyKey],
        members: Option<&PoolNodes>,
        nodes: &Column,
        ready: Option<&Column>,
    ) -> usize {
        let node = self.members.pool().node();
        let mut ready_nodes = Vec::with_capacity(nodes.len());
        match ready {
            Some(ready) => {
                let rows = nodes.iter().zip(ready.iter()).filter(|(_, ready)| *ready != Some("false"));
                ready_nodes.extend(rows.filter_map(|(node, _)| node));
            }
            None => ready_nodes.extend(nodes.iter().flatten()),
        }
        let leaves_ready = |key: &TopologyKey| match (key, members) {
            (TopologyKey::Node, _) => ready_nodes.contains(&node),
            (TopologyKey::Pool, Some(members)) => ready_nodes.iter().any(|node| members.contains(node)),
            (TopologyKey::Pool, None) | (TopologyKey::All, _) => true,
        };
        keys.iter().position(leaves_ready).unwrap_or(keys.len().saturating_sub(1))
    }
}

weir_filter::export!(ServiceTopology);
weir_filter::cases!(ServiceTopology);
