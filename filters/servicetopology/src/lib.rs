//! # servicetopology: a Service's endpoints near this node
//!
//! A client of this node sees, of each Service that asks for it, only the endpoints on the same node or in the same
//! node pool. The Service asks with the annotation `openyurt.io/topologyKeys`:
//!
//! | value | endpoints that stay |
//! |---|---|
//! | `kubernetes.io/hostname` | on this node |
//! | `openyurt.io/nodepool`, `openyurt.io/zone`, `kubernetes.io/zone` | on the nodes of this node's pool |
//! | a list, as `kubernetes.io/hostname, openyurt.io/nodepool, *` | those of the first key that leaves a ready one; `*` is all |
//! | anything else, or none | all |
//!
//! Of a list, the key is chosen over all slices of the Service; if no key leaves a ready endpoint, the last one holds.
//! A list with a key that is not in this table is "anything else". A node in no pool, or in a pool that does not exist,
//! keeps all endpoints where the pool would decide. Endpoints that name no node go whenever a key decides. Slices stay,
//! if need be empty.
//!
//! ```yaml
//! - name: servicetopology
//!   module: servicetopology.wasm
//!   settings:
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     poolSource: nodepools      # or nodebuckets, nodelabels: where the pool's members are written
//!     poolTopology: true         # false: keys for the pool keep all endpoints
//!     preferenceLists: true      # false: lists are "anything else", and slices need not be looked up, which costs
//!                                # the memory of all slices of the cluster
//! ```

use serde::Deserialize;
use weir_edge::addresses::{SERVICE_LABEL, Shape};
use weir_edge::pool::{Members, PoolMembers, PoolSource};
use weir_filter::{Column, Error, Filter, Lookup, Memo, Object, Path, Plan, StringSet, Verdict, cluster};

const TOPOLOGY_KEYS: &str = "openyurt.io/topologyKeys";
const SLICES: &str = "endpointslices.discovery.k8s.io";

static TOPOLOGY: Path = Path::new("metadata.annotations['openyurt.io/topologyKeys']");
static READY: Path = Path::new("endpoints[*].conditions.ready");

/// The settings: see the crate's documentation.
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
    /// This node alone.
    this_node: StringSet,
    pool_topology: bool,
    preference_lists: bool,
    /// The position of the chosen key in a Service's list, by all that it was chosen from.
    choices: Memo<[u64; 4], usize>,
}

/// What one key of the annotation asks for.
#[derive(Clone, Copy, PartialEq)]
enum Key {
    Node,
    Pool,
    All,
}

impl Key {
    /// The keys of an annotation, if they are all known.
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
        let Some(shape) = Shape::of(object) else {
            return Ok(());
        };
        let Some(service) = shape.service(object) else {
            return Ok(());
        };
        let Some(keys) = service.annotation(TOPOLOGY_KEYS).as_deref().and_then(Key::parse) else {
            return Ok(());
        };

        // A pool that is not known, or not to be looked at, restricts nothing.
        let members = if self.pool_topology && keys.contains(&Key::Pool) { self.members.get() } else { None };
        let key = match keys.as_slice() {
            [] => return Ok(()),
            [key] => *key,
            _ if !self.preference_lists => return Ok(()),
            keys => {
                let chosen = self.choose(
                    object,
                    shape,
                    &service.name(),
                    service.fingerprint(&TOPOLOGY),
                    keys,
                    members.as_deref(),
                );
                keys.get(chosen).copied().unwrap_or(Key::All)
            }
        };
        match (key, members) {
            (Key::Node, _) => shape.cut(object, &self.this_node)?,
            (Key::Pool, Some(members)) => shape.cut(object, members.name_set())?,
            (Key::Pool, None) | (Key::All, _) => true,
        };
        Ok(())
    }

    /// The position of the first key that leaves a ready endpoint, over all endpoints of the Service.
    fn choose(
        &self,
        object: &Object<'_>,
        shape: Shape,
        service: &str,
        list: u64,
        keys: &[Key],
        members: Option<&Members>,
    ) -> usize {
        if let Shape::Endpoints = shape {
            // One Endpoints is the whole Service, and its addresses are the ready ones.
            return self.first(keys, members, &object.column(shape.nodes()), None);
        }
        let all = cluster::find(SLICES, object.namespace().as_deref(), &format!("{SERVICE_LABEL}={service}"));
        let Some(Shape::Slice(nodes)) = all.at(0).as_ref().and_then(Shape::of) else {
            // The lookup lags behind: this slice is all that is known.
            return self.first(keys, members, &object.column(shape.nodes()), Some(&object.column(&READY)));
        };
        let key = [all.fingerprint(nodes), all.fingerprint(&READY), list, members.map_or(0, Members::fingerprint)];
        self.choices.get(key, || self.first(keys, members, &all.column(nodes), Some(&all.column(&READY))))
    }

    fn first(&self, keys: &[Key], members: Option<&Members>, nodes: &Column, ready: Option<&Column>) -> usize {
        let node = self.members.pool().node();
        let mut ready_nodes = Vec::with_capacity(nodes.len());
        match ready {
            Some(ready) => {
                let rows = nodes.iter().zip(ready.iter()).filter(|(_, ready)| *ready != Some("false"));
                ready_nodes.extend(rows.filter_map(|(node, _)| node));
            }
            None => ready_nodes.extend(nodes.iter().flatten()),
        }
        let leaves_ready = |key: &Key| match (key, members) {
            (Key::Node, _) => ready_nodes.contains(&node),
            (Key::Pool, Some(members)) => ready_nodes.iter().any(|node| members.contains(node)),
            (Key::Pool, None) | (Key::All, _) => true,
        };
        keys.iter().position(leaves_ready).unwrap_or(keys.len().saturating_sub(1))
    }
}

weir_filter::export!(ServiceTopology);
weir_filter::cases!(ServiceTopology);
