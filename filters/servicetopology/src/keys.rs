//! The keys of the annotation, and which of them an endpoint satisfies.

use weir_edge::pool::PoolNodes;
use weir_filter::log;

/// A key of the annotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TopologyKey {
    /// The endpoints on this node.
    Node,
    /// The endpoints on the nodes of this node's pool.
    Pool,
    /// All endpoints.
    All,
}

impl TopologyKey {
    /// Parses the keys of an annotation. Returns none if one is unknown. A list contains each key where it first stands,
    /// and its last key again at its end, because that one applies if no key leaves a ready endpoint. It has four keys at
    /// most, however long the annotation is.
    pub(crate) fn parse(annotation: &str) -> Option<Vec<Self>> {
        let key = |text: &str| match text {
            "kubernetes.io/hostname" => Some(Self::Node),
            "openyurt.io/nodepool" | "openyurt.io/zone" | "kubernetes.io/zone" => Some(Self::Pool),
            "*" => Some(Self::All),
            _ => None,
        };
        if !annotation.contains(',') {
            return key(annotation).map(|key| vec![key]);
        }
        let mut keys = Vec::new();
        let mut last = None;
        for item in annotation.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let key = key(item)?;
            if !keys.contains(&key) {
                keys.push(key);
            }
            last = Some(key);
        }
        if keys.last() != last.as_ref() {
            keys.extend(last);
        }
        Some(keys)
    }
}

/// This node and the members of its pool, which are none if a pool key keeps all endpoints.
#[derive(Clone, Copy)]
pub(crate) struct Near<'a> {
    pub(crate) node: &'a str,
    pub(crate) members: Option<&'a PoolNodes>,
}

impl Near<'_> {
    /// Returns whether a key keeps an endpoint on this node, or on none.
    pub(crate) fn keeps(&self, key: TopologyKey, node: Option<&str>) -> bool {
        match (key, self.members) {
            (TopologyKey::Node, _) => node == Some(self.node),
            (TopologyKey::Pool, Some(members)) => node.is_some_and(|node| members.contains(node)),
            (TopologyKey::Pool, None) | (TopologyKey::All, _) => true,
        }
    }

    /// Logs which endpoints a key keeps.
    pub(crate) fn log_kept(&self, key: TopologyKey) {
        match (key, self.members) {
            (TopologyKey::Node, _) => log::debug("keeps endpoints on this node"),
            (TopologyKey::Pool, Some(members)) => members.log_kept(),
            (TopologyKey::Pool, None) => log::debug("keeps all endpoints: no node pool of this node applies"),
            (TopologyKey::All, _) => log::debug("keeps all endpoints"),
        }
    }

    /// Returns whether a key keeps all endpoints.
    pub(crate) fn keeps_all(&self, key: TopologyKey) -> bool {
        key == TopologyKey::All || (key == TopologyKey::Pool && self.members.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::TopologyKey::{All, Node, Pool};
    use super::*;

    #[test]
    fn a_list_has_each_key_once_and_its_last_key_at_the_end() {
        for (annotation, keys) in [
            ("kubernetes.io/hostname,openyurt.io/nodepool,*", vec![Node, Pool, All]),
            ("openyurt.io/nodepool,openyurt.io/zone,kubernetes.io/zone", vec![Pool]),
            ("openyurt.io/nodepool,kubernetes.io/hostname,openyurt.io/nodepool", vec![Pool, Node, Pool]),
            ("*,*,kubernetes.io/hostname,*", vec![All, Node, All]),
            (" , ", vec![]),
        ] {
            assert_eq!(TopologyKey::parse(annotation), Some(keys), "{annotation}");
        }
        assert_eq!(TopologyKey::parse("kubernetes.io/hostname,rack"), None);
        let long = TopologyKey::parse(&"kubernetes.io/hostname,openyurt.io/nodepool,".repeat(6000));
        assert_eq!(long, Some(vec![Node, Pool]));
    }
}
