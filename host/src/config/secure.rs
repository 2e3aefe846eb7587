//! The HTTPS port and the address that pods reach it at.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::flags::ServeFlags;

/// The HTTPS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it shows.
    pub certificate: ServingCertificate,
    /// What client certificates are verified by; none: they are not asked for.
    pub client_ca: Option<PathBuf>,
}

/// Where the HTTPS port's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServingCertificate {
    /// Somebody else keeps it; taken anew when it changes.
    Files {
        /// PEM chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// The daemon asks the cluster for one: without it, pods could not verify whom they talk to.
    Requested,
}

/// How pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsConfig {
    /// Its address for them.
    pub address: IpAddr,
    /// The HTTPS port.
    pub port: u16,
    /// The interface that is made when no other has the address; none: nothing is made.
    pub interface: Option<String>,
}

/// The longest name that Linux gives an interface.
const LONGEST_INTERFACE: usize = 15;

impl SecureConfig {
    /// None: there is no such port.
    pub(super) fn from_flags(flags: &ServeFlags, problems: &mut Vec<String>) -> Option<Self> {
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
                        problems.push(format!(
                            "{flag}: goes with --tls-cert-file and --tls-private-key-file, or with --pod-address"
                        ));
                    }
                }
                return None;
            }
            _ => {
                problems.push("--tls-cert-file and --tls-private-key-file: give both or none".to_owned());
                return None;
            }
        };
        let address = flags.secure_bind_address.or(flags.pod_address).unwrap_or(flags.bind_address);
        let address = SocketAddr::new(address, flags.secure_port);
        Some(Self { address, certificate, client_ca: flags.client_ca_file.clone() })
    }
}

impl PodsConfig {
    /// None: pods are not to reach the daemon.
    pub(super) fn from_flags(flags: &ServeFlags, problems: &mut Vec<String>) -> Option<Self> {
        let interface = Some(flags.pod_interface.clone()).filter(|name| !name.is_empty());
        if let Some(name) = interface.as_ref().filter(|name| !is_interface(name)) {
            problems.push(format!("--pod-interface: {name:?} is not the name of an interface"));
        }
        let address = flags.pod_address?;
        let kind = match address {
            _ if address.is_loopback() => Some("loopback"),
            _ if address.is_unspecified() => Some("unspecified"),
            _ if address.is_multicast() => Some("multicast"),
            // It would mean another interface in each pod.
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("link-local IPv6"),
            _ => None,
        };
        if let Some(kind) = kind {
            problems.push(format!("--pod-address: pods can not reach the {kind} address {address}"));
        }
        if flags.secure_port == 0 {
            problems.push("--secure-port: 0 is no port that pods could be told".to_owned());
        }
        Some(Self { address, port: flags.secure_port, interface })
    }
}

/// As the kernel judges it.
fn is_interface(name: &str) -> bool {
    (1..=LONGEST_INTERFACE).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}
