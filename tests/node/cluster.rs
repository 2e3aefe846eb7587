//! The cluster without Weir: a control plane behind the link, containerd, and the unit of kubelet.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weir_tests::built;

use crate::kubectl::Kubectl;
use crate::machine::{Machine, replace, run};
use crate::parts::Part;
use crate::runner::until;
use crate::{
    CLOUD_ADDRESS, NEIGHBOUR, NEIGHBOUR_ADDRESS, NODE, NODE_ADDRESS, SERVER_NAME, control_plane, folder, images,
    systemd,
};

/// The kubelet's certificate and key, in kubeadm's location.
const KUBELET_PAIR: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const CA: &str = "/etc/kubernetes/pki/ca.crt";
/// Stands in for the kernel's, which does not change: the machine is not really restarted.
const BOOT_ID: &str = "/var/cache/weir/boot-id";
/// The node's kubeconfig, which names the API server itself.
const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
/// Where kubeadm's unit of kubelet takes further flags from.
pub(crate) const KUBELET_ENVIRONMENT: &str = "/etc/default/kubelet";

/// The control plane, in the network namespace at the other end of the link.
pub(crate) struct Cloud {
    _process: Child,
    _scheduler: Part,
    controllers: Option<Part>,
    folder: PathBuf,
}

impl Cloud {
    pub(crate) fn start(machine: &Machine) -> Self {
        let data = machine.folder("plane");
        let deploy = built::workspace().join("deploy");
        let mut process = Command::new("nsenter")
            .arg("--net=/run/netns/cloud")
            .arg(control_plane("controlplane"))
            .args(["--real-node", "--address", CLOUD_ADDRESS])
            .args(["--names", &format!("{SERVER_NAME},{CLOUD_ADDRESS},{NODE_ADDRESS},{NEIGHBOUR_ADDRESS}")])
            .arg("--data-dir")
            .arg(&data)
            .arg("--apply")
            .arg(deploy.join("rbac.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let _ready: Value = serde_json::from_str(&line).expect("the control plane starts; it says above what is wrong");
        let kubeconfig = data.join("scheduler.kubeconfig").display().to_string();
        let words = [format!("--kubeconfig={kubeconfig}"), "--leader-elect=false".to_owned()];
        let scheduler = in_cloud(machine, "kube-scheduler", &words);
        let mut cloud = Self { _process: process, _scheduler: scheduler, controllers: None, folder: data };
        cloud.restart_controllers(machine, &[]);
        cloud
    }

    /// Starts kube-controller-manager with more flags, instead of the one that runs.
    pub(crate) fn restart_controllers(&mut self, machine: &Machine, flags: &[&str]) {
        drop(self.controllers.take());
        let file = |name: &str| self.file(name).display().to_string();
        let mut words = vec![
            format!("--kubeconfig={}", file("controller-manager.kubeconfig")),
            "--use-service-account-credentials".to_owned(),
            format!("--service-account-private-key-file={}", file("accounts.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--cluster-signing-cert-file={}", file("ca.crt")),
            format!("--cluster-signing-key-file={}", file("ca.key")),
            "--leader-elect=false".to_owned(),
        ];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.controllers = Some(in_cloud(machine, "kube-controller-manager", &words));
    }

    /// The path of a file of the control plane.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    /// kubectl as the administrator, without Weir.
    pub(crate) fn admin(&self) -> Kubectl {
        Kubectl::new(&self.file("admin.kubeconfig"))
    }
}

/// Starts a program of the control plane.
fn in_cloud(machine: &Machine, name: &'static str, words: &[String]) -> Part {
    let first = ["--net=/run/netns/cloud".to_owned(), program(name)];
    Part::start(machine, name, "nsenter", &[&first, words].concat())
}

/// Starts containerd and imports the images of the pods.
pub(crate) fn start_containerd(machine: &Machine) -> Part {
    let config = format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{}"
disable_apparmor = true
# There is no CAP_SYS_RESOURCE here, which negative scores need.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
"#,
        images::PAUSE
    );
    replace("/etc/containerd/config.toml", &config);
    network("10.244.0.2");
    replace(BOOT_ID, "1\n");
    let part = start_containerd_again(machine);
    images::import(machine);
    part
}

/// Gives the pods addresses from this one on.
fn network(first: &str) {
    let range = format!(r#"{{"subnet": "10.244.0.0/24", "rangeStart": "{first}"}}"#);
    replace(
        "/etc/cni/net.d/10-bridge.conflist",
        &format!(
            r#"{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{"type": "bridge", "bridge": "cni0", "isGateway": true,
            "hairpinMode": true, "ipam": {{"type": "host-local", "ranges": [[{range}]],
            "routes": [{{"dst": "0.0.0.0/0"}}]}}}}, {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}"#
        ),
    );
}

/// What a restart of the machine changes: its boot id, and the addresses that pods get.
pub(crate) fn restart() {
    network("10.244.0.100");
    replace(BOOT_ID, "2\n");
}

/// Starts containerd with the configuration and the images that it has.
pub(crate) fn start_containerd_again(machine: &Machine) -> Part {
    let mut part = Part::start(machine, "containerd", "containerd", &[]);
    until("containerd responds", || {
        part.assert_alive();
        UnixStream::connect("/run/containerd/containerd.sock").map_err(|error| error.to_string())
    });
    part
}

/// Installs the files that kubeadm gives a node: the CA, and kubelet's credential.
pub(crate) fn join(machine: &Machine, cloud: &Cloud) {
    replace(CA, &cloud.read("ca.crt"));
    replace(KUBELET_PAIR, &(cloud.read("node.crt") + &cloud.read("node.key")));
    replace(KUBELET_CONF, &kubeconfig(&format!("https://{SERVER_NAME}:6443")));
    for name in ["kubelet.crt", "kubelet.key"] {
        replace(&format!("/var/lib/kubelet/pki/{name}"), &cloud.read(name));
    }
    kubelet_config(machine, "");
    std::fs::create_dir_all("/etc/kubernetes/manifests").unwrap();
    systemd::install();
    let unit = format!(
        "[Service]\nEnvironmentFile=-{KUBELET_ENVIRONMENT}\nExecStart={} --config=/var/lib/kubelet/config.yaml \
         --kubeconfig={KUBELET_CONF} --hostname-override={NODE} --node-ip={NODE_ADDRESS} --v=2 $KUBELET_EXTRA_ARGS\n",
        program("kubelet")
    );
    replace("/etc/systemd/system/kubelet.service", &unit);
    replace(KUBELET_ENVIRONMENT, "");
}

/// Writes kubelet's configuration, with more lines.
pub(crate) fn kubelet_config(machine: &Machine, more: &str) {
    let config = include_str!("manifests/kubelet.yaml").replace("CGROUP", &machine.cgroup);
    replace("/var/lib/kubelet/config.yaml", &(config + more));
}

/// A kubeconfig with kubelet's certificate.
fn kubeconfig(server: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: node,\n\
         clusters: [{{name: cluster, cluster: {{server: '{server}', certificate-authority: {CA}}}}}],\n\
         users: [{{name: node, user: {{client-certificate: {KUBELET_PAIR}, client-key: {KUBELET_PAIR}}}}}],\n\
         contexts: [{{name: node, context: {{cluster: cluster, user: node}}}}]}}\n"
    )
}

/// A program of `tests/controlplane/node`. It is one binary that acts by its name, which is also its User-Agent. kubelet's
/// release may be older than the control plane's.
fn program(name: &str) -> String {
    let link = PathBuf::from("/run").join(name);
    if !link.exists() {
        let binary = match name {
            "kubelet" => folder().join("bin").join("node"),
            _ => control_plane("node"),
        };
        std::os::unix::fs::symlink(binary, &link).unwrap();
    }
    link.display().to_string()
}

/// An example of `deploy/clients`, unchanged.
pub(crate) fn example(name: &str) -> PathBuf {
    built::workspace().join("deploy").join("clients").join(name)
}

/// The reachable part of kube-proxy's rules: it removes unused chains of former endpoints only later.
pub(crate) fn rules() -> String {
    let text = run("nft", &["list", "table", "ip", "kube-proxy"]);
    text.lines().filter(|line| line.contains("goto")).collect::<Vec<_>>().join("\n")
}

/// Kills a process of a container, as in a crash.
pub(crate) fn kill_container(program: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.trim_end() == program {
            run("kill", &["-KILL", &entry.file_name().display().to_string()]);
        }
    }
}

/// Starts the Weir of the other node. Its clients are the tests, and the Weir of this node.
pub(crate) fn start_neighbour(machine: &Machine, cloud: &Cloud) -> Part {
    let file = |name: &str| cloud.file(name).display().to_string();
    let words = [
        "--net=/run/netns/neighbour".to_owned(),
        built::weir().display().to_string(),
        "serve".to_owned(),
        // Of the same server by the same name, as on every node.
        "--kubeconfig=/etc/weir/kubeconfig".to_owned(),
        format!("--node-name={NEIGHBOUR}"),
        format!("--node-kubeconfig={}", file("neighbour.kubeconfig")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--secure-bind-address={NEIGHBOUR_ADDRESS}"),
        format!("--tls-cert-file={}", file("kubelet.crt")),
        format!("--tls-private-key-file={}", file("kubelet.key")),
        format!("--peer={NODE}=https://{}:10268", crate::NEAR_ADDRESS),
        format!("--modules-dir={}", built::target().join("modules").display()),
        format!("--cache-dir={}", machine.folder("neighbour").display()),
    ];
    Part::start(machine, "neighbour", "nsenter", &words)
}

/// Weir's static pod of `deploy/`, with the other node as its peer. The variable `WEIR_FLAGS` adds flags to it.
pub(crate) fn static_pod() -> String {
    let manifest = std::fs::read_to_string(deploy("static-pod.yaml")).unwrap();
    let peer = format!("--peer={NEIGHBOUR}=https://{NEIGHBOUR_ADDRESS}:10268");
    let flags = std::env::var("WEIR_FLAGS").unwrap_or_default() + &format!(" --boot-id-file={BOOT_ID} {peer}");
    let flags: String = flags.split_whitespace().map(|flag| format!("        - {flag}\n")).collect();
    manifest.replacen("        - serve\n", &format!("        - serve\n{flags}"), 1)
}

/// A file of `deploy/`.
pub(crate) fn deploy(name: &str) -> PathBuf {
    let path = built::workspace().join("deploy").join(name);
    assert!(Path::new(&path).exists(), "{}", path.display());
    path
}
