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
use weir_upstream::in_full;
use weir_upstream::{BackOff, spread};

/// The notifications to subscribe to.
const GROUPS: &[MulticastGroup] = &[MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
/// The kinds of interface to create, in order of preference.
const KINDS: &[InfoKind] = &[InfoKind::Dummy, InfoKind::Bridge];
/// Notifications come in bursts. One read covers a burst.
const SETTLE: Duration = Duration::from_millis(50);
/// Bounds one read and repair. The kernel usually responds within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// The delay after a failure, doubled up to the maximum. Any notification ends it.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(300);

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
    #[error("links and addresses can not be listed")]
    Dump(#[source] io::Error),
    #[error("the interface {interface} can not be {done}{}", if is_right(source) { " (that takes CAP_NET_ADMIN)" } else { "" })]
    Refused {
        interface: String,
        done: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("there is an interface {0}, and it is none that the daemon makes")]
    Taken(String),
    #[error("no interface has it, and --pod-interface is empty")]
    Absent,
    #[error("the kernel did not answer within {PATIENCE:?}")]
    Slow,
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
struct Link {
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

    /// Runs until the daemon stops.
    pub async fn keep(self) {
        let mut kernel = None;
        let mut told: Option<Result<Holder, String>> = None;
        let mut back_off = BackOff::new(RETRY, RETRY_LONGEST);
        loop {
            let result = self.look(&mut kernel).await.map_err(|error| in_full(&error));
            self.metrics.address(result.is_ok());
            let again = match result {
                Ok(_) => {
                    back_off.reset();
                    None
                }
                Err(_) => Some(back_off.take()),
            };
            if told.as_ref() != Some(&result) {
                self.tell(&result, told.is_some());
                told = Some(result);
            }
            let news = async {
                match &mut kernel {
                    Some(kernel) => kernel.changed(SETTLE).await,
                    None => std::future::pending().await,
                }
            };
            let retried = async {
                match again {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            let heard = tokio::select! {
                heard = news => heard,
                () = retried => true,
            };
            if !heard {
                // The connection is over: listen anew before looking, so that no change falls between.
                kernel = None;
                tokio::time::sleep(spread(RETRY)).await;
            }
        }
    }

    fn tell(&self, result: &Result<Holder, String>, again: bool) {
        let (address, interface) = (self.address, self.interface.as_deref().unwrap_or_default());
        match result {
            Ok(Holder::Own) => {
                tracing::info!(%address, interface, "the pod address is on the daemon's interface{}", if again { " again" } else { "" });
            }
            Ok(Holder::Other(interface)) => {
                tracing::info!(%address, interface, "the pod address is on an interface of the node, which is left alone");
            }
            Err(reason) => {
                tracing::error!(%address, interface, reason, "--pod-address can not be put on --pod-interface: pods get through once something brings it");
            }
        }
    }

    /// Finds the interface with the address, or repairs the interface of the daemon.
    async fn look(&self, kernel: &mut Option<NetlinkEvents>) -> Result<Holder, AddressError> {
        let open = match kernel {
            Some(open) => open,
            None => kernel.insert(NetlinkEvents::subscribe(GROUPS, &self.tasks).map_err(AddressError::Socket)?),
        };
        tokio::time::timeout(PATIENCE, self.mend(open.handle())).await.unwrap_or(Err(AddressError::Slow))
    }

    async fn mend(&self, handle: &Handle) -> Result<Holder, AddressError> {
        let found = links(handle).await?;
        let holders = holders(handle, self.address).await?;
        let holding = |link: &&Link| holders.contains(&link.index);
        let own = |link: &&Link| link.own && Some(&link.name) == self.interface.as_ref();
        if let Some(other) = found.iter().filter(holding).find(|link| !own(link)) {
            return Ok(Holder::Other(other.name.clone()));
        }
        let Some(name) = &self.interface else { return Err(AddressError::Absent) };
        let refused =
            |done| move |error| AddressError::Refused { interface: name.clone(), done, source: io_error(error) };
        let link = match found.into_iter().find(|link| &link.name == name) {
            Some(link) if !link.own => return Err(AddressError::Taken(name.clone())),
            Some(link) => link,
            None => {
                make(handle, name).await.map_err(refused("made"))?;
                let made = links(handle).await?.into_iter().find(|link| &link.name == name);
                made.ok_or_else(|| AddressError::Refused {
                    interface: name.clone(),
                    done: "found after it was made",
                    source: io::ErrorKind::NotFound.into(),
                })?
            }
        };
        if !holders.contains(&link.index) {
            let length = if self.address.is_ipv4() { 32 } else { 128 };
            let mut request = handle.address().add(link.index, self.address, length);
            // Nobody else is on this link: no need to wait and see whether the address is somebody's.
            request.message_mut().header.flags = AddressHeaderFlags::Nodad;
            request.execute().await.map_err(refused("given the address"))?;
        }
        if !link.up {
            let request = handle.link().set(LinkUnspec::new_with_index(link.index).up().build());
            request.execute().await.map_err(refused("put up"))?;
        }
        Ok(Holder::Own)
    }
}

/// Creates the interface and sets it up.
async fn make(handle: &Handle, name: &str) -> Result<(), rtnetlink::Error> {
    let mut made = Ok(());
    for kind in KINDS {
        let link = LinkMessageBuilder::<LinkDummy>::new_with_info_kind(kind.clone()).name(name.to_owned()).up();
        made = handle.link().add(link.build()).execute().await;
        if !made.clone().is_err_and(|error| io_error(error).kind() == io::ErrorKind::Unsupported) {
            break;
        }
    }
    made
}

async fn links(handle: &Handle) -> Result<Vec<Link>, AddressError> {
    let mut links = Vec::new();
    let mut dump = handle.link().get().execute();
    while let Some(message) = dump.try_next().await.map_err(|error| AddressError::Dump(io_error(error)))? {
        let mut link = Link {
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
        // On a point-to-point link `Address` is the peer's.
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

fn is_right(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests;
