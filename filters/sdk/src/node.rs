//! The node that the daemon runs on. `configure` and `filter` may call these functions.

use crate::backend;

/// One address of one network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The name of the interface: `eth0`.
    pub interface_name: String,
    /// The address without its prefix length.
    pub ip: String,
    /// The length of the on-link prefix, in bits.
    pub prefix_length: u8,
    /// Whether the interface has a default route of this address family.
    pub default_route: bool,
}

/// The address at which pods of this node reach the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// A TCP port, served with TLS.
    pub port: u16,
}

/// Returns the Kubernetes name of the node. It is constant.
pub fn name() -> String {
    backend::node_name()
}

/// Returns the node's addresses, including loopback. When they change, the daemon filters the dependent objects again.
pub fn addresses() -> Vec<Address> {
    backend::node_addresses()
}

/// Returns the daemon's address and HTTPS port for pods, or none. It is constant.
pub fn secure_endpoint() -> Option<Endpoint> {
    backend::node_secure_endpoint()
}
