//! The node's own addresses.

/// One address of one of the node's interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// `eth0`.
    pub interface_name: String,
    /// The address, v4 or v6.
    pub ip: std::net::IpAddr,
    /// Of the on-link prefix.
    pub prefix_length: u8,
    /// Whether a default route of this family leaves through the interface.
    pub default_route: bool,
}
