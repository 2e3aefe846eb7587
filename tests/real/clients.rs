//! client-go and kube-proxy's packages: programs of `tests/controlplane/cmd/client`, which check the results
//! themselves.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;
use weir_tests::built;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{self, Plane};

/// The Go client, the control plane, and a daemon on its own node.
struct Clients<'a> {
    program: PathBuf,
    plane: &'a Plane,
    weir: Daemon,
    secure: String,
    node: &'static str,
}

impl<'a> Clients<'a> {
    async fn start(plane: &'a Plane, node: &'static str, kubeconfig: &str, filters: &str) -> Option<Self> {
        Self::start_with(plane, node, kubeconfig, filters, &[]).await
    }

    /// Starts a daemon with further flags.
    async fn start_with(
        plane: &'a Plane,
        node: &'static str,
        kubeconfig: &str,
        filters: &str,
        flags: &[(&str, &str)],
    ) -> Option<Self> {
        let program = plane::program("client")?;
        let setup = Setup::kubeconfig(&plane.kubeconfig(kubeconfig))
            .flag("--node-name", node)
            .flag("--modules-dir", &built::modules().display().to_string())
            .filters(filters);
        let setup = flags.iter().fold(setup, |setup, (name, value)| setup.flag(name, value));
        let weir = plane.secured(setup).start_ready().await;
        let secure = weir.secure_url().await;
        Some(Self { program, plane, weir, secure, node })
    }

    /// Runs a command as this identity at the plain port and asserts success. A failure prints its output.
    async fn run(&self, command: &str, identity: &str, more: &[String]) {
        self.run_at(self.weir.url(), command, identity, more).await;
    }

    /// The same at the HTTPS port, where the client must use HTTP/2.
    async fn run_secure(&self, command: &str, identity: &str, more: &[String]) {
        let ca = ["--weir-ca".to_owned(), self.plane.ca().display().to_string()];
        self.run_at(&self.secure, command, identity, &[&ca, more].concat()).await;
    }

    async fn run_at(&self, url: &str, command: &str, identity: &str, more: &[String]) {
        let output = Command::new(&self.program)
            .arg(command)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig("admin"))
            .args(["--weir", url, "--node", self.node, "--control", self.plane.control()])
            .arg("--token-file")
            .arg(self.plane.token(identity))
            .args(["--admin", self.weir.admin_url()])
            .arg("--config-file")
            .arg(self.weir.path("filters-config.yaml"))
            .args(more)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let log = self.weir.log_text();
            let end: Vec<_> = log.lines().rev().take(40).collect();
            let end: Vec<_> = end.into_iter().rev().collect();
            panic!("{command}: {stdout}{stderr}\nthe end of Weir's log:\n{}", end.join("\n"));
        }
        print!("{stdout}");
    }
}

/// Serves the resources that the clients read from views.
pub(super) const CACHED: [(&str, &str); 1] =
    [("--cache-resources", "services,endpoints,endpointslices.discovery.k8s.io,namespaces,nodes,pods")];

/// Hides LoadBalancers from every client.
const NO_LOAD_BALANCERS: &str = "
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}
";

#[tokio::test]
async fn informers_of_every_kind_hold_the_filtered_objects() {
    let Some(plane) = Plane::shared() else { return };
    informers(plane, &[]).await;
    informers(plane, &CACHED).await;
}

async fn informers(plane: &Plane, flags: &[(&str, &str)]) {
    let started = Clients::start_with(plane, "informers", "weir", NO_LOAD_BALANCERS, flags).await;
    let Some(clients) = started else { return };
    for begin in ["--watch-list=false", "--watch-list=true"] {
        clients.run("informers", "admin", &[begin.to_owned()]).await;
        clients.run_secure("informers", "admin", &[begin.to_owned()]).await;
    }
}

/// The bundled filters for kube-proxy with their modules' own match rules.
const FOR_KUBE_PROXY: &str = "
filters:
  - {name: servicetopology, module: servicetopology.wasm}
  - {name: discardcloudservice, module: discardcloudservice.wasm}
  - {name: nodeportisolation, module: nodeportisolation.wasm}
";

#[tokio::test]
async fn kube_proxys_rules_follow_pools_and_annotations() {
    let Some(plane) = Plane::shared() else { return };
    let Some(clients) = Clients::start(plane, "proxy-a", "weir", FOR_KUBE_PROXY).await else { return };
    clients.run("proxy", "kube-proxy", &[]).await;
}
