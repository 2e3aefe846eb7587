//! The node that the daemon runs on. May be asked from `configure` and from `filter`.

use crate::backend;

/// One address of one network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface's name: `eth0`.
    pub interface_name: String,
    /// The address, without its prefix.
    pub ip: String,
    /// The length of its on-link prefix, in bits.
    pub prefix_length: u8,
    /// Whether the interface holds a default route of this address's family.
    pub default_route: bool,
}

/// Where pods of this node reach the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// A TCP port, served with TLS.
    pub port: u16,
}

/// The node's name in Kubernetes. Constant.
pub fn name() -> String {
    backend::node_name()
}

/// The node's addresses, loopback included. They may change while the daemon runs: then objects are filtered again.
pub fn addresses() -> Vec<Address> {
    backend::node_addresses()
}

/// The daemon's own address for pods; none if it has none. Constant.
pub fn secure_endpoint() -> Option<Endpoint> {
    backend::node_secure_endpoint()
}
