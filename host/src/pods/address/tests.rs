//! Each test runs itself again in a new network namespace, if the machine allows that.

use std::process::Command;

use super::*;

const ADDRESS: &str = "169.254.20.10";
const INSIDE: &str = "WEIR_TEST_OWN_NETWORK";

/// Runs an ignored test of this file in a new network namespace. `with` are words of the command line before it.
fn in_own_network(test: &str, with: &[&str]) {
    let unshare = |words: &[&str]| Command::new("unshare").arg("--net").args(words).output();
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "this machine allows no network namespaces");
        eprintln!("skipped: this machine allows no network namespaces");
        return;
    }
    let program = std::env::current_exe().unwrap().display().to_string();
    let name = format!("pods::address::tests::{test}");
    let inside = format!("{INSIDE}=1");
    let words: Vec<&str> = ["env", &inside]
        .into_iter()
        .chain(with.iter().copied())
        .chain([&*program, "--exact", &name, "--ignored"])
        .collect();
    let output = unshare(&words).unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A running task, and access to the network interfaces.
struct AddressFixture {
    netlink: NetlinkEvents,
    metrics: Arc<PodMetrics>,
    tasks: Tasks,
}

impl AddressFixture {
    fn new() -> Self {
        assert!(
            std::env::var_os(INSIDE).is_some(),
            "without a namespace, the test would change the interfaces of this machine"
        );
        let (metrics, tasks) = (Arc::<PodMetrics>::default(), Tasks::default());
        Self { netlink: NetlinkEvents::subscribe(GROUPS, &tasks).unwrap(), metrics, tasks }
    }

    fn keep(&self, address: &str) {
        let config = PodsConfig { address: address.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) };
        self.tasks.spawn_until_stop(PodAddress::new(&config, self.metrics.clone(), self.tasks.clone()).run());
    }

    /// Waits until an interface has the address, or none has it, and returns the interface.
    async fn holder(&mut self, address: &str, expected: bool) -> Option<Interface> {
        let address = address.parse().unwrap();
        let found = async {
            loop {
                let holders = holders(self.netlink.handle(), address).await.unwrap();
                let links = links(self.netlink.handle()).await.unwrap();
                let link = links.into_iter().find(|link| holders.contains(&link.index) && link.up);
                if link.is_some() == expected {
                    return link;
                }
                assert!(self.netlink.changed(SETTLE).await);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), found).await.expect("in time")
    }

    async fn link(&self, name: &str) -> Option<Interface> {
        links(self.netlink.handle()).await.unwrap().into_iter().find(|link| link.name == name)
    }

    async fn dummy(&self, name: &str, address: &str) {
        let handle = self.netlink.handle();
        create_interface(handle, name).await.unwrap();
        let index = self.link(name).await.unwrap().index;
        handle.address().add(index, address.parse().unwrap(), 24).execute().await.unwrap();
    }
}

#[test]
fn an_address_without_an_interface_is_added_and_repaired() {
    in_own_network("repaired_inside", &[]);
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn repaired_inside() {
    let mut fixture = AddressFixture::new();
    for address in [ADDRESS, "fd00::10"] {
        fixture.keep(address);
        let first = fixture.holder(address, true).await.unwrap();
        assert_eq!((first.name.as_str(), first.own, first.up), ("weir0", true, true));
        let handle = fixture.netlink.handle().clone();
        let mut addresses = handle.address().get().set_address_filter(address.parse().unwrap()).execute();
        let message = addresses.try_next().await.unwrap().unwrap();
        assert_eq!(message.header.prefix_len, if address == ADDRESS { 32 } else { 128 });
        // Something removes the address.
        handle.address().del(message).execute().await.unwrap();
        assert_eq!(fixture.holder(address, true).await.unwrap().index, first.index);
        // Something sets the interface down.
        handle.link().set(LinkUnspec::new_with_index(first.index).down().build()).execute().await.unwrap();
        assert_eq!(fixture.holder(address, true).await.unwrap().index, first.index);
        // Something deletes the interface.
        handle.link().del(first.index).execute().await.unwrap();
        assert_ne!(fixture.holder(address, true).await.unwrap().index, first.index, "a new one");
    }
}

#[test]
fn an_address_on_an_existing_interface_stays_until_that_is_deleted() {
    in_own_network("left_alone_inside", &[]);
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn left_alone_inside() {
    let mut fixture = AddressFixture::new();
    fixture.dummy("node0", ADDRESS).await;
    let mut task = PodAddress::new(
        &PodsConfig { address: ADDRESS.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) },
        fixture.metrics.clone(),
        fixture.tasks.clone(),
    );
    assert_eq!(task.check(&mut None).await.unwrap(), Holder::Other("node0".to_owned()));
    assert!(fixture.link("weir0").await.is_none());
    fixture.keep(ADDRESS);
    let index = fixture.link("node0").await.unwrap().index;
    fixture.netlink.handle().link().del(index).execute().await.unwrap();
    assert_eq!(fixture.holder(ADDRESS, true).await.unwrap().name, "weir0");
    // An existing interface of another kind stays unchanged.
    task.interface = Some("lo".to_owned());
    task.address = "169.254.20.11".parse().unwrap();
    let error = task.check(&mut None).await.unwrap_err();
    assert_eq!(error.to_string(), "the interface lo exists, and the daemon did not create it");
    task.interface = None;
    assert!(matches!(task.check(&mut None).await, Err(AddressError::Absent)));
}

#[test]
fn the_error_names_a_missing_capability() {
    in_own_network(
        "without_the_capability_inside",
        &["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"],
    );
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn without_the_capability_inside() {
    let fixture = AddressFixture::new();
    let config = PodsConfig { address: ADDRESS.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) };
    let task = PodAddress::new(&config, fixture.metrics.clone(), fixture.tasks.clone());
    let report = error_report(&task.check(&mut None).await.unwrap_err());
    assert_eq!(report, "cannot create interface weir0 (requires CAP_NET_ADMIN): Operation not permitted (os error 1)");
    assert!(fixture.link("weir0").await.is_none());
}
