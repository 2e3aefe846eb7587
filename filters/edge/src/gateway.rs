//! The address at which pods reach the daemon instead of the API server: the settings `host` and `port` of three
//! filters.

use std::net::IpAddr;

use weir_filter::{Error, node};

/// An address that pods of this node can reach, and a TLS port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The address.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
}

impl Gateway {
    /// Creates a gateway from the settings `host` and `port`. The defaults are the daemon's own address and port.
    /// Rejects loopback addresses, because a pod would reach itself, and addresses on which nothing can listen.
    pub fn configure(host: Option<&str>, port: Option<u16>) -> Result<Self, Error> {
        let own = if host.is_none() || port.is_none() { node::secure_endpoint() } else { None };
        let host = match (host, &own) {
            (Some(host), _) => host,
            (None, Some(own)) => &own.host,
            (None, None) => {
                return Err(Error::setting("host", "not set, and the daemon has no address for pods (--pod-address)"));
            }
        };
        let port = match (port, &own) {
            (Some(port), _) => port,
            (None, Some(own)) => own.port,
            (None, None) => {
                return Err(Error::setting("port", "not set, and the daemon has no HTTPS port"));
            }
        };
        if port == 0 {
            return Err(Error::setting("port", "0 is not a valid port"));
        }
        Ok(Self { host: pod_address(host)?, port })
    }
}

/// Returns the address if clients in pods and kube-proxy can use it as a destination. The API server refuses the same ones in
/// EndpointSlices, except for link-local IPv4 addresses, which many clusters give to daemons on the node.
fn pod_address(host: &str) -> Result<IpAddr, Error> {
    let refused = |reason: &str| Err(Error::setting("host", format!("`{host}` {reason}")));
    let unreachable = |reason: &str| refused(&format!("is not an address that pods can reach: {reason}"));
    let Ok(address) = host.parse::<IpAddr>() else {
        if host.split_once('%').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok()) {
            return unreachable("its zone names an interface of one machine, and pods have others");
        }
        return refused("is not an IP address");
    };
    if address.to_canonical().is_loopback() {
        return refused("is a loopback address: pods would reach themselves");
    }
    if address.is_unspecified() || matches!(address, IpAddr::V4(v4) if v4.octets().starts_with(&[0])) {
        return unreachable("it means this machine or this network");
    }
    if address.is_multicast() || matches!(address, IpAddr::V4(v4) if v4.is_broadcast()) {
        return unreachable("it is a multicast or broadcast address, which no connection can have");
    }
    if let IpAddr::V6(v6) = address {
        if let Some(v4) = v6.to_ipv4() {
            return unreachable(&format!("it is an IPv4 address in IPv6 form, which Kubernetes refuses; write {v4}"));
        }
        if v6.is_unicast_link_local() {
            return unreachable("it is a link-local address, which needs a zone, and objects of the API have none");
        }
    }
    Ok(address)
}
