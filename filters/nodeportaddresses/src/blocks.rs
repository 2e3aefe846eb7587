//! What is wanted (blocks, `default-route`, `primary`) and what that comes to on a node with these addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_filter::node::Address;

/// One IP block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// Its address, host bits as given.
    ip: IpAddr,
    prefix: u8,
}

/// What the operator wants node ports to listen on.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// kube-proxy's own word: the node's primary addresses.
    Primary,
    /// Blocks, as they were written, and perhaps the default route's networks.
    Blocks { blocks: Vec<(String, Block)>, default_route: bool },
}

impl Wanted {
    /// Reads a list's items, or says what is wrong with them.
    pub(crate) fn parse<'a>(items: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let items: Vec<&str> = items.map(str::trim).collect();
        match items.as_slice() {
            [] | [""] => return Err("empty: leave it out to listen everywhere".to_owned()),
            ["primary"] => return Ok(Self::Primary),
            _ => {}
        }
        let mut blocks = Vec::new();
        let mut default_route = false;
        for item in items {
            match item {
                "default-route" => default_route = true,
                "primary" => return Err("`primary` stands alone".to_owned()),
                _ => match Block::parse(item) {
                    Some(block) => blocks.push((item.to_owned(), block)),
                    None => {
                        return Err(format!("`{item}` is no IP block, as 10.0.0.0/8 or fd00::/8, nor `default-route`"));
                    }
                },
            }
        }
        Ok(Self::Blocks { blocks, default_route })
    }

    /// The list for kube-proxy: sorted, without duplicates, with a block of each family.
    pub(crate) fn list(&self, addresses: &[Address]) -> Vec<String> {
        let Self::Blocks { blocks, default_route } = self else {
            return vec!["primary".to_owned()];
        };
        let mut blocks = blocks.clone();
        if *default_route {
            let routed = addresses.iter().filter(|address| address.default_route);
            blocks.extend(routed.filter_map(Block::on_link).map(|block| (block.to_string(), block)));
        }
        let present: Vec<IpAddr> = addresses.iter().filter_map(|address| address.ip.parse().ok()).collect();
        let v4 = || absent(&present, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 32);
        let v6 = || absent(&present, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 128);
        let lacking_v4 = (!blocks.iter().any(|(_, block)| block.ip.is_ipv4())).then(v4);
        let lacking_v6 = (!blocks.iter().any(|(_, block)| block.ip.is_ipv6())).then(v6);

        // A handful: sorted as they come, which takes less code in the module than the library's sort.
        let mut list: Vec<String> = Vec::with_capacity(blocks.len() + 2);
        for text in blocks.into_iter().map(|(text, _)| text).chain(lacking_v4).chain(lacking_v6) {
            if let Err(place) = list.binary_search(&text) {
                list.insert(place, text);
            }
        }
        list
    }
}

/// A block of one address that is not among these: the first free one from a range kept for documentation.
fn absent(present: &[IpAddr], from: IpAddr, prefix: u8) -> String {
    let nth = |n: u8| match from {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() + u32::from(n))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() + u128::from(n))),
    };
    let free = (0..=u8::MAX).map(nth).find(|ip| !present.contains(ip)).unwrap_or(from);
    Block { ip: free, prefix }.to_string()
}

impl Block {
    /// Address, slash, decimal prefix, as Go's ParseCIDR has it.
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

    /// The network that an address is on. Not that of a link-local one: it would hold such an address of every
    /// interface.
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

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}
