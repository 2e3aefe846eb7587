//! The node's addresses and which interfaces hold a default route, by rtnetlink: read whole, and read again whenever the
//! kernel says that a link, an address or a route has changed. Where netlink is not permitted the addresses are empty, and
//! a warning says so.
//!
//! Memory: one list of addresses; routes are looked at one by one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::TryStreamExt as _;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};

use super::feeds::Feeds;
use super::netlink::NetlinkEvents;
use weir_kube::Address;
use weir_upstream::BackOff;
use weir_upstream::Tasks;
use weir_upstream::in_full;

/// Changes come in bursts (a link goes up, then its addresses, then its routes): one reading for all.
const SETTLE: Duration = Duration::from_millis(100);
/// For one reading; the kernel answers in milliseconds.
const READING: Duration = Duration::from_secs(2);
/// More addresses than this are left off: no node has them, and a filter gets them all at once.
const MAX_ADDRESSES: usize = 4096;

/// Why the addresses are not known.
#[derive(Debug, thiserror::Error)]
enum NetlinkError {
    #[error("netlink is not available")]
    Socket(#[source] io::Error),
    #[error("the kernel refuses to list links, addresses or routes")]
    Dump(#[source] rtnetlink::Error),
    #[error("the kernel did not list links, addresses and routes within {READING:?}")]
    Slow,
    #[error("the connection to the kernel ended")]
    Ended,
}

/// What to subscribe to.
const GROUPS: &[MulticastGroup] = &[
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Publishes the addresses to the feeds now, and again whenever they change, until the daemon stops. Returns when they were
/// read once or can not be read.
pub async fn follow_addresses(feeds: &Feeds, tasks: &Tasks) {
    let mut events = match begin(feeds, tasks).await {
        Ok(events) => Some(events),
        Err(error) => {
            warn(&error);
            None
        }
    };
    let (feeds, spawner) = (feeds.clone(), tasks.clone());
    tasks.spawn_until_stop(async move {
        let mut back_off = BackOff::new(Duration::from_secs(1), Duration::from_secs(300));
        loop {
            match events.take() {
                Some(subscribed) => {
                    back_off.reset();
                    let ended = follow(subscribed, &feeds).await;
                    if spawner.is_stopping() {
                        return;
                    }
                    warn(&ended);
                }
                None => back_off.wait().await,
            }
            // No warning for each attempt: the first one said it.
            events = begin(&feeds, &spawner).await.ok();
        }
    });
}

fn warn(error: &NetlinkError) {
    tracing::warn!(
        error = in_full(error),
        "the node's addresses are not followed; filters see the last ones read, or none; trying again"
    );
}

/// Listens first and reads then, so that no change is missed between the two.
async fn begin(feeds: &Feeds, tasks: &Tasks) -> Result<NetlinkEvents, NetlinkError> {
    let events = NetlinkEvents::subscribe(GROUPS, tasks).map_err(NetlinkError::Socket)?;
    feeds.set_addresses(read(events.handle()).await?);
    Ok(events)
}

/// Reads again after each change. Returns only with the error that ends it.
async fn follow(mut events: NetlinkEvents, feeds: &Feeds) -> NetlinkError {
    while events.changed(SETTLE).await {
        match read(events.handle()).await {
            Ok(addresses) => feeds.set_addresses(addresses),
            Err(error) => return error,
        }
    }
    NetlinkError::Ended
}

async fn read(handle: &Handle) -> Result<Arc<[Address]>, NetlinkError> {
    match tokio::time::timeout(READING, dump(handle)).await {
        Ok(result) => result.map_err(NetlinkError::Dump),
        Err(_) => Err(NetlinkError::Slow),
    }
}

async fn dump(handle: &Handle) -> Result<Arc<[Address]>, rtnetlink::Error> {
    let mut names = HashMap::new();
    let mut links = handle.link().get().execute();
    while let Some(link) = links.try_next().await? {
        for attribute in link.attributes {
            if let LinkAttribute::IfName(name) = attribute {
                names.insert(link.header.index, name);
            }
        }
    }
    let mut defaults = HashSet::new();
    for question in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let mut routes = handle.route().get(question).execute();
        while let Some(route) = routes.try_next().await? {
            defaults.extend(default_interfaces(&route));
        }
    }
    let mut addresses = Vec::new();
    let mut dump = handle.address().get().execute();
    while let Some(message) = dump.try_next().await? {
        if addresses.len() < MAX_ADDRESSES {
            addresses.extend(address(&message, &names, &defaults));
        }
    }
    addresses.sort_by(|a, b| (&a.interface_name, a.ip).cmp(&(&b.interface_name, b.ip)));
    Ok(addresses.into())
}

/// The interfaces that a default route of the main table leaves through, with their family.
fn default_interfaces(route: &RouteMessage) -> Vec<(bool, u32)> {
    let header = &route.header;
    if header.destination_prefix_length != 0
        || header.kind != RouteType::Unicast
        || header.table != RouteHeader::RT_TABLE_MAIN
    {
        return Vec::new();
    }
    let v6 = header.address_family == AddressFamily::Inet6;
    let interfaces = route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    interfaces.map(|index| (v6, index)).collect()
}

fn address(message: &AddressMessage, names: &HashMap<u32, String>, defaults: &HashSet<(bool, u32)>) -> Option<Address> {
    let of = |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    // On a point-to-point link `Address` is the peer and `Local` is ours; elsewhere they are the same, or only one is there.
    let ip = of(|attribute| if let AddressAttribute::Local(ip) = attribute { Some(*ip) } else { None })
        .or_else(|| of(|attribute| if let AddressAttribute::Address(ip) = attribute { Some(*ip) } else { None }))?;
    Some(Address {
        interface_name: names.get(&message.header.index)?.clone(),
        ip,
        prefix_length: message.header.prefix_len,
        default_route: defaults.contains(&(ip.is_ipv6(), message.header.index)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_default_routes_of_the_main_table_count() {
        let mut route = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(3).build();
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.kind = RouteType::Unicast;
        assert_eq!(default_interfaces(&route), [(false, 3)]);
        route.header.table = 100;
        assert!(default_interfaces(&route).is_empty());
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.destination_prefix_length = 8;
        assert!(default_interfaces(&route).is_empty());
    }

    #[test]
    fn the_local_side_of_a_point_to_point_link_is_ours() {
        let mut message = AddressMessage::default();
        message.header.index = 2;
        message.header.prefix_len = 32;
        message.attributes = vec![
            AddressAttribute::Address("10.0.0.2".parse().unwrap()),
            AddressAttribute::Local("10.0.0.1".parse().unwrap()),
        ];
        let names = HashMap::from([(2, "ppp0".to_owned())]);
        let found = address(&message, &names, &HashSet::from([(false, 2)])).unwrap();
        assert_eq!((found.ip.to_string().as_str(), found.default_route), ("10.0.0.1", true));
        assert!(address(&message, &HashMap::new(), &HashSet::new()).is_none(), "an interface that went meanwhile");
    }

    #[tokio::test]
    async fn the_loopback_address_is_found_or_the_lack_of_netlink_is_survived() {
        let tasks = Tasks::default();
        let feeds = Feeds::new(None, tasks.clone());
        follow_addresses(&feeds, &tasks).await;
        let addresses = feeds.snapshot().addresses();
        if !addresses.is_empty() {
            assert!(addresses.iter().any(|address| address.ip.is_loopback()), "{addresses:?}");
        }
        assert!(tasks.drain(Duration::from_secs(5)).await, "the follower stops with the daemon");
    }
}
