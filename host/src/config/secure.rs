//! Validates the flags of the HTTPS port and of the address for pods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use weir_front::ServingCertificate;

use super::flags::ServeFlags;
use super::peers::PeersConfig;

/// The address at which pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsConfig {
    /// The address.
    pub address: IpAddr,
    /// The HTTPS port.
    pub port: u16,
    /// The interface to create if no interface has the address.
    pub interface: Option<String>,
}

/// The longest name of a network interface in Linux (`IFNAMSIZ` without the final zero byte).
const LONGEST_INTERFACE: usize = 15;

/// The HTTPS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureConfig {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The source of its certificate.
    pub certificate: ServingCertificate,
    /// The CA bundle for client certificates. Without it, none are requested.
    pub client_ca: Option<PathBuf>,
}

/// The HTTPS port. Returns none if no flag asks for it.
pub(super) fn secure_config(
    flags: &ServeFlags,
    peers: Option<&PeersConfig>,
    errors: &mut Vec<String>,
) -> Option<SecureConfig> {
    let certificate = match (&flags.tls_cert_file, &flags.tls_private_key_file) {
        (Some(certificate), Some(key)) => {
            ServingCertificate::Files { certificate: certificate.clone(), key: key.clone() }
        }
        (None, None) if flags.pod_address.is_some() => ServingCertificate::Requested,
        (None, None) => {
            for (flag, given) in [
                ("--client-ca-file", flags.client_ca_file.is_some()),
                ("--secure-bind-address", flags.secure_bind_address.is_some()),
            ] {
                if given {
                    errors.push(format!("{flag}: needs --tls-cert-file and --tls-private-key-file, or --pod-address"));
                }
            }
            return None;
        }
        _ => {
            errors.push("--tls-cert-file and --tls-private-key-file: give both or none".to_owned());
            return None;
        }
    };
    // All addresses, of both families if one of those that clients know is of IPv6.
    let for_peers = peers.and_then(|peers| peers.own_host.as_deref()).map(|host| {
        let known = [host.parse().ok(), flags.pod_address];
        match known.iter().flatten().any(IpAddr::is_ipv6) {
            true => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            false => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        }
    });
    let address = flags.secure_bind_address.or(for_peers).or(flags.pod_address).unwrap_or(flags.bind_address);
    let address = SocketAddr::new(address, flags.secure_port);
    Some(SecureConfig { address, certificate, client_ca: flags.client_ca_file.clone() })
}

impl PodsConfig {
    /// Returns none without `--pod-address`.
    pub(super) fn from_flags(flags: &ServeFlags, errors: &mut Vec<String>) -> Option<Self> {
        let interface = Some(flags.pod_interface.clone()).filter(|name| !name.is_empty());
        if let Some(name) = interface.as_ref().filter(|name| !is_interface(name)) {
            errors.push(format!("--pod-interface: {name:?} is not a valid interface name"));
        }
        let address = flags.pod_address?;
        let kind = match address {
            _ if address.is_loopback() => Some("loopback"),
            _ if address.is_unspecified() => Some("unspecified"),
            _ if address.is_multicast() => Some("multicast"),
            // Link-local addresses are scoped to an interface, and pods have interfaces of their own.
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("link-local IPv6"),
            _ => None,
        };
        if let Some(kind) = kind {
            errors.push(format!("--pod-address: pods cannot reach the {kind} address {address}"));
        }
        if flags.secure_port == 0 {
            errors.push(
                "--secure-port: 0 is not allowed with --pod-address, because filters pass the port to pods".to_owned(),
            );
        }
        Some(Self { address, port: flags.secure_port, interface })
    }
}

/// The check of the kernel, `dev_valid_name`.
fn is_interface(name: &str) -> bool {
    (1..=LONGEST_INTERFACE).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}
