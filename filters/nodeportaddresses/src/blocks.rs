//! The requested addresses (blocks, `default-route`, `primary`), and the blocks that they become on this node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_edge::heap_sort;
use weir_filter::node::Address;

/// One IP block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IpBlock {
    /// The address, with host bits as given.
    ip: IpAddr,
    prefix: u8,
}

/// The addresses on which node ports are to listen.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A keyword of kube-proxy: the node's primary addresses.
    Primary,
    /// Blocks in their original spelling, and whether to add the networks of the default route.
    Blocks { blocks: Vec<(String, IpBlock)>, default_route: bool },
}

impl Wanted {
    /// Parses the items of a list. The error gives the reason.
    pub(crate) fn parse<'a>(items: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let items: Vec<&str> = items.map(str::trim).collect();
        match items.as_slice() {
            [] | [""] => return Err("empty: remove it to listen on all addresses".to_owned()),
            ["primary"] => return Ok(Self::Primary),
            _ => {}
        }
        let mut blocks = Vec::new();
        let mut default_route = false;
        for item in items {
            match item {
                "default-route" => default_route = true,
                "primary" => return Err("`primary` cannot be combined with other items".to_owned()),
                _ => match IpBlock::parse(item) {
                    Some(block) => blocks.push((item.to_owned(), block)),
                    None => {
                        return Err(format!(
                            "`{item}` is neither an IP block such as 10.0.0.0/8 or fd00::/8 nor `default-route`"
                        ));
                    }
                },
            }
        }
        Ok(Self::Blocks { blocks, default_route })
    }

    /// Returns the list for kube-proxy, sorted and without duplicates. It contains a block of each address family.
    pub(crate) fn list(&self, addresses: &[Address]) -> Vec<String> {
        let Self::Blocks { blocks, default_route } = self else {
            return vec!["primary".to_owned()];
        };
        let mut blocks = blocks.clone();
        if *default_route {
            let routed = addresses.iter().filter(|address| address.default_route);
            blocks.extend(routed.filter_map(IpBlock::on_link).map(|block| (block.to_string(), block)));
        }
        let present: Vec<IpAddr> = addresses.iter().filter_map(|address| address.ip.parse().ok()).collect();
        let v4 = || absent(&present, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 32);
        let v6 = || absent(&present, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 128);
        let lacking_v4 = (!blocks.iter().any(|(_, block)| block.ip.is_ipv4())).then(v4);
        let lacking_v6 = (!blocks.iter().any(|(_, block)| block.ip.is_ipv6())).then(v6);

        let mut list: Vec<String> =
            blocks.into_iter().map(|(text, _)| text).chain(lacking_v4).chain(lacking_v6).collect();
        heap_sort(&mut list, |one, other| one < other);
        list.dedup();
        list
    }
}

/// Returns a block of one address that this node does not have, from a range reserved for documentation.
fn absent(present: &[IpAddr], from: IpAddr, prefix: u8) -> String {
    let nth = |n: u8| match from {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() + u32::from(n))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() + u128::from(n))),
    };
    let free = (0..=u8::MAX).map(nth).find(|ip| !present.contains(ip)).unwrap_or(from);
    IpBlock { ip: free, prefix }.to_string()
}

impl IpBlock {
    /// Parses an address, a slash and a decimal prefix length, like Go's ParseCIDR.
    fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let ip: IpAddr = ip.parse().ok()?;
        let plain = prefix == "0" || !prefix.starts_with('0');
        if !plain || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= bits(ip)).then_some(Self { ip, prefix })
    }

    /// Returns the network of an address. Link-local networks are excluded, because every interface has addresses in
    /// them.
    fn on_link(address: &Address) -> Option<Self> {
        let ip = match address.ip.parse().ok()? {
            IpAddr::V4(ip) if !ip.is_link_local() => {
                let host_bits = 32u32.checked_sub(u32::from(address.prefix_length))?;
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)))
            }
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
                let host_bits = 128u32.checked_sub(u32::from(address.prefix_length))?;
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0)))
            }
            _ => return None,
        };
        Some(Self { ip, prefix: address.prefix_length })
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl std::fmt::Display for IpBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}
