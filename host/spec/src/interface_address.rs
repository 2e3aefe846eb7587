//! The addresses of the node's network interfaces.

/// One address of one network interface of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// Name of the interface, for example `eth0`.
    pub interface_name: String,
    /// The IPv4 or IPv6 address.
    pub ip: std::net::IpAddr,
    /// Length of the on-link prefix.
    pub prefix_length: u8,
    /// Whether a default route of the same address family uses this interface.
    pub default_route: bool,
}
