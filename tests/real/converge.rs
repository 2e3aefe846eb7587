//! Caches behind Weir converge with the API server, whatever happens to the objects, the filters, the connections, and
//! in the second form to the daemon and its machine. The program is `converge` of `tests/controlplane/cmd/client`.
//!
//! The clients wait as client-go does before they connect again. Each must have converged within five seconds of an open watch, and
//! none may ever get an old or a deleted object: `tests/controlplane/internal/promises` says what is checked.
//!
//! `WEIR_MUTATIONS` sets the length, `WEIR_SEED` repeats a run, `WEIR_FAULTS` has the daemon fail as many times as often;
//! `make converge` sets all three. A failed run leaves every operation, every fault, and what each client has requested, received
//! and held in `converge/SEED/FORM` of the target folder, with Weir's log. `WEIR_CLIENT_LOG` names a
//! file for client-go's log. `WEIR_TEST_LOG` prints Weir's log.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use weir_tests::built;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::machine::Machine;
use weir_tests::plane::{self, Plane};

use super::clients::CACHED;
use super::random;

const NODE: &str = "converge";

#[tokio::test]
async fn caches_behind_weir_converge_whatever_happens() {
    let Some(plane) = Plane::own() else { return };
    converge(&plane, "streams", setup(&plane), None).await;
}

/// The same with every client served from views.
#[tokio::test]
async fn caches_behind_views_converge_whatever_happens() {
    let Some(plane) = Plane::own() else { return };
    let cache = tempfile::tempdir().unwrap();
    converge(&plane, "views", cached(&plane, cache.path()), None).await;
}

/// The same while the daemon is killed, its disk fills up, its clock jumps, and the API server goes out of reach.
#[tokio::test]
async fn caches_behind_views_converge_whatever_happens_to_the_daemon() {
    let Some(plane) = Plane::own() else { return };
    let Some(machine) = Machine::new() else { return };
    let cache = tempfile::tempdir().unwrap();
    let node = plane.kubeconfig("converge-cut").display().to_string();
    let setup = keeping_ports(cached(&plane, cache.path())).flag("--node-kubeconfig", &node);
    let setup = boot(setup);
    converge(&plane, "faults", machine.run(setup, cache.path()), Some(&machine)).await;
}

fn cached(plane: &Plane, folder: &Path) -> Setup {
    let setup = CACHED.iter().fold(setup(plane), |setup, (name, value)| setup.flag(name, value));
    setup
        .flag("--cache-dir", &folder.display().to_string())
        .flag("--cache-size", "64Mi")
        .flag("--cache-commit-interval", "100ms")
}

fn setup(plane: &Plane) -> Setup {
    let setup = Setup::kubeconfig(&plane.kubeconfig("weir-cut"))
        .flag("--node-name", NODE)
        .flag("--modules-dir", &built::modules().display().to_string())
        .filters("filters: []\n");
    plane.secured(setup)
}

/// Clients find a restarted daemon at the same ports. They are below those that the kernel gives to connections, which
/// could take them in the meantime.
fn keeping_ports(setup: Setup) -> Setup {
    let first = 12_000 + (std::process::id() % 1_800) as u16 * 10;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut ports = (first..).filter(free).map(|port| port.to_string());
    ["--port", "--admin-port", "--secure-port"]
        .into_iter()
        .fold(setup, |setup, flag| setup.flag(flag, &ports.next().unwrap()))
}

/// A setting of the run; `None` if it is absent or empty.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Runs one form of the test, whose name is that of its folder.
async fn converge(plane: &Plane, form: &str, setup: Setup, machine: Option<&Machine>) {
    let Some(program) = plane::program("client") else { return };
    let seed = setting("WEIR_SEED").unwrap_or_else(|| (random::seed() % 1_000_000).to_string());
    let record = built::target().join("converge").join(&seed).join(form);
    let mut weir = setup.start_ready().await;
    let mut command = Command::new(program);
    command
        .arg("converge")
        .arg("--kubeconfig")
        .arg(plane.kubeconfig("admin"))
        .args(["--weir", weir.url(), "--secure-weir", &weir.secure_url().await, "--node", NODE])
        .args(["--control", plane.control(), "--admin", weir.admin_url()])
        .arg("--weir-ca")
        .arg(plane.ca())
        .arg("--token-file")
        .arg(plane.token("admin"))
        .arg("--config-file")
        .arg(weir.path("filters-config.yaml"))
        .args(["--seed", &seed, "--record"])
        .arg(&record);
    for (name, flag) in [("WEIR_MUTATIONS", "--mutations"), ("WEIR_FAULTS", "--faults"), ("WEIR_CLIENT_LOG", "--log")] {
        if let Some(value) = setting(name) {
            command.arg(flag).arg(value);
        }
    }
    if setting("WEIR_MUTATIONS").is_none() {
        // A restart of the daemon costs as much as some hundred changes, and client-go's back-off as much as many.
        command.args(["--mutations", if machine.is_some() { "600" } else { "1000" }]);
    }
    if machine.is_some() {
        command.arg("--daemon-commands");
    }
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (mut replies, mut errors) = (client.stdin.take().unwrap(), client.stderr.take().unwrap());
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let Some(asked) = line.strip_prefix('@') else {
            println!("{line}");
            continue;
        };
        if ["kill", "reboot", "stop"].contains(&asked) {
            append(&record.join("weir.log"), &weir.log_text());
        }
        weir = obey(asked, weir, machine.expect("commands are asked for")).await;
        replies.write_all(b"done\n").await.unwrap();
    }
    let mut text = String::new();
    errors.read_to_string(&mut text).await.unwrap();
    if !client.wait().await.unwrap().success() {
        let log = weir.log_text();
        append(&record.join("weir.log"), &log);
        panic!("{text}\nwhat happened is in {}\nthe end of Weir's log:\n{}", record.display(), end_of(&log));
    }
}

/// Adds to a file, with its folder.
fn append(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// From now on the node has been restarted.
fn boot(setup: Setup) -> Setup {
    static BOOTS: AtomicU32 = AtomicU32::new(0);
    setup.file("--boot-id-file", "boot-id", &BOOTS.fetch_add(1, Ordering::Relaxed).to_string())
}

/// Does what the client asks to do to the daemon. The next daemon may have no API server in reach: it only listens.
async fn obey(asked: &str, weir: Daemon, machine: &Machine) -> Daemon {
    match asked.split_once(' ').unwrap_or((asked, "")) {
        ("kill", _) => weir.killed().await.start().await,
        ("reboot", _) => boot(weir.killed().await).start().await,
        ("stop", _) => weir.stopped().await.start().await,
        ("fill", _) => {
            machine.put_disk_full(true);
            weir
        }
        ("free", _) => {
            machine.put_disk_full(false);
            weir
        }
        ("clock", seconds) => {
            machine.put_clock_ahead(seconds.parse().unwrap());
            weir
        }
        other => panic!("unknown command {other:?}"),
    }
}

fn end_of(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
