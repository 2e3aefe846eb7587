//! The choice of a preference list for an Endpoints object, which holds all endpoints of its Service: each of its subsets
//! has ports of its own, and may have addresses of both families.

use weir_edge::addresses::{Format, NOT_READY};
use weir_filter::{Column, Error, Object, Path, Rows};

use crate::choice::{Groups, Ready};
use crate::keys::{Near, TopologyKey};

static READY_IPS: Path = Path::new("subsets[*].addresses[*].ip");
static NOT_READY_IPS: Path = Path::new("subsets[*].notReadyAddresses[*].ip");
static PORT_NAMES: Path = Path::new("subsets[*].ports[*].name");

/// Columns of the addresses of all subsets.
struct Addresses {
    ips: Column,
    nodes: Column,
    /// The number of addresses of each subset.
    lengths: Vec<u32>,
}

impl Addresses {
    fn read(object: &Object<'_>, ips: &Path, nodes: &Path) -> Self {
        Self { ips: object.column(ips), nodes: object.column(nodes), lengths: object.lengths(nodes) }
    }

    /// Iterates over the addresses with the subset, whether the family is IPv6, and the node.
    fn iter(&self) -> impl Iterator<Item = (usize, bool, Option<&str>)> {
        let subsets = self.lengths.iter().enumerate().flat_map(|(subset, length)| (0..*length).map(move |_| subset));
        let is_v6 = |ip: Option<&str>| ip.is_some_and(|ip| ip.contains(':'));
        subsets.zip(self.ips.iter().zip(self.nodes.iter())).map(move |(subset, (ip, node))| (subset, is_v6(ip), node))
    }
}

/// Cuts an Endpoints object by the keys of a list.
pub(crate) fn cut(object: &mut Object<'_>, keys: &[TopologyKey], near: Near<'_>) -> Result<(), Error> {
    let ready = Addresses::read(object, &READY_IPS, Format::Endpoints.nodes());
    let not_ready = Addresses::read(object, &NOT_READY_IPS, &NOT_READY);
    let ports = ports(object);

    let mut found = vec![[Ready::default(); 2]; ports.len()];
    for (subset, v6, node) in ready.iter() {
        if let Some(ready) = found.get_mut(subset).and_then(|families| families.get_mut(usize::from(v6))) {
            ready.add(node, near);
        }
    }
    let mut groups = Groups::default();
    for (names, families) in ports.iter().zip(&found) {
        FAMILIES.iter().zip(families).for_each(|(family, ready)| groups.add(family, names, *ready));
    }
    let choices = groups.choose(keys, near);
    let chosen = |family: &&str, names: &[String]| {
        let position = choices.position(family, names).unwrap_or_default();
        keys.get(position).copied().unwrap_or(TopologyKey::All)
    };
    let of_subsets: Vec<[TopologyKey; 2]> =
        ports.iter().map(|names| FAMILIES.each_ref().map(|family| chosen(family, names))).collect();
    let mut logged = None;
    for key in of_subsets.iter().flatten() {
        if logged != Some(key) {
            near.log_kept(*key);
            logged = Some(key);
        }
    }
    if of_subsets.iter().flatten().all(|key| near.keeps_all(*key)) {
        return Ok(());
    }
    let kept = |addresses: &Addresses| -> Rows {
        let key = |subset: usize, v6: bool| of_subsets.get(subset).and_then(|keys| keys.get(usize::from(v6))).copied();
        let keeps = |(subset, v6, node)| near.keeps(key(subset, v6).unwrap_or(TopologyKey::All), node);
        addresses.iter().map(keeps).collect()
    };
    Format::Endpoints.cut_rows(object, &kept(&ready), &kept(&not_ready))?;
    Ok(())
}

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// Returns the port names of each subset.
fn ports(object: &Object<'_>) -> Vec<Vec<String>> {
    let names = object.column(&PORT_NAMES);
    let mut names = names.iter();
    let lengths = object.lengths(&PORT_NAMES);
    let subset = |length: &u32| (0..*length).map(|_| names.next().flatten().unwrap_or_default().to_owned()).collect();
    lengths.iter().map(subset).collect()
}
