//! In a network namespace of their own, where that can be had: each test starts itself again within one.

use std::process::Command;

use super::*;

const ADDRESS: &str = "169.254.20.10";
const INSIDE: &str = "WEIR_TEST_OWN_NETWORK";

/// Runs an ignored test of this file in a new network namespace; `with` goes before it on the command line.
fn in_own_network(test: &str, with: &[&str]) {
    let unshare = |words: &[&str]| Command::new("unshare").arg("--net").args(words).output();
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "no network namespace can be had here");
        eprintln!("skipped: no network namespace can be had here");
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

/// A keeper that runs, and a look at what it does.
struct Rig {
    kernel: NetlinkEvents,
    metrics: Arc<PodMetrics>,
    tasks: Tasks,
}

impl Rig {
    fn new() -> Self {
        assert!(std::env::var_os(INSIDE).is_some(), "it would change the interfaces of this machine");
        let (metrics, tasks) = (Arc::<PodMetrics>::default(), Tasks::default());
        Self { kernel: NetlinkEvents::subscribe(GROUPS, &tasks).unwrap(), metrics, tasks }
    }

    fn keep(&self, address: &str) {
        let config = PodsConfig { address: address.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) };
        self.tasks.spawn_until_stop(PodAddress::new(&config, self.metrics.clone(), self.tasks.clone()).keep());
    }

    /// Waits until an interface has the address or not, and gives the interface.
    async fn holder(&mut self, address: &str, expected: bool) -> Option<Link> {
        let address = address.parse().unwrap();
        let found = async {
            loop {
                let holders = holders(self.kernel.handle(), address).await.unwrap();
                let links = links(self.kernel.handle()).await.unwrap();
                let link = links.into_iter().find(|link| holders.contains(&link.index) && link.up);
                if link.is_some() == expected {
                    return link;
                }
                assert!(self.kernel.changed(SETTLE).await);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), found).await.expect("in time")
    }

    async fn link(&self, name: &str) -> Option<Link> {
        links(self.kernel.handle()).await.unwrap().into_iter().find(|link| link.name == name)
    }

    async fn dummy(&self, name: &str, address: &str) {
        let handle = self.kernel.handle();
        make(handle, name).await.unwrap();
        let index = self.link(name).await.unwrap().index;
        handle.address().add(index, address.parse().unwrap(), 24).execute().await.unwrap();
    }
}

#[test]
fn an_address_that_is_nowhere_is_put_on_an_interface_and_mended() {
    in_own_network("mended_inside", &[]);
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn mended_inside() {
    let mut rig = Rig::new();
    for address in [ADDRESS, "fd00::10"] {
        rig.keep(address);
        let first = rig.holder(address, true).await.unwrap();
        assert_eq!((first.name.as_str(), first.own, first.up), ("weir0", true, true));
        let handle = rig.kernel.handle().clone();
        let mut addresses = handle.address().get().set_address_filter(address.parse().unwrap()).execute();
        let message = addresses.try_next().await.unwrap().unwrap();
        assert_eq!(message.header.prefix_len, if address == ADDRESS { 32 } else { 128 });
        // Somebody takes the address away.
        handle.address().del(message).execute().await.unwrap();
        assert_eq!(rig.holder(address, true).await.unwrap().index, first.index);
        // Somebody puts the interface down.
        handle.link().set(LinkUnspec::new_with_index(first.index).down().build()).execute().await.unwrap();
        assert_eq!(rig.holder(address, true).await.unwrap().index, first.index);
        // Somebody deletes it.
        handle.link().del(first.index).execute().await.unwrap();
        assert_ne!(rig.holder(address, true).await.unwrap().index, first.index, "a new one");
    }
}

#[test]
fn an_address_that_an_interface_has_is_left_alone_until_it_goes() {
    in_own_network("left_alone_inside", &[]);
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn left_alone_inside() {
    let mut rig = Rig::new();
    rig.dummy("node0", ADDRESS).await;
    let mut looked = PodAddress::new(
        &PodsConfig { address: ADDRESS.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) },
        rig.metrics.clone(),
        rig.tasks.clone(),
    );
    assert_eq!(looked.look(&mut None).await.unwrap(), Holder::Other("node0".to_owned()));
    assert!(rig.link("weir0").await.is_none());
    rig.keep(ADDRESS);
    let index = rig.link("node0").await.unwrap().index;
    rig.kernel.handle().link().del(index).execute().await.unwrap();
    assert_eq!(rig.holder(ADDRESS, true).await.unwrap().name, "weir0");
    // An interface of that name that is of another kind is not touched.
    looked.interface = Some("lo".to_owned());
    looked.address = "169.254.20.11".parse().unwrap();
    let error = looked.look(&mut None).await.unwrap_err();
    assert_eq!(error.to_string(), "there is an interface lo, and it is none that the daemon makes");
    looked.interface = None;
    assert!(matches!(looked.look(&mut None).await, Err(AddressError::Absent)));
}

#[test]
fn without_the_right_it_is_told_which_one_is_missing() {
    in_own_network(
        "without_the_right_inside",
        &["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"],
    );
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn without_the_right_inside() {
    let rig = Rig::new();
    let config = PodsConfig { address: ADDRESS.parse().unwrap(), port: 1, interface: Some("weir0".to_owned()) };
    let keeper = PodAddress::new(&config, rig.metrics.clone(), rig.tasks.clone());
    let told = in_full(&keeper.look(&mut None).await.unwrap_err());
    assert_eq!(
        told,
        "the interface weir0 can not be made (that takes CAP_NET_ADMIN): Operation not permitted (os error 1)"
    );
    assert!(rig.link("weir0").await.is_none());
}
