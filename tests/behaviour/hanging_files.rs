//! File systems stop answering, one after the other and all at once: the daemon serves, is alive, says which path hangs, and ends.
//! What changes after it is noticed. The log, too, may be a pipe that nobody reads.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_apiserver::{ApiServer, Recorded};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup, manifest};
use weir_tests::hanging_folder::HangingFolder;
use weir_tests::pki::{Authority, Pair, kubeconfig};
use weir_tests::until;
use weir_tests::{built, daemon};

use super::NO_LOAD_BALANCERS;
use super::offline::committed;
use super::secure::{der, request_after_reload, secure_edge};

const SERVICES: &str = "/api/v1/services";
const FILTERED: [&str; 3] = ["dashboard", "kubernetes", "web"];
/// More than three scans of watched directories.
const SCANS: Duration = Duration::from_secs(16);
/// How long an answer may take: the first read of a resource waits two seconds for a disk that hangs.
const ANSWER: Duration = Duration::from_secs(4);
const DRAIN: Duration = Duration::from_secs(3);

/// What a daemon reads or writes. Each is on a mount of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Modules,
    Configuration,
    Kubeconfig,
    Token,
    ClientCertificate,
    Authority,
    ServingCertificate,
    Cache,
}

use Kind::{Cache, ClientCertificate, Configuration, Kubeconfig, Modules, ServingCertificate, Token};

const ALL: [Kind; 8] =
    [Modules, Configuration, Kubeconfig, Token, ClientCertificate, Kind::Authority, ServingCertificate, Cache];

/// A daemon all of whose files are on such mounts.
struct Site {
    weir: Option<Daemon>,
    /// After the daemon, so that none is unmounted under it.
    folders: Vec<(HangingFolder, tempfile::TempDir)>,
    server: ApiServer,
    cluster: Authority,
    clients: Authority,
    secure: Authority,
}

impl Site {
    /// Returns `None` where no such folder can be mounted.
    async fn new() -> Option<Self> {
        let mut folders = Vec::new();
        for _ in ALL {
            let backing = tempfile::tempdir().unwrap();
            folders.push((HangingFolder::new(backing.path())?, backing));
        }
        let [cluster, clients, secure] = ["cluster", "clients", "secure"].map(Authority::new);
        let server = secure_edge(&cluster.server(), Some(&clients)).await;
        let mut site = Self { weir: None, folders, server, cluster, clients, secure };
        site.write_files();
        site.weir = Some(site.setup().start_ready().await);
        assert_eq!(site.names().await, FILTERED);
        Some(site)
    }

    fn folder(&mut self, kind: Kind) -> &mut HangingFolder {
        &mut self.folders[kind as usize].0
    }

    fn path(&self, kind: Kind, name: &str) -> PathBuf {
        self.folders[kind as usize].0.join(name)
    }

    fn write(&self, kind: Kind, name: &str, content: impl AsRef<[u8]>) {
        daemon::replace(&self.path(kind, name), content.as_ref());
    }

    fn write_pair(&self, kind: Kind, pair: &Pair) {
        self.write(kind, "tls.key", &pair.key);
        self.write(kind, "tls.crt", &pair.certificate);
    }

    /// Puts a bundled module in the place of the configured one.
    fn write_module(&self, name: &str) {
        let bytes = std::fs::read(built::module(name)).unwrap();
        self.write(Modules, "modules/discardcloudservice.wasm", bytes);
    }

    fn write_files(&self) {
        std::fs::create_dir(self.path(Modules, "modules")).unwrap();
        self.write_module("discardcloudservice");
        self.write(Configuration, "filters.yaml", manifest(NO_LOAD_BALANCERS));
        self.write(Kubeconfig, "config", self.kubeconfig("token"));
        self.write(Token, "token", "one");
        self.write(Token, "other", "other");
        self.write_pair(ClientCertificate, &self.clients.client("weir", "a"));
        self.write(Kind::Authority, "ca.crt", self.cluster.pem());
        self.write_pair(ServingCertificate, &self.secure.server());
    }

    /// The daemon's credential is in files, which the kubeconfig names.
    fn kubeconfig(&self, token: &str) -> String {
        let path = |kind, name| self.path(kind, name).display().to_string();
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c,
              clusters: [{{name: a, cluster: {{server: \"{}\", certificate-authority: {}}}}}],
              users: [{{name: u, user: {{tokenFile: {}, client-certificate: {}, client-key: {}}}}}],
              contexts: [{{name: c, context: {{cluster: a, user: u}}}}]}}",
            self.server.url(),
            path(Kind::Authority, "ca.crt"),
            path(Token, token),
            path(ClientCertificate, "tls.crt"),
            path(ClientCertificate, "tls.key"),
        )
    }

    fn setup(&self) -> Setup {
        let path = |kind, name: &str| self.path(kind, name).display().to_string();
        Setup::kubeconfig(&self.path(Kubeconfig, "config"))
            .on_disk(&self.path(Cache, "cache"))
            .flag("--modules-dir", &path(Modules, "modules"))
            .flag("--config-file", &path(Configuration, "filters.yaml"))
            .flag("--tls-cert-file", &path(ServingCertificate, "tls.crt"))
            .flag("--tls-private-key-file", &path(ServingCertificate, "tls.key"))
            .flag("--drain-timeout", &format!("{DRAIN:?}"))
    }

    fn weir(&self) -> &Daemon {
        self.weir.as_ref().unwrap()
    }

    async fn names(&self) -> Vec<String> {
        self.weir().client("kube-proxy").names(SERVICES).await
    }

    /// The daemon is alive, and filters what it serves: from its caches, from the API server, and over TLS.
    async fn answers(&self) {
        let weir = self.weir();
        assert_eq!(in_time(&weir.admin(), "/livez").await, 200);
        for path in [SERVICES, "/api/v1/services?resourceVersion=0"] {
            let client = weir.client("kube-proxy");
            let names = tokio::time::timeout(ANSWER, client.names(path)).await;
            let names = names.unwrap_or_else(|_| panic!("no answer to {path} within {ANSWER:?}\n{}", weir.log_text()));
            assert_eq!(names, FILTERED, "{path}");
        }
        let secure = Client::naming(&weir.secure_url().await, "tool", self.secure.pem(), "localhost");
        assert_eq!(in_time(&secure, "/api/v1/nodes").await, 200);
    }

    /// These folders hang for several scans: the daemon serves as before, and its log names each of them.
    async fn hang(&mut self, kinds: &[Kind]) {
        let (from, threads) = (self.weir().log_length(), self.threads());
        for kind in kinds {
            self.folder(*kind).hang();
        }
        let begun = Instant::now();
        while begun.elapsed() < SCANS {
            // Something to keep on disk.
            let label = json!({"n": format!("{:?}", begun.elapsed())});
            self.server
                .store()
                .edit("v1", "Service", "default", "web", |web| web["metadata"]["labels"] = label.clone());
            self.answers().await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let warnings = self.weir().warnings_after(from);
        for kind in kinds {
            let mount = self.folders[*kind as usize].0.path().display().to_string();
            let naming: Vec<_> = warnings.iter().filter(|line| line.contains(&mount)).collect();
            assert!(!naming.is_empty(), "{kind:?}: no warning names {mount}\n{}", self.weir().log_text());
            let once: std::collections::BTreeSet<_> = naming.iter().collect();
            assert_eq!(once.len(), naming.len(), "{kind:?}: a warning is repeated: {naming:#?}");
        }
        // One that waits for each mount, and a few that have come or gone for other reasons.
        assert!(self.threads() <= threads + kinds.len() + 4, "{threads} threads before, {} now", self.threads());
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.weir().id())).unwrap().count()
    }

    /// A change after the hang counts.
    async fn change(&self, kind: Kind) {
        let (weir, from) = (self.weir(), self.weir().log_length());
        match kind {
            Modules => {
                self.write_module("nodeportisolation");
                weir.logged_after(from, "filter set activated").await;
                assert!(self.names().await.contains(&"shop".to_owned()));
            }
            Configuration => {
                self.write(kind, "filters.yaml", manifest("filters: []"));
                weir.logged_after(from, "filter set activated").await;
                assert!(self.names().await.contains(&"shop".to_owned()));
            }
            Kubeconfig => {
                self.write(kind, "config", self.kubeconfig("other"));
                self.requested(|request| request.header("authorization") == "Bearer other").await;
            }
            Token => {
                self.write(kind, "token", "two");
                self.requested(|request| request.header("authorization") == "Bearer two").await;
            }
            ClientCertificate => {
                let pair = self.clients.client("weir", "b");
                self.write_pair(kind, &pair);
                let certificate = der(&pair);
                self.requested(move |request| request.certificate.as_deref() == Some(&certificate)).await;
            }
            Kind::Authority => {
                self.write(kind, "ca.crt", format!("{}{}", self.cluster.pem(), Authority::new("next").pem()));
                weir.logged_after(from, "reloaded credential").await;
            }
            ServingCertificate => {
                self.write_pair(kind, &self.secure.server());
                weir.logged_after(from, "reloaded certificate of the HTTPS port").await;
            }
            Cache => {
                let commit = committed(&self.server, weir);
                tokio::time::timeout(PATIENCE, commit).await.expect("caches are committed again");
            }
        }
    }

    async fn requested(&self, condition: impl Fn(&Recorded) -> bool) {
        // A request that ends makes a new one for the same connection.
        self.server.clear_requests();
        request_after_reload(self.weir(), &self.server, condition).await;
    }

    /// SIGTERM ends the daemon in time while these folders hang.
    async fn stop(&mut self, kinds: &[Kind]) {
        for kind in kinds {
            self.folder(*kind).hang();
        }
        let (weir, begun) = (self.weir.take().unwrap(), Instant::now());
        let code = weir.stop().await;
        assert!(begun.elapsed() < DRAIN + Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(code, Some(0));
    }
}

async fn in_time(client: &Client, path: &str) -> http::StatusCode {
    let answer = tokio::time::timeout(ANSWER, client.get(path)).await;
    answer.unwrap_or_else(|_| panic!("no answer to {path} within {ANSWER:?}")).status
}

/// The daemon lives with these folders hanging, notices changes when they answer again, and ends while they hang again.
async fn survives(kinds: &[Kind]) {
    let Some(mut site) = Site::new().await else { return };
    site.hang(kinds).await;
    for kind in kinds {
        site.folder(*kind).release();
    }
    for kind in kinds {
        site.change(*kind).await;
    }
    site.stop(kinds).await;
}

#[tokio::test]
async fn the_modules_folder_may_hang() {
    survives(&[Modules]).await;
}

#[tokio::test]
async fn the_configuration_file_may_hang() {
    survives(&[Configuration]).await;
}

#[tokio::test]
async fn the_kubeconfig_may_hang() {
    survives(&[Kubeconfig]).await;
}

#[tokio::test]
async fn the_token_file_may_hang() {
    survives(&[Token]).await;
}

#[tokio::test]
async fn the_client_certificate_may_hang() {
    survives(&[ClientCertificate]).await;
}

#[tokio::test]
async fn the_ca_bundle_may_hang() {
    survives(&[Kind::Authority]).await;
}

#[tokio::test]
async fn the_serving_certificate_may_hang() {
    survives(&[ServingCertificate]).await;
}

#[tokio::test]
async fn the_cache_directory_may_hang() {
    survives(&[Cache]).await;
}

#[tokio::test]
async fn every_folder_may_hang_at_once() {
    // A changed kubeconfig would name another token than the one that changes.
    survives(&[
        Modules,
        Token,
        ClientCertificate,
        Kind::Authority,
        ServingCertificate,
        Cache,
        Configuration,
        Kubeconfig,
    ])
    .await;
}

#[tokio::test]
async fn sigterm_ends_a_daemon_whose_folders_have_just_begun_to_hang() {
    let Some(mut site) = Site::new().await else { return };
    site.stop(&ALL).await;
}

#[tokio::test]
async fn modules_and_configuration_may_hang_at_the_start() {
    let Some(mut site) = Site::new().await else { return };
    let setup = site.weir.take().unwrap().stopped().await.flag("--start-wait", "100ms");
    for kind in [Modules, Configuration] {
        site.folder(kind).hang();
    }
    site.weir = Some(setup.start().await);
    let weir = site.weir();
    let (client, begun) = (weir.client("kube-proxy"), Instant::now());
    loop {
        assert_eq!(in_time(&weir.admin(), "/livez").await, 200);
        // Nothing is served unfiltered meanwhile.
        let answer = tokio::time::timeout(ANSWER, client.get(SERVICES)).await.expect("an answer in time");
        if answer.status == 200 {
            assert_eq!(weir_tests::client::names(&answer.json()), FILTERED);
            break;
        }
        assert_eq!(answer.status, 503, "{}", answer.text());
        // No filter matches it.
        if in_time(&client, "/api/v1/nodes").await == 200 && begun.elapsed() > SCANS {
            break;
        }
        assert!(begun.elapsed() < SCANS * 2, "nothing is served\n{}", weir.log_text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for kind in [Modules, Configuration] {
        site.folder(kind).release();
    }
    site.weir().ready().await;
    assert_eq!(site.names().await, FILTERED);
    site.change(Configuration).await;
}

#[tokio::test]
async fn the_node_credential_may_hang_at_the_start() {
    let backing = tempfile::tempdir().unwrap();
    let Some(mut folder) = HangingFolder::new(backing.path()) else { return };
    let server = super::edge().await;
    let credential = kubeconfig(server.url(), "", "token: node");
    daemon::replace(&folder.join("kubelet.conf"), credential.as_bytes());
    folder.hang();
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.flag("--node-kubeconfig", &folder.join("kubelet.conf").display().to_string()).start_ready().await;
    weir.logged("--node-name is used unchecked").await;
    assert_eq!(weir.client("kube-proxy").with("authorization", "Bearer a").names(SERVICES).await, FILTERED);
    folder.release();
    weir.logged("reloaded credential").await;
}

#[tokio::test]
async fn a_log_that_nobody_reads_blocks_nobody() {
    const PIPE: usize = 64 << 10;
    let server = super::edge().await;
    let setup = || {
        let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
        setup.switch("-vv").flag("--drain-timeout", &format!("{DRAIN:?}"))
    };
    // How much is logged about a request.
    let read = setup().start_ready().await;
    let (client, before) = (read.client("kube-proxy"), read.log_text().len());
    for _ in 0..50 {
        client.names(SERVICES).await;
    }
    read.logged("filter set activated").await;
    let each = (read.log_text().len() - before) / 50;
    assert!(each > 0, "requests are logged");
    read.kill().await;

    let weir = setup().unread().start().await;
    let client = weir.client("kube-proxy");
    until!(in_time(&weir.admin(), "/readyz").await == 200);
    for _ in 0..(8 * PIPE / each).min(20_000) {
        let status = in_time(&client, SERVICES).await;
        assert_eq!(status, 200);
        assert_eq!(in_time(&weir.admin(), "/livez").await, 200);
    }
    let begun = Instant::now();
    assert_eq!(weir.stop().await, Some(0));
    assert!(begun.elapsed() < DRAIN + Duration::from_secs(2), "{:?}", begun.elapsed());
}
