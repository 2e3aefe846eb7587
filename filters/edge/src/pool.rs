//! The local node's pool and its members. Both may change while the daemon runs, so that both are looked up for each
//! object; of the members, a hash set is kept for as long as they are the same.

use std::rc::Rc;

use serde::Deserialize;
use weir_filter::{Error, Lookup, Memo, Path, StringSet, cluster, node};

use crate::names::Names;

/// The label that says which pool a Node is in.
const POOL_LABEL: &str = "apps.openyurt.io/nodepool";
/// The label that says which pool a NodeBucket holds nodes of.
const BUCKET_LABEL: &str = "openyurt.io/pool-name";

const NODES: &str = "nodes";
const NODE_POOLS: &str = "nodepools.apps.openyurt.io";
const NODE_BUCKETS: &str = "nodebuckets.apps.openyurt.io";

static POOL_NODES: Path = Path::new("status.nodes[*]");
static BUCKET_NODES: Path = Path::new("nodes[*].name");
static NODE_NAME: Path = Path::new("metadata.name");

/// Which pool the local node is in.
#[derive(Debug)]
pub struct LocalPool {
    node: String,
    /// The setting `nodePool`.
    fixed: Option<String>,
}

impl LocalPool {
    /// From the setting `nodePool`; without it, the local Node's label decides.
    pub fn configure(node_pool: Option<String>) -> Result<Self, Error> {
        if let Some(pool) = &node_pool
            && !is_label_value(pool)
        {
            return Err(Error::setting("nodePool", format!("`{pool}` is no name of a node pool")));
        }
        Ok(Self { node: node::name(), fixed: node_pool })
    }

    /// The local node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What [`LocalPool::name`] and [`LocalPool::node_annotation`] look up.
    pub fn node_lookup(&self) -> Lookup {
        Lookup::of(NODES).named(&self.node).metadata_only()
    }

    /// What [`LocalPool::name`] looks up: nothing if the pool is a setting.
    pub fn lookup(&self) -> Option<Lookup> {
        self.fixed.is_none().then(|| self.node_lookup())
    }

    /// What [`LocalPool::pool_annotation`] looks up.
    pub fn pool_lookup(&self) -> Lookup {
        let pools = Lookup::of(NODE_POOLS).versions(["v1beta2", "v1beta1"]).optional();
        match &self.fixed {
            Some(pool) => pools.named(pool),
            None => pools,
        }
    }

    /// The pool's name; none for an orphan node.
    pub fn name(&self) -> Option<String> {
        if self.fixed.is_some() {
            return self.fixed.clone();
        }
        let pool = cluster::get(NODES, None, &self.node)?.label(POOL_LABEL)?;
        if pool.is_empty() { None } else { Some(pool) }
    }

    /// An annotation of the local Node.
    pub fn node_annotation(&self, key: &str) -> Option<String> {
        cluster::get(NODES, None, &self.node)?.annotation(key)
    }

    /// An annotation of the local pool's NodePool.
    pub fn pool_annotation(&self, key: &str) -> Option<String> {
        cluster::get(NODE_POOLS, None, &self.name()?)?.annotation(key)
    }
}

/// Whether Kubernetes takes the text as a label's value (an empty one is not meant).
fn is_label_value(text: &str) -> bool {
    let plain = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && plain(text.bytes().next())
        && plain(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Where a pool's members are written: the setting `poolSource`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSource {
    /// `status.nodes` of the NodePool.
    #[default]
    NodePools,
    /// `nodes[].name` of the pool's NodeBuckets.
    NodeBuckets,
    /// The Nodes that carry the pool's label: for a cluster without OpenYurt's kinds.
    NodeLabels,
}

/// The nodes of one pool.
#[derive(Debug)]
pub struct Members {
    names: Names,
    name_set: StringSet,
    fingerprint: u64,
}

impl Members {
    /// Whether the node is one of them.
    pub fn contains(&self, node: &str) -> bool {
        self.names.contains(node)
    }

    /// Their names, for cutting what is on other nodes.
    pub fn name_set(&self) -> &StringSet {
        &self.name_set
    }

    /// Equal members, equal number: for what is derived from them.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// The members of the local node's pool.
#[derive(Debug)]
pub struct PoolMembers {
    pool: LocalPool,
    source: PoolSource,
    memo: Memo<u64, Rc<Members>>,
}

impl PoolMembers {
    /// From the settings `nodePool` and `poolSource`.
    pub fn configure(node_pool: Option<String>, source: PoolSource) -> Result<Self, Error> {
        Ok(Self { pool: LocalPool::configure(node_pool)?, source, memo: Memo::new() })
    }

    /// The pool whose members these are.
    pub fn pool(&self) -> &LocalPool {
        &self.pool
    }

    /// What [`PoolMembers::get`] looks up.
    pub fn lookups(&self) -> Vec<Lookup> {
        let selector = |label: &str| match &self.pool.fixed {
            Some(pool) => format!("{label}={pool}"),
            None => label.to_owned(),
        };
        let members = match self.source {
            PoolSource::NodePools => self.pool.pool_lookup(),
            PoolSource::NodeBuckets => {
                Lookup::of(NODE_BUCKETS).versions(["v1alpha1"]).selected(selector(BUCKET_LABEL)).optional()
            }
            PoolSource::NodeLabels => Lookup::of(NODES).selected(selector(POOL_LABEL)).metadata_only(),
        };
        self.pool.lookup().into_iter().chain([members]).collect()
    }

    /// The members; none for an orphan node, and for a pool that is not found. A pool may be there and have none.
    pub fn get(&self) -> Option<Rc<Members>> {
        let pool = self.pool.name()?;
        let (resource, label, names) = match self.source {
            PoolSource::NodePools => {
                let pool = cluster::get(NODE_POOLS, None, &pool)?;
                let fingerprint = pool.fingerprint(&POOL_NODES);
                return Some(self.keep(fingerprint, || pool.column(&POOL_NODES)));
            }
            PoolSource::NodeBuckets => (NODE_BUCKETS, BUCKET_LABEL, &BUCKET_NODES),
            PoolSource::NodeLabels => (NODES, POOL_LABEL, &NODE_NAME),
        };
        let found = cluster::find(resource, None, &format!("{label}={pool}"));
        if found.count() == 0 {
            return None;
        }
        Some(self.keep(found.fingerprint(names), || found.column(names)))
    }

    fn keep(&self, fingerprint: u64, names: impl FnOnce() -> weir_filter::Column) -> Rc<Members> {
        self.memo.get(fingerprint, || {
            let names = names();
            let all = || names.iter().flatten();
            Rc::new(Members { names: all().collect(), name_set: all().collect(), fingerprint })
        })
    }
}
