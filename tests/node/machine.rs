//! The node's machine: namespaces, mounts, and two networks with a link between them. Outside, only its cgroups are
//! visible, and they are removed at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::{CLOUD_ADDRESS, INSIDE, NEAR_ADDRESS, NEIGHBOUR_ADDRESS, NODE, NODE_ADDRESS, SERVER_NAME, folder};

/// Host-wide sysctls that kubelet sets or checks. It sees files with the wanted values instead.
const SHADOWED: &[(&str, &str)] = &[
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// A folder on the real disk, and the folder of the logs there.
const DISK: &str = "/mnt/disk";
pub(crate) const LOGS: &str = "/mnt/disk/logs";

/// The folders with a writable overlay, and Debian's packages below it.
const LAYERED: &[&str] = &["etc", "opt", "usr", "var"];

/// The machine, seen from inside its namespaces.
pub(crate) struct Machine {
    disk: PathBuf,
    /// The parent cgroup of all pods.
    pub(crate) cgroup: String,
}

/// The first requirement of this test that this machine lacks.
pub(crate) fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root");
    }
    let unshare = |script: &str| {
        let mut command = unshare();
        command.args(["sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !unshare("true") {
        return Some("the kernel gives no mount, network, PID and UTS namespaces");
    }
    if !unshare(
        "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w && mount -t overlay o -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /etc",
    ) {
        return Some("the kernel has no overlay file system");
    }
    if !unshare("ip link add weir-a type veth peer name weir-b && ip link add weir-c type bridge") {
        return Some("the kernel has no veth pairs or no bridges");
    }
    let debian = folder().join("debian").display().to_string();
    if !unshare(&format!(
        "LD_LIBRARY_PATH=$(echo {debian}/usr/lib/*-linux-gnu) {debian}/usr/sbin/nft \
         'add table ip t; add chain ip t c {{ type nat hook postrouting priority 100; }}; add rule ip t c masquerade'"
    )) {
        return Some("the kernel has no nftables with address translation");
    }
    None
}

/// A command in new namespaces, which end with it.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--propagation", "private", "--"]);
    command
}

/// Re-executes this program inside, waits for it, and removes its cgroups.
pub(crate) fn enter(words: &[String]) -> ExitCode {
    let scratch = folder().join("run");
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch).unwrap();
    let cgroup = format!("weir-node-{}", std::process::id());
    let mut command = unshare();
    // The shell is process 1 and reaps orphans.
    command
        .args(["sh", "-c", r#""$@"; exit $?"#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .arg(INSIDE)
        .arg(&cgroup)
        .args(words);
    // If this process is killed, the inner one sees the end of its standard input.
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let _open = child.stdin.take();
    let status = child.wait().unwrap();
    for path in hierarchies() {
        remove_cgroup(&path.join(&cgroup));
    }
    match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Machine {
    /// Sets up the machine around this process.
    pub(crate) fn make() -> Self {
        let cgroup = std::env::args().nth(2).expect("the outer process names the cgroup");
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(1);
        });
        let machine = Self { disk: PathBuf::from(DISK), cgroup };
        machine.mounts();
        machine.cgroups();
        machine.network();
        machine
    }

    /// A folder on the real disk, for files that an overlay does not support.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.disk.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// The folder of the logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder("logs")
    }

    fn mounts(&self) {
        run("mount", &["-t", "tmpfs", "tmpfs", "/mnt"]);
        std::fs::create_dir(&self.disk).unwrap();
        run("mount", &["--bind", &folder().join("run").display().to_string(), DISK]);
        for name in LAYERED {
            let (upper, work) = (format!("/mnt/upper/{name}"), format!("/mnt/work/{name}"));
            std::fs::create_dir_all(&upper).unwrap();
            std::fs::create_dir_all(&work).unwrap();
            let packages = folder().join("debian").join(name);
            let lower = match packages.exists() {
                true => format!("{}:/{name}", packages.display()),
                false => format!("/{name}"),
            };
            let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
            run("mount", &["-t", "overlay", "overlay", "-o", &options, &format!("/{name}")]);
        }
        run("mount", &["-t", "tmpfs", "tmpfs", "/run"]);
        for name in ["kubelet", "containerd"] {
            let place = format!("/var/lib/{name}");
            std::fs::create_dir_all(&place).unwrap();
            run("mount", &["--bind", &self.folder(name).display().to_string(), &place]);
        }
        run("mount", &["--make-rshared", "/var/lib/kubelet"]);
        for (index, (name, value)) in SHADOWED.iter().enumerate() {
            let shadow = format!("/mnt/sysctl-{index}");
            std::fs::write(&shadow, format!("{value}\n")).unwrap();
            run("mount", &["--bind", &shadow, &format!("/proc/sys/{name}")]);
        }
        std::fs::write("/proc/sys/kernel/hostname", NODE).unwrap();
        replace("/etc/hosts", &format!("127.0.0.1 localhost\n{CLOUD_ADDRESS} {SERVER_NAME}\n"));
        // Pods get this one. No server listens there.
        replace("/etc/resolv.conf", "nameserver 192.0.2.53\n");
    }

    fn cgroups(&self) {
        for path in hierarchies() {
            // Version 2 delegates controllers only where they are enabled.
            if path.join("cgroup.subtree_control").exists() && path == Path::new("/sys/fs/cgroup") {
                let _ = std::fs::write(path.join("cgroup.subtree_control"), "+cpu +cpuset +memory +pids +io");
            }
            std::fs::create_dir(path.join(&self.cgroup)).unwrap();
        }
    }

    fn network(&self) {
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["netns", "add", "cloud"]);
        run("ip", &["link", "add", "cloud", "type", "veth", "peer", "name", "node", "netns", "cloud"]);
        run("ip", &["address", "add", &format!("{NODE_ADDRESS}/24"), "dev", "cloud"]);
        run("ip", &["link", "set", "cloud", "up"]);
        run("ip", &["route", "add", "default", "via", CLOUD_ADDRESS]);
        let cloud = |words: &[&str]| run("ip", &[&["-n", "cloud"], words].concat());
        cloud(&["link", "set", "lo", "up"]);
        cloud(&["address", "add", &format!("{CLOUD_ADDRESS}/24"), "dev", "node"]);
        cloud(&["link", "set", "node", "up"]);
        cloud(&["route", "add", "default", "via", NODE_ADDRESS]);
        neighbour();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        // Responses between two pods of one bridge must pass the rules that translated the request.
        let _ = std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1");
    }
}

/// The network of the other node: an uplink of its own, and a link to this node.
fn neighbour() {
    let near = format!("address add {NEAR_ADDRESS}/24 dev near");
    let far = format!("-n neighbour address add {NEIGHBOUR_ADDRESS}/24 dev near");
    for command in [
        "netns add neighbour",
        "-n neighbour link set lo up",
        "-n cloud link add neighbour type veth peer name uplink netns neighbour",
        "-n cloud address add 10.250.1.1/24 dev neighbour",
        "-n cloud link set neighbour up",
        "-n neighbour address add 10.250.1.2/24 dev uplink",
        "-n neighbour link set uplink up",
        "-n neighbour route add default via 10.250.1.1",
        "link add near type veth peer name near netns neighbour",
        near.as_str(),
        "link set near up",
        far.as_str(),
        "-n neighbour link set near up",
    ] {
        run("ip", &command.split(' ').collect::<Vec<_>>());
    }
}

/// Runs a command that must succeed.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {}: {}", words.join(" "), text(&output.stderr));
    text(&output.stdout)
}

/// Replaces a file or link with a file of its own.
pub(crate) fn replace(path: &str, text: &str) {
    let _ = std::fs::remove_file(path);
    std::fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The roots of the cgroup hierarchies: several in version 1, one in version 2.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.filter(|words| matches!(words[2], "cgroup" | "cgroup2")).map(|words| PathBuf::from(words[1])).collect()
}

/// Removes the cgroups of all pods.
pub(crate) fn remove_pod_cgroups(cgroup: &str) {
    for hierarchy in hierarchies() {
        remove_cgroups_below(&hierarchy.join(cgroup));
    }
}

fn remove_cgroups_below(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
}

/// Its processes ended with their namespace, but perhaps not yet.
fn remove_cgroup(path: &Path) {
    remove_cgroups_below(path);
    for _ in 0..100 {
        if std::fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    println!("the cgroup {} could not be removed", path.display());
}
