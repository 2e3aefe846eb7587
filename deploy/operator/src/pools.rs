//! The Nodes and node pools of the cluster: which pools exist, and which nodes and pools ask that their pods stay.
//!
//! Only metadata is read. Both controllers share it, and a counter notifies them of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::Stream;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};

use crate::changes::Changes;
use crate::config::PoolSource;
use crate::follow::Follower;
use crate::health::{Health, explain};

/// The parts in `/readyz`.
pub const NODES: &str = "nodes";
/// The part of NodePools in `/readyz`.
pub const POOLS: &str = "nodepools";

/// The API group of NodePools.
const GROUP: &str = "apps.openyurt.io";
/// The versions of NodePool, the newest first.
const VERSIONS: [&str; 3] = ["v1beta2", "v1beta1", "v1alpha1"];
/// The page of a list.
const PAGE: u32 = 200;

/// The Nodes and pools that are known. Clones share them.
#[derive(Clone)]
pub struct Inventory {
    nodes: Store<PartialObjectMeta<Node>>,
    pools: Option<Store<DynamicMeta>>,
    pool_label: Arc<str>,
    changed: Changes,
}

type DynamicMeta = PartialObjectMeta<DynamicObject>;

/// Fills an inventory.
pub struct InventoryWatch {
    client: Client,
    nodes: Writer<PartialObjectMeta<Node>>,
    pools: Option<Writer<DynamicMeta>>,
    changed: Changes,
}

/// The labels and annotations of a Node with those of its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMeta {
    /// The annotations and labels of the Node: annotations win.
    pub own: BTreeMap<String, String>,
    /// The annotations and labels of its NodePool; empty without one.
    pub pool: BTreeMap<String, String>,
}

impl Inventory {
    /// An empty inventory, and what fills it.
    #[must_use]
    pub fn new(client: Client, source: PoolSource, pool_label: &str) -> (Self, InventoryWatch) {
        let (nodes, nodes_writer) = store();
        let (pools, pools_writer) = match source {
            PoolSource::NodeLabels => (None, None),
            PoolSource::NodePools => {
                let writer = Writer::new(resource("v1beta2"));
                (Some(writer.as_reader()), Some(writer))
            }
        };
        let changed = Changes::default();
        let inventory = Self { nodes, pools, pool_label: pool_label.into(), changed: changed.clone() };
        (inventory, InventoryWatch { client, nodes: nodes_writer, pools: pools_writer, changed })
    }

    /// Waits until all Nodes and pools are known.
    pub async fn ready(&self) {
        // The writers live as long as the process.
        let _ = self.nodes.wait_until_ready().await;
        if let Some(pools) = &self.pools {
            let _ = pools.wait_until_ready().await;
        }
    }

    /// Yields an item for each change.
    pub fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        self.changed.stream()
    }

    /// Whether there is such a pool.
    #[must_use]
    pub fn has_pool(&self, name: &str) -> bool {
        match &self.pools {
            Some(pools) => pools.find(|pool| pool.name_any() == name).is_some(),
            None => self.has_nodes(name),
        }
    }

    /// Whether a Node has the label of the pool.
    #[must_use]
    pub fn has_nodes(&self, pool: &str) -> bool {
        self.nodes.find(|node| node.labels().get(&*self.pool_label).is_some_and(|label| label == pool)).is_some()
    }

    /// A Node as the object of an Event; `None` for an unknown one.
    #[must_use]
    pub fn node_reference(&self, name: &str) -> Option<ObjectReference> {
        Some(self.nodes.get(&ObjectRef::new(name))?.object_ref(&()))
    }

    /// What a Node and its pool say; `None` for an unknown Node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeMeta> {
        let node = self.nodes.get(&ObjectRef::new(name))?;
        let pool = node.labels().get(&*self.pool_label).zip(self.pools.as_ref());
        let pool = pool.and_then(|(name, pools)| pools.find(|pool| pool.name_any() == *name));
        let both = |labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>| {
            labels.iter().chain(annotations).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let own = both(node.labels(), node.annotations());
        let pool = pool.map(|pool| both(pool.labels(), pool.annotations())).unwrap_or_default();
        Some(NodeMeta { own, pool })
    }
}

impl InventoryWatch {
    /// Fills the inventory for ever.
    pub async fn run(self, health: &Health) {
        let changes = &self.changed;
        let nodes = watcher(Api::<PartialObjectMeta<Node>>::all(self.client.clone()), config());
        let follower = Follower { part: NODES, resource: "nodes", changes, health };
        let nodes = follower.follow(nodes, self.nodes, trim, |_| true);
        let Some(writer) = self.pools else { return nodes.await };
        let pools = async {
            let resource = resource(served_version(&self.client, health).await);
            let api: Api<DynamicMeta> = Api::all_with(self.client.clone(), &resource);
            let follower = Follower { part: POOLS, resource: "nodepools.apps.openyurt.io", changes, health };
            follower.follow(watcher(api, config()), writer, trim, |_| true).await;
        };
        tokio::join!(nodes, pools);
    }
}

fn trim<K: kube::Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Waits until the API server serves NodePools, and returns the version to read them in.
async fn served_version(client: &Client, health: &Health) -> &'static str {
    let mut pauses = DefaultBackoff::default();
    loop {
        let mut problem = None;
        for version in VERSIONS {
            match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
                Ok(list) if list.resources.iter().any(|resource| resource.name == "nodepools") => return version,
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Ok(_) => {}
                Err(error) => problem = Some(explain(&error)),
            }
        }
        let missing = "the API server has no NodePools: install OpenYurt's definition, or use --pool-source=nodelabels";
        health.fails(POOLS, problem.unwrap_or_else(|| missing.to_owned()));
        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
    }
}

fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn resource(version: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: "NodePool".to_owned(),
        plural: "nodepools".to_owned(),
    }
}
