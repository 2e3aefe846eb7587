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

fn pod_address(host: &str) -> Result<IpAddr, Error> {
    let Ok(address) = host.parse::<IpAddr>() else {
        return Err(Error::setting("host", format!("`{host}` is not an IP address")));
    };
    let canonical = address.to_canonical();
    if canonical.is_loopback() {
        return Err(Error::setting("host", format!("`{host}` is a loopback address: pods would reach themselves")));
    }
    if canonical.is_unspecified() || canonical.is_multicast() {
        return Err(Error::setting("host", format!("`{host}` is not an address that pods can reach")));
    }
    Ok(address)
}
