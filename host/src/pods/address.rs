//! Keeps the pod address: the local address at which pods of this node reach the daemon.
//!
//! If an interface of the node has the address, the daemon changes nothing. Otherwise it creates a dummy interface with the
//! address, or a bridge without ports if the kernel has no dummy interfaces. It repairs the interface when that is deleted,
//! set down, or loses the address. The interface outlives the daemon, so that a restart breaks no connection of a pod.
//!
//! Links and addresses are read again after each kernel notification (netlink). The listener binds before the address exists
//! (`IP_FREEBIND`), so pods can connect as soon as an interface has it.
//!
//! Memory: nothing between two reads.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::TryStreamExt as _;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo};
use rtnetlink::{Handle, LinkDummy, LinkMessageBuilder, LinkUnspec, MulticastGroup};

use crate::config::PodsConfig;
use crate::pods::PodMetrics;
use weir_store::NetlinkEvents;
use weir_upstream::Tasks;
use weir_upstream::error_report;
use weir_upstream::{BackOff, jitter};

/// The notifications to subscribe to.
const GROUPS: &[MulticastGroup] = &[MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
/// The kinds of interface to create, in order of preference.
const KINDS: &[InfoKind] = &[InfoKind::Dummy, InfoKind::Bridge];
/// Notifications come in bursts. One read covers a burst.
const SETTLE: Duration = Duration::from_millis(50);
/// Bounds one read and repair. The kernel usually responds within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after a failure, doubled up to the maximum. Any notification ends it.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The task that keeps the pod address on an interface.
#[derive(Debug)]
pub struct PodAddress {
    address: IpAddr,
    interface: Option<String>,
    metrics: Arc<PodMetrics>,
    tasks: Tasks,
}

/// No interface has the address.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("netlink is not available")]
    Socket(#[source] io::Error),
    #[error("cannot list links and addresses")]
    Dump(#[source] io::Error),
    #[error("cannot {action} interface {interface}{}", if is_permission(source) { " (requires CAP_NET_ADMIN)" } else { "" })]
    Refused {
        interface: String,
        action: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the interface {0} exists, and the daemon did not create it")]
    Taken(String),
    #[error("no interface has the address, and --pod-interface is empty")]
    Absent,
    #[error("the kernel did not respond within {TIMEOUT:?}")]
    Timeout,
}

/// The interface that has the address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// An interface that the daemon did not create.
    Other(String),
    /// The interface of the daemon, which is up.
    Own,
}

/// A network interface.
#[derive(Debug, Clone)]
struct Interface {
    index: u32,
    name: String,
    up: bool,
    /// Whether its kind is one that the daemon creates.
    own: bool,
}

impl PodAddress {
    /// Creates the task without starting it.
    #[must_use]
    pub fn new(config: &PodsConfig, metrics: Arc<PodMetrics>, tasks: Tasks) -> Self {
        Self { address: config.address, interface: config.interface.clone(), metrics, tasks }
    }

    /// Runs until it is cancelled. Cancel safe: it holds no state that the next start needs.
    pub async fn run(self) {
        let mut netlink = None;
        let mut logged: Option<Result<Holder, String>> = None;
        let mut back_off = BackOff::new(RETRY, RETRY_MAX);
        loop {
            let result = self.check(&mut netlink).await.map_err(|error| error_report(&error));
            self.metrics.address(result.is_ok());
            let again = match result {
                Ok(_) => {
                    back_off.reset();
                    None
                }
                Err(_) => Some(back_off.next_delay()),
            };
            if logged.as_ref() != Some(&result) {
                self.log_result(&result);
                logged = Some(result);
            }
            let notified = async {
                match &mut netlink {
                    Some(netlink) => netlink.changed(SETTLE).await,
                    None => std::future::pending().await,
                }
            };
            let retry = async {
                match again {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            let connected = tokio::select! {
                connected = notified => connected,
                () = retry => true,
            };
            if !connected {
                // The netlink connection ended. Subscribe again before the next check, so that no change is missed.
                netlink = None;
                tokio::time::sleep(jitter(RETRY)).await;
            }
        }
    }

    fn log_result(&self, result: &Result<Holder, String>) {
        let (address, interface) = (self.address, self.interface.as_deref().unwrap_or_default());
        match result {
            Ok(Holder::Own) => {
                tracing::info!(%address, interface, "pod address is on the daemon's interface");
            }
            Ok(Holder::Other(interface)) => {
                tracing::info!(%address, interface, "pod address is on an existing interface, leaving it unchanged");
            }
            Err(reason) => {
                tracing::error!(%address, interface, reason, "cannot add the pod address to an interface, pods cannot connect until it exists");
            }
        }
    }

    /// Finds the interface with the address, or repairs the interface of the daemon.
    async fn check(&self, netlink: &mut Option<NetlinkEvents>) -> Result<Holder, AddressError> {
        let open = match netlink {
            Some(open) => open,
            None => netlink.insert(NetlinkEvents::subscribe(GROUPS, &self.tasks).map_err(AddressError::Socket)?),
        };
        tokio::time::timeout(TIMEOUT, self.repair(open.handle())).await.unwrap_or(Err(AddressError::Timeout))
    }

    /// Cancel safe: the next call repairs the rest.
    async fn repair(&self, handle: &Handle) -> Result<Holder, AddressError> {
        let found = links(handle).await?;
        let holders = holders(handle, self.address).await?;
        let holding = |link: &&Interface| holders.contains(&link.index);
        let own = |link: &&Interface| link.own && Some(&link.name) == self.interface.as_ref();
        if let Some(other) = found.iter().filter(holding).find(|link| !own(link)) {
            return Ok(Holder::Other(other.name.clone()));
        }
        let Some(name) = &self.interface else { return Err(AddressError::Absent) };
        let refused =
            |action| move |error| AddressError::Refused { interface: name.clone(), action, source: io_error(error) };
        let link = match found.into_iter().find(|link| &link.name == name) {
            Some(link) if !link.own => return Err(AddressError::Taken(name.clone())),
            Some(link) => link,
            None => {
                create_interface(handle, name).await.map_err(refused("create"))?;
                let created = links(handle).await?.into_iter().find(|link| &link.name == name);
                created.ok_or_else(|| AddressError::Refused {
                    interface: name.clone(),
                    action: "find created",
                    source: io::ErrorKind::NotFound.into(),
                })?
            }
        };
        if !holders.contains(&link.index) {
            let length = if self.address.is_ipv4() { 32 } else { 128 };
            let mut request = handle.address().add(link.index, self.address, length);
            // Skip duplicate address detection, because the link has no other hosts.
            request.message_mut().header.flags = AddressHeaderFlags::Nodad;
            request.execute().await.map_err(refused("add the address to"))?;
        }
        if !link.up {
            let request = handle.link().set(LinkUnspec::new_with_index(link.index).up().build());
            request.execute().await.map_err(refused("set up"))?;
        }
        Ok(Holder::Own)
    }
}

/// Creates the interface and sets it up.
async fn create_interface(handle: &Handle, name: &str) -> Result<(), rtnetlink::Error> {
    let mut created = Ok(());
    for kind in KINDS {
        let link = LinkMessageBuilder::<LinkDummy>::new_with_info_kind(kind.clone()).name(name.to_owned()).up();
        created = handle.link().add(link.build()).execute().await;
        if !created.clone().is_err_and(|error| io_error(error).kind() == io::ErrorKind::Unsupported) {
            break;
        }
    }
    created
}

async fn links(handle: &Handle) -> Result<Vec<Interface>, AddressError> {
    let mut links = Vec::new();
    let mut dump = handle.link().get().execute();
    while let Some(message) = dump.try_next().await.map_err(|error| AddressError::Dump(io_error(error)))? {
        let mut link = Interface {
            index: message.header.index,
            name: String::new(),
            up: message.header.flags.contains(LinkFlags::Up),
            own: false,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::LinkInfo(infos) => {
                    link.own = infos.iter().any(|info| matches!(info, LinkInfo::Kind(kind) if KINDS.contains(kind)));
                }
                _ => {}
            }
        }
        links.push(link);
    }
    Ok(links)
}

/// The interfaces that have an address.
async fn holders(handle: &Handle, address: IpAddr) -> Result<HashSet<u32>, AddressError> {
    let mut holders = HashSet::new();
    let mut dump = handle.address().get().execute();
    while let Some(message) = dump.try_next().await.map_err(|error| AddressError::Dump(io_error(error)))? {
        let local = |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Local(ip) if *ip == address);
        let only = |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Address(ip) if *ip == address);
        let has_local = message.attributes.iter().any(|attribute| matches!(attribute, AddressAttribute::Local(_)));
        // On a point-to-point link, `Address` is the address of the peer.
        if message.attributes.iter().any(|attribute| if has_local { local(attribute) } else { only(attribute) }) {
            holders.insert(message.header.index);
        }
    }
    Ok(holders)
}

fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

fn is_permission(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests;
