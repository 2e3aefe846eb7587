//! Tests that change network interfaces run in their own network namespace. Each re-executes itself in one.

use std::net::Ipv4Addr;
use std::process::Command;

use serde_json::Value;

use crate::plane::skipped;

/// The environment variable that marks such a namespace.
const INSIDE: &str = "WEIR_TEST_OWN_NETWORK";

/// Runs an ignored test of this program in a new network namespace, whose loopback interface is up. If the namespace
/// cannot be created, the test reports that it is skipped; in CI it fails.
///
/// # Panics
/// If the test fails.
pub fn in_own_network(test: &str) {
    let unshare = |words: &[&str]| Command::new("unshare").arg("--net").args(words).output();
    if !unshare(&["ip", "link", "set", "lo", "up"]).is_ok_and(|output| output.status.success()) {
        return skipped("no network namespace can be had here");
    }
    let program = std::env::current_exe().unwrap().display().to_string();
    let inside = format!("{INSIDE}=1");
    let script = r#"ip link set lo up && exec env "$@""#;
    let output =
        unshare(&["sh", "-c", script, "sh", &inside, &program, "--exact", test, "--ignored", "--nocapture"]).unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    print!("{text}");
}

/// Asserts that the test runs in its own namespace. Every such test calls it first.
///
/// # Panics
/// If the test was started directly. It would change the interfaces of this machine.
pub fn expect_own_network() {
    assert!(std::env::var_os(INSIDE).is_some(), "it would change the interfaces of this machine");
}

/// An address of the test's namespace to which each node has a route through its uplink only.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);

/// A network namespace of a node. It has an uplink to the namespace of the test, and a link to the other nodes. Dropping it
/// removes it.
#[derive(Debug)]
pub struct NodeNetwork {
    name: String,
    index: u8,
}

impl NodeNetwork {
    /// Creates the namespaces of this many nodes. The test must run in its own namespace.
    ///
    /// # Panics
    /// If they cannot be created.
    #[must_use]
    pub fn nodes(count: u8) -> Vec<Self> {
        expect_own_network();
        ip("link add near type bridge");
        ip("addr add 10.98.0.254/24 dev near");
        ip("link set near up");
        ip(&format!("addr add {SERVER}/32 dev lo"));
        (0..count).map(Self::new).collect()
    }

    fn new(index: u8) -> Self {
        let network = Self { name: format!("weir-test-{}-{index}", std::process::id()), index };
        let name = &network.name;
        ip(&format!("netns add {name}"));
        for (outer, inner) in [(format!("up{index}"), "uplink"), (format!("near{index}"), "near")] {
            ip(&format!("link add {outer} type veth peer name {inner} netns {name}"));
            ip(&format!("link set dev {outer} up"));
            ip(&format!("-n {name} link set dev {inner} up"));
        }
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("addr add {}/30 dev up{index}", network.server()));
        ip(&format!("-n {name} addr add 10.99.{index}.2/30 dev uplink"));
        ip(&format!("-n {name} route add {SERVER} via {}", network.server()));
        ip(&format!("link set near{index} master near"));
        ip(&format!("-n {name} addr add {}/24 dev near", network.address()));
        network
    }

    /// The name for [`crate::daemon::Setup::network`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the node for the other nodes and for the test.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 98, 0, self.index + 1)
    }

    /// The address of the test's namespace at the other end of the uplink.
    #[must_use]
    pub fn server(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.index, 1)
    }

    /// From now on, the uplink drops all packets without an error.
    pub fn cut_uplink(&self) {
        ip(&format!("link set dev up{} down", self.index));
    }

    /// The uplink works again.
    pub fn mend_uplink(&self) {
        ip(&format!("link set dev up{} up", self.index));
    }

    /// The bytes that the uplink has carried in both directions.
    #[must_use]
    pub fn uplink_bytes(&self) -> u64 {
        let links: Value = serde_json::from_slice(&ip(&format!("-s -j link show up{}", self.index))).unwrap();
        let counters = &links[0]["stats64"];
        counters["rx"]["bytes"].as_u64().unwrap() + counters["tx"]["bytes"].as_u64().unwrap()
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(words: &str) -> Vec<u8> {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
