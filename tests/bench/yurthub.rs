//! Compares Weir with OpenYurt's YurtHub, in the same run, with the same data and the filters that both have. YURTHUB.md
//! says how to build YurtHub. The variable `YURTHUB` names its program. Without it, these parts print a line and measure
//! nothing.
//!
//! The in-memory API server and the clients run in the bench's own process: of the two proxies, CPU time and memory are
//! those of their processes alone. The API server speaks TLS, because YurtHub accepts no other.

use std::path::PathBuf;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::pki::Authority;

mod behaviour;
mod changes;
mod lists;
mod process;
mod watches;

pub(crate) use self::behaviour::behaviour;
pub(crate) use self::changes::changes;
pub(crate) use self::lists::lists;
use self::process::YurtHub;
pub(crate) use self::watches::watches;
use crate::data;
use crate::list::Kind;

/// An API server behind TLS.
struct Scene {
    ca: Authority,
    server: ApiServer,
}

/// A running proxy.
enum Proxy {
    Weir(Box<Daemon>),
    YurtHub(YurtHub),
}

/// A Service as [`data::service`] has it. Of a load balancer it has the annotation without which YurtHub hides none from
/// kube-proxy.
fn service(n: usize) -> Value {
    let mut service = data::service(n);
    if service["spec"]["type"] == "LoadBalancer" {
        service["metadata"]["annotations"]["svc.openyurt.io/discard"] = json!("true");
    }
    service
}

/// The program that `YURTHUB` names.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("YURTHUB").map(PathBuf::from);
    match &program {
        None => println!("\nYurtHub is not measured: the variable YURTHUB names no program (tests/bench/YURTHUB.md)"),
        Some(program) => assert!(program.exists(), "YURTHUB={} is not there", program.display()),
    }
    program
}

// === impl Scene ===

impl Scene {
    /// A server with these objects, and those that filters look up.
    async fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let ca = Authority::new("bench");
        let pair = ca.server();
        let server = ApiServer::builder().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).start().await.unwrap();
        // YurtHub puts the address of this Service into its certificate.
        let kubernetes = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP", "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}
        });
        for object in data::cluster().into_iter().chain([kubernetes]).chain(objects) {
            server.store().put(object).unwrap();
        }
        Self { ca, server }
    }

    /// The settings of Weir with the four filters that YurtHub has for kube-proxy, and with its caches on disk.
    fn weir(&self) -> Setup {
        let filters: Vec<_> = Kind::BOTH.iter().flat_map(|kind| kind.filters()).collect();
        let settings = |name: &str| if name == "nodeportisolation" { "{whenClosed: drop}" } else { "{}" };
        let line = |name: &str| format!("  - {{name: {name}, module: {name}.wasm, settings: {}}}\n", settings(name));
        let text: String = filters.iter().map(|name| line(name)).collect();
        let setup = Setup::new(self.server.url())
            .flag("--node-name", data::NODE)
            .filters(&format!("filters:\n{text}"))
            .file("--certificate-authority", "ca.crt", self.ca.pem())
            .without("--cache-size");
        let cache = setup.path("cache").display().to_string();
        filters.into_iter().fold(setup, Setup::bundled).flag("--cache-dir", &cache)
    }
}

// === impl Proxy ===

impl Proxy {
    fn name(&self) -> &'static str {
        match self {
            Self::Weir(_) => "Weir",
            Self::YurtHub(_) => "YurtHub",
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Weir(daemon) => daemon.url().to_owned(),
            Self::YurtHub(hub) => hub.url(),
        }
    }

    /// `host:port`
    fn address(&self) -> String {
        self.url().trim_start_matches("http://").to_owned()
    }

    fn id(&self) -> u32 {
        match self {
            Self::Weir(daemon) => daemon.id(),
            Self::YurtHub(hub) => hub.id(),
        }
    }
}

/// Starts Weir, or YurtHub with this program, as they are installed.
async fn start(scene: &Scene, yurthub: Option<&std::path::Path>) -> Proxy {
    match yurthub {
        None => Proxy::Weir(Box::new(scene.weir().start_ready().await)),
        Some(program) => Proxy::YurtHub(YurtHub::start(program, scene, &[]).await),
    }
}
