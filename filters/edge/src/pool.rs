//! The local node's pool and its members. Both may change while the daemon runs, so they are looked up for each object.
//! A set of the members is kept until they change.

use std::rc::Rc;

use serde::Deserialize;
use weir_filter::cluster::Presence;
use weir_filter::{Error, Lookup, Memo, Object, Path, StringSet, cluster, log, node};

use crate::names::Names;

/// The label in which a Node names its pool.
const POOL_LABEL: &str = "apps.openyurt.io/nodepool";
/// The label in which a NodeBucket names its pool.
const BUCKET_LABEL: &str = "openyurt.io/pool-name";

const NODES: &str = "nodes";
const NODE_POOLS: &str = "nodepools.apps.openyurt.io";
const NODE_BUCKETS: &str = "nodebuckets.apps.openyurt.io";

static POOL_NODES: Path = Path::new("status.nodes[*]");
static BUCKET_NODES: Path = Path::new("nodes[*].name");
static NODE_NAME: Path = Path::new("metadata.name");

/// The pool of the local node.
#[derive(Debug)]
pub struct LocalPool {
    node: String,
    /// The setting `nodePool`.
    fixed: Option<String>,
}

impl LocalPool {
    /// Creates the pool from the setting `nodePool`. Without it, the local Node's label names the pool.
    pub fn configure(node_pool: Option<String>) -> Result<Self, Error> {
        if let Some(pool) = &node_pool
            && !is_label_value(pool)
        {
            return Err(Error::setting("nodePool", format!("`{pool}` is not a valid node pool name")));
        }
        Ok(Self { node: node::name(), fixed: node_pool })
    }

    /// Returns the local node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the lookup for [`LocalPool::name`] and [`LocalPool::node_annotation`].
    pub fn node_lookup(&self) -> Lookup {
        Lookup::of(NODES).named(&self.node).metadata_only()
    }

    /// Returns the lookup for [`LocalPool::name`], or none if a setting names the pool.
    pub fn lookup(&self) -> Option<Lookup> {
        self.fixed.is_none().then(|| self.node_lookup())
    }

    /// Returns the lookup for [`LocalPool::pool_annotation`].
    pub fn pool_lookup(&self) -> Lookup {
        let pools = Lookup::of(NODE_POOLS).versions(["v1beta2", "v1beta1"]).optional();
        match &self.fixed {
            Some(pool) => pools.named(pool),
            None => pools,
        }
    }

    /// Returns the pool's name, or none if the node is in no pool. A Node that is gone keeps the pool that it last had. It
    /// is an error if the daemon cannot see the Node and never has: the node may be in a pool.
    pub fn name(&self) -> Result<Option<String>, Error> {
        if self.fixed.is_some() {
            return Ok(self.fixed.clone());
        }
        let pool = self.local_node()?.and_then(|node| node.label(POOL_LABEL));
        Ok(pool.filter(|pool| !pool.is_empty()))
    }

    /// Returns an annotation of the local Node, as it was last known.
    pub fn node_annotation(&self, key: &str) -> Result<Option<String>, Error> {
        Ok(self.local_node()?.and_then(|node| node.annotation(key)))
    }

    /// Returns an annotation of the local pool's NodePool, as it was last known.
    pub fn pool_annotation(&self, key: &str) -> Result<Option<String>, Error> {
        let Some(pool) = self.name()? else { return Ok(None) };
        Ok(cluster::last_known(NODE_POOLS, None, &pool).and_then(|pool| pool.annotation(key)))
    }

    fn local_node(&self) -> Result<Option<Object<'static>>, Error> {
        let node = cluster::last_known(NODES, None, &self.node);
        if node.is_none()
            && matches!(cluster::presence_of(NODES, None, &self.node), Presence::NotServed | Presence::NotKnown)
        {
            return Err(Error::new(format!("the Node {} is not known, and neither is its node pool", self.node)));
        }
        Ok(node)
    }
}

/// Returns whether the text is a valid, non-empty label value.
fn is_label_value(text: &str) -> bool {
    let plain = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && plain(text.bytes().next())
        && plain(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The source of a pool's members: the setting `poolSource`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSource {
    /// `status.nodes` of the NodePool.
    #[default]
    NodePools,
    /// `nodes[].name` of the pool's NodeBuckets.
    NodeBuckets,
    /// The Nodes with the pool's label, for clusters without OpenYurt's kinds.
    NodeLabels,
}

/// The nodes that a [`PoolNodes`] names in its description.
const DESCRIBED: usize = 8;

/// The nodes of one pool.
#[derive(Debug)]
pub struct PoolNodes {
    /// The pool with its source and first members, in an operator's words.
    description: String,
    names: Names,
    name_set: StringSet,
    fingerprint: u64,
}

impl PoolNodes {
    /// Returns whether the node is a member.
    pub fn contains(&self, node: &str) -> bool {
        self.names.contains(node)
    }

    /// Returns the members' names as a set for [`weir_filter::Object::retain_in`].
    pub fn name_set(&self) -> &StringSet {
        &self.name_set
    }

    /// Logs that endpoints on the members are kept.
    pub fn log_kept(&self) {
        log::debug(self.description.as_str());
    }

    /// Returns a hash of the members: equal members have equal fingerprints.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// The members of the local node's pool.
#[derive(Debug)]
pub struct PoolMembers {
    pool: LocalPool,
    source: PoolSource,
    memo: Memo<(u64, String), Rc<PoolNodes>>,
}

impl PoolMembers {
    /// Creates the members from the settings `nodePool` and `poolSource`.
    pub fn configure(node_pool: Option<String>, source: PoolSource) -> Result<Self, Error> {
        Ok(Self { pool: LocalPool::configure(node_pool)?, source, memo: Memo::new() })
    }

    /// Returns the pool.
    pub fn pool(&self) -> &LocalPool {
        &self.pool
    }

    /// Returns the lookups for [`PoolMembers::get`].
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

    /// Returns the members. Returns none if the node is in no pool or the pool does not exist. An existing pool may
    /// have no members. A pool without its NodePool or NodeBuckets keeps its last members. It is an error if the
    /// daemon cannot see whether the pool exists.
    pub fn get(&self) -> Result<Option<Rc<PoolNodes>>, Error> {
        match self.pool.name()? {
            Some(pool) => self.of(pool),
            None => Ok(None),
        }
    }

    fn of(&self, pool: String) -> Result<Option<Rc<PoolNodes>>, Error> {
        let (resource, label, names) = match self.source {
            PoolSource::NodePools => {
                let Some(known) = cluster::last_known(NODE_POOLS, None, &pool) else {
                    return absent(NODE_POOLS, &pool);
                };
                let members = (known.fingerprint(&POOL_NODES), pool);
                return Ok(Some(self.keep(members, None, || known.column(&POOL_NODES))));
            }
            PoolSource::NodeBuckets => (NODE_BUCKETS, BUCKET_LABEL, &BUCKET_NODES),
            PoolSource::NodeLabels => (NODES, POOL_LABEL, &NODE_NAME),
        };
        let selector = format!("{label}={pool}");
        // The local Node's label has named the pool, also if the Node is gone.
        let is_member = matches!(self.source, PoolSource::NodeLabels) && self.pool.fixed.is_none();
        let found = match is_member {
            // Nodes that are gone have no endpoints.
            true => cluster::find(resource, None, &selector),
            false => cluster::find_last_known(resource, None, &selector),
        };
        let local = is_member.then_some(self.pool.node.as_str());
        if found.count() == 0 {
            let unknown = absent(resource, &pool)?;
            if local.is_none() {
                return Ok(unknown);
            }
        }
        Ok(Some(self.keep((found.fingerprint(names), pool), local, || found.column(names))))
    }

    fn keep(
        &self,
        (fingerprint, pool): (u64, String),
        local: Option<&str>,
        names: impl FnOnce() -> weir_filter::Column,
    ) -> Rc<PoolNodes> {
        self.memo.get((fingerprint, pool.clone()), || {
            let names = names();
            // A Node that has its label is found among the others.
            let missing = local.filter(|local| !names.iter().flatten().any(|name| name == *local));
            let all: Vec<&str> = names.iter().flatten().chain(missing).collect();
            Rc::new(PoolNodes {
                description: self.describe(&pool, &all),
                names: all.iter().copied().collect(),
                name_set: all.iter().copied().collect(),
                fingerprint,
            })
        })
    }

    fn describe(&self, pool: &str, members: &[&str]) -> String {
        let source = match self.source {
            PoolSource::NodePools => "NodePool",
            PoolSource::NodeBuckets => "NodeBuckets",
            PoolSource::NodeLabels => "labels of the Nodes",
        };
        // By hand: `format!` and `join` would be 2 KB of the module.
        let mut text = ["keeps endpoints on the nodes of node pool ", pool, " (", source].concat();
        for (count, member) in members.iter().enumerate() {
            if count == DESCRIBED {
                text.push_str(", …");
                break;
            }
            text.push_str(if count == 0 { ": " } else { ", " });
            text.push_str(member);
        }
        text.push(')');
        text
    }
}

/// Nothing was found of a pool: it does not exist, unless the daemon cannot see that.
fn absent(resource: &str, pool: &str) -> Result<Option<Rc<PoolNodes>>, Error> {
    match cluster::presence_of(resource, None, pool) {
        Presence::NotServed | Presence::NotKnown => {
            Err(Error::new(format!("the members of node pool {pool} are not known: {resource} cannot be read")))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_document::Document;
    use weir_filter::native::{Environment, Node, Runner};
    use weir_filter::{Filter, Plan, Verdict};

    use super::*;

    static DESCRIPTION: Path = Path::new("metadata.annotations.description");

    /// Writes the description of the local pool into the object.
    struct Described(PoolMembers);

    impl Filter for Described {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, Error> {
            PoolMembers::configure(None, PoolSource::NodeLabels).map(Self)
        }

        fn plan(&self) -> Plan {
            Plan::matching(["kube-proxy/services"]).with_all(self.0.lookups())
        }

        fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
            let members = self.0.get()?;
            object.set(&DESCRIPTION, members.map_or(String::new(), |members| members.description.clone()))?;
            Ok(Verdict::Keep)
        }
    }

    fn node(name: &str, pool: &str) -> Document {
        let labels = format!(r#"{{"{POOL_LABEL}":"{pool}"}}"#);
        let metadata = format!(r#"{{"name":"{name}","labels":{labels}}}"#);
        Document::json(Bytes::from(format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{metadata}}}"#)))
    }

    #[test]
    fn the_local_node_is_named_once_among_the_members() {
        let cluster = vec![node("edge-a", "p"), node("edge-b", "p"), node("edge-c", "q")];
        let node = Node { name: "edge-a".to_owned(), ..Node::default() };
        let runner = Runner::<Described>::new("{}", &Environment { node, cluster }).unwrap();
        let mut service =
            Document::json(Bytes::from_static(br#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}"#));
        assert_eq!(runner.filter(&mut service).unwrap(), Verdict::Keep);
        let text = String::from_utf8_lossy(service.bytes());
        assert!(text.contains("node pool p (labels of the Nodes: edge-a, edge-b)"), "{text}");
    }
}
