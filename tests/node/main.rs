//! A real node as a test: kubelet, containerd, kube-proxy and CoreDNS, all of them clients of Weir as `deploy/` installs it.
//!
//! `make node` builds what it needs. The program re-executes itself inside its own mount, network, PID and UTS
//! namespaces, where process 1 is a shell that reaps orphans. Everything ends with that shell, and the machine stays
//! unchanged. A second network namespace holds the control plane, behind one link.

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
mod conformance;
mod guide;
mod heartbeat;
mod images;
mod kubectl;
mod machine;
mod outage;
mod parts;
mod runner;
mod systemd;

use std::path::PathBuf;
use std::process::ExitCode;

use weir_tests::built;
use weir_tests::plane::skipped_part;

/// The argument of the program inside the namespaces.
const INSIDE: &str = "--inside";
/// The argument that runs Kubernetes' conformance suite instead of the checks.
const CONFORMANCE: &str = "conformance";
/// The argument that only reports whether this machine can run the checks.
const REQUIREMENTS: &str = "requirements";

/// The node's name, as in the example of `deploy/impersonation.yaml`.
const NODE: &str = "edge-a";
/// The addresses of the link between the node and the control plane.
const NODE_ADDRESS: &str = "10.250.0.2";
const CLOUD_ADDRESS: &str = "10.250.0.1";
/// The other node of the site, and the addresses of the link between them.
const NEIGHBOUR: &str = "edge-b";
const NEIGHBOUR_ADDRESS: &str = "10.251.0.2";
const NEAR_ADDRESS: &str = "10.251.0.1";
/// The server name in `deploy/node.yaml`.
const SERVER_NAME: &str = "apiserver.example.internal";
/// Weir's HTTPS port, as in `deploy/`.
const WEIR: &str = "https://169.254.20.10:10268";

/// The folder for the files that `make node` builds and downloads.
fn folder() -> PathBuf {
    built::target().join("node")
}

/// A program of the control plane, or of the conformance suite: of the release that the variable `KUBERNETES` names, which
/// `tests/controlplane/release.sh` has built, else of kubelet's release.
fn control_plane(name: &str) -> PathBuf {
    let release = std::env::var("KUBERNETES").ok().filter(|release| !release.is_empty());
    match (release, name) {
        (Some(release), _) => built::target().join("kubernetes").join(release).join(name),
        (None, "controlplane") => built::target().join("controlplane").join(name),
        (None, "node") => folder().join("bin").join(name),
        (None, _) => folder().join(name),
    }
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if systemd::is_called() {
        return systemd::main(&words);
    }
    if words.first().is_some_and(|word| word == INSIDE) {
        return inside(words.iter().any(|word| word == CONFORMANCE));
    }
    if let [first, folder, node] = words.as_slice()
        && first == heartbeat::HEARTBEAT
    {
        return heartbeat::run(folder.as_ref(), node);
    }
    let is_question = words.first().is_some_and(|word| word == REQUIREMENTS);
    if let Some(missing) = machine::missing() {
        if is_question {
            println!("{missing}");
            return ExitCode::FAILURE;
        }
        skipped_part("node", missing);
        return ExitCode::SUCCESS;
    }
    if is_question { ExitCode::SUCCESS } else { machine::enter(&words) }
}

fn inside(conformance: bool) -> ExitCode {
    let machine = machine::Machine::make();
    let mut runner = runner::Runner::new(machine.logs());
    match conformance {
        true => conformance::run(&machine, &mut runner),
        false => checks::run(&machine, &mut runner),
    }
    runner.finish()
}
