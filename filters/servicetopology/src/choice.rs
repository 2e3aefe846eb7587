//! The choice of a preference list. kube-proxy balances each address family and port name of a Service on its own, so the
//! key is chosen for each of these groups: the first one that leaves the group a ready endpoint.

use weir_edge::heap_sort;
use weir_filter::{Object, Path};

use crate::keys::{Near, TopologyKey};

pub(crate) static ADDRESS_TYPE: Path = Path::new("addressType");
pub(crate) static READY: Path = Path::new("endpoints[*].conditions.ready");
pub(crate) static PORT_NAMES: Path = Path::new("ports[*].name");
/// The names of the first ports one by one: unlike a column, such a read can be replayed.
static FIRST_PORT_NAMES: [Path; 3] =
    [Path::new("ports[0].name"), Path::new("ports[1].name"), Path::new("ports[2].name")];

/// Returns the names of a slice's ports.
pub(crate) fn port_names(slice: &Object<'_>) -> Vec<String> {
    let count = slice.lengths(&PORT_NAMES).iter().sum::<u32>();
    match FIRST_PORT_NAMES.get(..usize::try_from(count).unwrap_or(usize::MAX)) {
        Some(paths) => paths.iter().map(|name| slice.text(name).unwrap_or_default()).collect(),
        None => slice.column(&PORT_NAMES).iter().map(|name| name.unwrap_or_default().to_owned()).collect(),
    }
}

/// What the ready endpoints of a group leave to choose from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    /// One is on this node.
    node: bool,
    /// One is on a member of the pool.
    pool: bool,
}

impl Ready {
    /// Adds a ready endpoint on this node, or on none.
    pub(crate) fn add(&mut self, node: Option<&str>, near: Near<'_>) {
        self.node |= near.keeps(TopologyKey::Node, node);
        self.pool |= near.keeps(TopologyKey::Pool, node);
    }

    /// Returns the position of the first key that leaves an endpoint, or else of the last key.
    fn choose(self, keys: &[TopologyKey], near: Near<'_>) -> usize {
        let leaves = |key: &TopologyKey| match key {
            TopologyKey::Node => self.node,
            TopologyKey::Pool => self.pool || near.keeps_all(*key),
            TopologyKey::All => true,
        };
        keys.iter().position(leaves).unwrap_or(keys.len().saturating_sub(1))
    }
}

/// An address family and a port name. Endpoints without ports form a group of their own, because kube-proxy never
/// balances to them.
type Group = (String, Option<String>);

/// The endpoints of a Service by group.
#[derive(Default)]
pub(crate) struct Groups(Vec<(Group, Ready)>);

impl Groups {
    /// Adds endpoints of one family with the same ports.
    pub(crate) fn add(&mut self, family: &str, ports: &[String], ready: Ready) {
        each_port(ports).for_each(|port| self.0.push(((family.to_owned(), port.map(str::to_owned)), ready)));
    }

    /// Adds the endpoints of a slice, which name their nodes at this path.
    pub(crate) fn add_slice(&mut self, slice: &Object<'_>, nodes: &Path, near: Near<'_>) {
        let mut ready = Ready::default();
        let (nodes, conditions) = (slice.column(nodes), slice.column(&READY));
        for (node, condition) in nodes.iter().zip(conditions.iter()) {
            if condition != Some("false") {
                ready.add(node, near);
            }
        }
        let family = slice.text(&ADDRESS_TYPE).unwrap_or_default();
        self.add(&family, &port_names(slice), ready);
    }

    /// Chooses a key for each group.
    pub(crate) fn choose(mut self, keys: &[TopologyKey], near: Near<'_>) -> Choices {
        // A sort, because a table with a hash would be slow for names that are chosen to collide.
        heap_sort(&mut self.0, |one, other| one.0 < other.0);
        let mut groups: Vec<(Group, Ready)> = Vec::new();
        for (group, ready) in self.0 {
            match groups.last_mut() {
                Some((last, sum)) if *last == group => {
                    sum.node |= ready.node;
                    sum.pool |= ready.pool;
                }
                _ => groups.push((group, ready)),
            }
        }
        Choices(groups.into_iter().map(|(group, ready)| (group, ready.choose(keys, near))).collect())
    }
}

/// The position of the chosen key by group, sorted.
#[derive(Debug)]
pub(crate) struct Choices(Vec<(Group, usize)>);

impl Choices {
    /// Returns the position of the key for endpoints with these ports: of the keys of their groups the one that stands
    /// last in the list. Returns none if a group is not known.
    pub(crate) fn position(&self, family: &str, ports: &[String]) -> Option<usize> {
        let position = |port: Option<&str>| {
            let place =
                self.0.binary_search_by(|((one, name), _)| (one.as_str(), name.as_deref()).cmp(&(family, port)));
            place.ok().and_then(|place| self.0.get(place)).map(|(_, position)| *position)
        };
        each_port(ports).map(position).try_fold(0, |last, position| Some(last.max(position?)))
    }
}

/// Iterates over the names, or once over none if there are no ports.
fn each_port(ports: &[String]) -> impl Iterator<Item = Option<&str>> {
    let without = ports.is_empty().then_some(None);
    ports.iter().map(|port| Some(port.as_str())).chain(without)
}
