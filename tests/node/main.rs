//! A real node as a test: kubelet, containerd, kube-proxy and CoreDNS, all of them clients of Weir as `deploy/` installs it.
//!
//! `make node` builds what it needs. The program starts itself again inside mount, network, PID and UTS namespaces of its
//! own, and process 1 in there is a shell that reaps orphans. Whatever happens, all of it ends with that shell, and the
//! machine stays as it was. A second network namespace holds the control plane, behind one link.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod checks;
mod cluster;
mod images;
mod kubectl;
mod machine;
mod parts;
mod runner;

use std::path::PathBuf;
use std::process::ExitCode;

use weir_tests::built;

/// Given to the program inside the namespaces.
const INSIDE: &str = "--inside";

/// The node's name, which `deploy/impersonation.yaml` has as its example.
const NODE: &str = "edge-a";
/// The two ends of the link between the node and the control plane.
const NODE_ADDRESS: &str = "10.250.0.2";
const CLOUD_ADDRESS: &str = "10.250.0.1";
/// What `deploy/node.yaml` names.
const SERVER_NAME: &str = "apiserver.example.internal";
/// Weir's HTTPS port, as in `deploy/`.
const WEIR: &str = "https://169.254.20.10:10268";

/// Where `make node` puts what it builds and downloads.
fn folder() -> PathBuf {
    built::target().join("node")
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(INSIDE) {
        return inside();
    }
    if let Some(missing) = machine::missing() {
        println!("\n!!! SKIPPED: the test of a real node did not run: {missing} !!!\n");
        return ExitCode::SUCCESS;
    }
    machine::enter()
}

fn inside() -> ExitCode {
    let machine = machine::Machine::make();
    let mut runner = runner::Runner::new(machine.logs());
    checks::run(&machine, &mut runner);
    runner.finish()
}
