//! Measures the cost of TLS. The same lists go over the plain port and over the HTTPS port, with HTTP/1.1 and with
//! HTTP/2, which most Kubernetes clients use. The API server is behind plain HTTP or TLS. Also measures 2,000 idle
//! watches.

use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::pki::Authority;

use crate::data;
use crate::list::{Encoding, Kind, List};
use crate::process::drain;
use crate::table::{Goal, Table, median};
use crate::usage::{processor, resident};

/// The rounds of each measurement. Each round measures every path once.
const ROUNDS: usize = 15;
/// The number of watches.
const WATCHES: usize = 2000;
const CLIENTS: usize = 50;

/// A server, and a daemon in front of it with both ports.
struct Scene {
    ca: Authority,
    server: ApiServer,
    daemon: Daemon,
    secure: String,
}

/// A port of the daemon.
#[derive(Clone, Copy)]
enum Port {
    Plain,
    Https,
    /// HTTPS with HTTP/1.1.
    Https1,
}

impl Scene {
    async fn start(upstream: Port) -> Self {
        let ca = Authority::new("bench");
        let pair = ca.server();
        let builder = match upstream {
            Port::Plain => ApiServer::builder(),
            Port::Https | Port::Https1 => ApiServer::builder().tls(pair.certificate.as_bytes(), pair.key.as_bytes()),
        };
        let server = builder.start().await.unwrap();
        for object in data::lookups() {
            server.store().put(object).unwrap();
        }
        let filters: Vec<_> = Kind::BOTH.iter().flat_map(|kind| kind.filters()).collect();
        // With a free port, filters get no address for pods.
        let settings =
            |name: &&str| if *name == "forwardkubesvctraffic" { "{host: 169.254.20.10, port: 10268}" } else { "{}" };
        let text: String = filters
            .iter()
            .map(|name| format!("  - {{name: {name}, module: {name}.wasm, settings: {}}}\n", settings(name)))
            .collect();
        let setup = Setup::new(server.url())
            .flag("--node-name", data::NODE)
            .filters(&format!("filters:\n{text}"))
            .file("--certificate-authority", "ca.crt", ca.pem())
            .tls(&pair);
        let daemon = filters.into_iter().fold(setup, Setup::bundled).start_ready().await;
        let secure = daemon.secure_url().await;
        Self { ca, server, daemon, secure }
    }

    fn client(&self, port: Port) -> Client {
        match port {
            Port::Plain => self.daemon.client("kube-proxy"),
            Port::Https => Client::trusting(&self.secure, "kube-proxy", Some(self.ca.pem()), None),
            Port::Https1 => Client::http1(&self.secure, "kube-proxy", self.ca.pem()),
        }
    }
}

/// Measures the daemon's CPU time per GB.
pub(crate) async fn lists(table: &mut Table) {
    for (upstream, words) in [(Port::Https, "TLS"), (Port::Plain, "plain HTTP")] {
        let scene = Scene::start(upstream).await;
        table.heading(&format!(
            "Lists over the plain port and over HTTPS, the API server with {words}: CPU time of the daemon"
        ));
        table.columns("CPU s per GB", &["plain", "HTTPS, 1.1", "times", "HTTPS, 2", "times"]);
        for kind in Kind::BOTH {
            for encoding in Encoding::BOTH {
                let list = kind.list(encoding, if matches!(kind, Kind::Services) { 15_000 } else { 1000 });
                scene.server.fix(kind.path(), encoding.media().parse().unwrap(), list.whole());
                let [plain, https1, https] = scene.measured(&list).await;
                let (times1, times) = (https1 / plain, https / plain);
                table.cells(&list.name(), &[plain, https1, times1, https, times].map(Some));
                for (http, times) in [("HTTP/1.1", times1), ("HTTP/2", times)] {
                    let name = format!("{}, {http}, API server behind {words}: TLS over plain", list.name());
                    table.keep(&name, times, "times", Goal::Under(1.3));
                }
            }
        }
    }
}

impl Scene {
    /// Returns CPU seconds per GB from the server: plain, HTTPS with HTTP/1.1, HTTPS with HTTP/2.
    async fn measured(&self, list: &List) -> [f64; 3] {
        let ports = [Port::Plain, Port::Https1, Port::Https];
        let clients = ports.map(|port| self.client(port).with("accept", list.encoding.media()));
        let mut used = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..=ROUNDS {
            for (client, used) in clients.iter().zip(&mut used) {
                let before = processor(self.daemon.id());
                drain(client, list.kind.path()).await;
                // The first round warms up.
                if round > 0 {
                    used.push((processor(self.daemon.id()) - before) / (list.bytes() as f64 / 1e9));
                }
            }
        }
        used.map(median)
    }
}

/// Measures resident memory with idle watches.
pub(crate) async fn watches(table: &mut Table) {
    table.heading(&format!(
        "{WATCHES} idle watches of {CLIENTS} clients, half of them filtered, the API server behind TLS"
    ));
    for (port, words) in
        [(Port::Plain, "over the plain port, one connection each"), (Port::Https, "over HTTPS, 40 per connection")]
    {
        let scene = Scene::start(Port::Https).await;
        let clients: Vec<_> = (0..CLIENTS).map(|_| scene.client(port)).collect();
        // Like an informer after its list: the watch starts at the current resource version.
        let list = clients[0].json("/api/v1/services").await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let idle = resident(scene.daemon.id());
        let mut open = Vec::new();
        for n in 0..WATCHES {
            let resource = if n % 2 == 0 { "services" } else { "pods" };
            let path = format!("/api/v1/{resource}?watch=true&resourceVersion={version}");
            open.push(clients[n % CLIENTS].watch(&path).await);
        }
        let mut upstream = scene.server.open_watches();
        let all = upstream.wait_for(|open| *open >= WATCHES);
        tokio::time::timeout(PATIENCE, all).await.expect("all watches are open upstream").unwrap();
        table.row("before", idle, "MB");
        table.goal(&format!("resident, {words}"), resident(scene.daemon.id()), "MB", Goal::Under(100.0));
        drop(open);
    }
}
