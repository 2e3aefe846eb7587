//! The addresses of the node, and which interfaces hold a default route, read by rtnetlink.
//!
//! All addresses are read again after each kernel notification about links, addresses or routes. If netlink is not
//! permitted, the list is empty and a warning is logged.
//!
//! Memory: one list of addresses. Routes are processed one by one.

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

use super::netlink::NetlinkEvents;
use super::reflectors::Reflectors;
use weir_spec::InterfaceAddress;
use weir_upstream::BackOff;
use weir_upstream::Tasks;
use weir_upstream::error_report;

/// Notifications come in bursts: a link goes up, then its addresses, then its routes. One read covers a burst.
const SETTLE: Duration = Duration::from_millis(100);
/// Bounds one read. The kernel usually responds within milliseconds.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of addresses. Further ones are ignored, because a filter reads the whole list at once.
const MAX_ADDRESSES: usize = 4096;

/// The addresses cannot be read.
#[derive(Debug, thiserror::Error)]
enum NetlinkError {
    #[error("netlink is not available")]
    Socket(#[source] io::Error),
    #[error("the kernel refused to list links, addresses or routes")]
    Dump(#[source] rtnetlink::Error),
    #[error("the kernel did not list links, addresses and routes within {READ_TIMEOUT:?}")]
    Slow,
    #[error("the netlink connection was closed")]
    Ended,
}

/// The notifications to subscribe to.
const GROUPS: &[MulticastGroup] = &[
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

impl Reflectors {
    /// Writes the addresses of the node to the store now and after each change, until the daemon stops.
    ///
    /// Returns after the first read, or when it has failed.
    pub async fn watch_addresses(&self, tasks: &Tasks) {
        let mut events = match subscribe(self, tasks).await {
            Ok(events) => Some(events),
            Err(error) => {
                warn(&error);
                None
            }
        };
        let (reflectors, spawner) = (self.clone(), tasks.clone());
        tasks.spawn_until_stop(async move {
            let mut backoff = BackOff::new(Duration::from_secs(1), Duration::from_secs(300));
            loop {
                match events.take() {
                    Some(subscribed) => {
                        backoff.reset();
                        let error = follow(subscribed, &reflectors).await;
                        if spawner.is_stopping() {
                            return;
                        }
                        warn(&error);
                    }
                    None => backoff.wait().await,
                }
                // The first failure was logged; further attempts are not.
                events = subscribe(&reflectors, &spawner).await.ok();
            }
        });
    }
}

fn warn(error: &NetlinkError) {
    tracing::warn!(
        error = error_report(error),
        "cannot watch node addresses, filters read the last known ones, retrying"
    );
}

/// Subscribes before the first read, so that no change is missed between the two.
async fn subscribe(reflectors: &Reflectors, tasks: &Tasks) -> Result<NetlinkEvents, NetlinkError> {
    let events = NetlinkEvents::subscribe(GROUPS, tasks).map_err(NetlinkError::Socket)?;
    reflectors.set_addresses(read(events.handle()).await?);
    Ok(events)
}

/// Reads the addresses after each burst of notifications. Returns the error that ended the subscription.
async fn follow(mut events: NetlinkEvents, reflectors: &Reflectors) -> NetlinkError {
    while events.changed(SETTLE).await {
        match read(events.handle()).await {
            Ok(addresses) => reflectors.set_addresses(addresses),
            Err(error) => return error,
        }
    }
    NetlinkError::Ended
}

async fn read(handle: &Handle) -> Result<Arc<[InterfaceAddress]>, NetlinkError> {
    match tokio::time::timeout(READ_TIMEOUT, dump(handle)).await {
        Ok(result) => result.map_err(NetlinkError::Dump),
        Err(_) => Err(NetlinkError::Slow),
    }
}

async fn dump(handle: &Handle) -> Result<Arc<[InterfaceAddress]>, rtnetlink::Error> {
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
    for request in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let mut routes = handle.route().get(request).execute();
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

/// The interfaces of a default route of the main table. The bool is true for IPv6.
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

fn address(
    message: &AddressMessage,
    names: &HashMap<u32, String>,
    defaults: &HashSet<(bool, u32)>,
) -> Option<InterfaceAddress> {
    let of = |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    // On a point-to-point link, `Address` is the peer and `Local` is the node. Elsewhere they are equal, or one is missing.
    let ip = of(|attribute| if let AddressAttribute::Local(ip) = attribute { Some(*ip) } else { None })
        .or_else(|| of(|attribute| if let AddressAttribute::Address(ip) = attribute { Some(*ip) } else { None }))?;
    Some(InterfaceAddress {
        interface_name: names.get(&message.header.index)?.clone(),
        ip,
        prefix_length: message.header.prefix_len,
        default_route: defaults.contains(&(ip.is_ipv6(), message.header.index)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_stores::{ResourceStores, ResourceStoresConfig};

    #[test]
    fn only_default_routes_of_the_main_table_are_used() {
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
    fn the_local_address_of_a_point_to_point_link_is_used() {
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
        assert!(
            address(&message, &HashMap::new(), &HashSet::new()).is_none(),
            "an interface that was removed meanwhile"
        );
    }

    #[tokio::test]
    async fn the_loopback_address_is_found_unless_netlink_is_unavailable() {
        let tasks = Tasks::default();
        let reflectors = Reflectors::new(ResourceStores::new(ResourceStoresConfig::default(), tasks.clone()));
        reflectors.watch_addresses(&tasks).await;
        let addresses = reflectors.snapshot().addresses();
        if !addresses.is_empty() {
            assert!(addresses.iter().any(|address| address.ip.is_loopback()), "{addresses:?}");
        }
        assert!(tasks.drain(Duration::from_secs(5)).await, "the watch stops with the daemon");
    }
}
