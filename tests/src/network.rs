//! Tests that change network interfaces run in their own network namespace. Each re-executes itself in one.

use std::process::Command;

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
        assert!(std::env::var_os("CI").is_none(), "no network namespace can be had here");
        eprintln!("skipped: no network namespace can be had here");
        return;
    }
    let program = std::env::current_exe().unwrap().display().to_string();
    let inside = format!("{INSIDE}=1");
    let script = r#"ip link set lo up && exec env "$@""#;
    let output = unshare(&["sh", "-c", script, "sh", &inside, &program, "--exact", test, "--ignored"]).unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Asserts that the test runs in its own namespace. Every such test calls it first.
///
/// # Panics
/// If the test was started directly. It would change the interfaces of this machine.
pub fn expect_own_network() {
    assert!(std::env::var_os(INSIDE).is_some(), "it would change the interfaces of this machine");
}
