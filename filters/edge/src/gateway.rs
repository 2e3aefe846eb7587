//! Where pods reach the daemon instead of the API server: the settings `host` and `port` of three filters.

use std::net::IpAddr;

use weir_filter::{Error, node};

/// An address that pods of this node reach, and a TLS port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The address.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
}

impl Gateway {
    /// From the settings `host` and `port`; what is not set is the daemon's own. A pod's loopback is the pod itself, so
    /// that a loopback address is refused, as is any that nobody listens on.
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
                return Err(Error::setting("port", "not set, and the daemon has no secure port"));
            }
        };
        if port == 0 {
            return Err(Error::setting("port", "0 is no port"));
        }
        Ok(Self { host: pod_address(host)?, port })
    }
}

fn pod_address(host: &str) -> Result<IpAddr, Error> {
    let Ok(address) = host.parse::<IpAddr>() else {
        return Err(Error::setting("host", format!("`{host}` is no IP address")));
    };
    let canonical = address.to_canonical();
    if canonical.is_loopback() {
        return Err(Error::setting("host", format!("`{host}` is a loopback address: pods would reach themselves")));
    }
    if canonical.is_unspecified() || canonical.is_multicast() {
        return Err(Error::setting("host", format!("`{host}` is no address that pods can reach")));
    }
    Ok(address)
}
