//! The host that a request names. A web page can make its own name resolve to a port of this machine (DNS rebinding), but not
//! change the name that its browser sends.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

/// A host, without its port.
pub enum NamedHost {
    /// An IP address.
    Address(IpAddr),
    /// A name, without a final dot.
    Name(String),
}

impl NamedHost {
    /// Parses an authority; none if it is malformed.
    pub fn parse(authority: &str) -> Option<Self> {
        let authority = authority.parse::<Authority>().ok()?;
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        Some(address.map_or_else(|_| Self::Name(host.trim_end_matches('.').to_owned()), Self::Address))
    }

    /// Whether it is this name. Case does not matter.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own.eq_ignore_ascii_case(name))
    }
}

/// The authorities that a request names: each `Host`, and that of an absolute URI.
pub fn authorities<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    hosts.chain(uri.authority().map(Authority::as_str))
}
