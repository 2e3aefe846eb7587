//! Real registries with TLS and a password (distribution, and zot, whose habits are others), real signatures (cosign) and another
//! client of registries (oras). `make registry` builds them.

use std::path::PathBuf;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use weir_spec::Digest;
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::Setup;
use weir_tests::edge::edge;
use weir_tests::pki::Authority;
use weir_tests::plane::skipped;

use Product::{Distribution, Zot};

/// `right`, as `htpasswd -B` writes it.
const PASSWORD: &str = "node:$2b$04$o0eIb9/O3MgLbLg7Bamq4ukIO.iQEC.g7u12JszcXjOl/HLGMHU/C\n";
const NAME: &str = "team/services";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// It answers unknown clients with 401 and a challenge.
    Distribution,
    /// Anybody may read the repositories under `open/`. So `/v2/` is open, and what is closed gets 403, without a challenge.
    Zot,
}

/// A registry with files of its own.
pub(super) struct Site {
    product: Product,
    folder: tempfile::TempDir,
    process: Option<Child>,
    pub(super) host: String,
}

fn program(name: &str) -> Option<PathBuf> {
    let path = built::target().join("registry").join(name);
    if path.exists() {
        return Some(path);
    }
    skipped("the registry was not built: `make registry` does it, and needs Go");
    None
}

impl Site {
    /// `None` if the programs are not built.
    pub(super) async fn new(product: Product) -> Option<Self> {
        for name in ["registry", "zot", "cosign", "oras"] {
            program(name)?;
        }
        let mut site = Self { product, folder: tempfile::tempdir().unwrap(), process: None, host: String::new() };
        let pair = Authority::new("registry");
        site.write("ca.pem", pair.pem());
        let server = pair.server();
        site.write("tls.crt", &server.certificate);
        site.write("tls.key", &server.key);
        site.write("htpasswd", PASSWORD);
        site.start("127.0.0.1:0").await;
        let auth = STANDARD.encode("node:right");
        site.write("config.json", &serde_json::json!({"auths": {&site.host: {"auth": auth}}}).to_string());
        let ca = site.path("ca.pem").display().to_string();
        site.write("registries.yaml", &format!("registries:\n- host: {}\n  caFile: {ca}\n", site.host));
        Some(site)
    }

    /// Starts the registry, and learns its port from its log.
    async fn start(&mut self, address: &str) {
        let (mut command, says) = match self.product {
            Distribution => (self.distribution(address), "listening on "),
            Zot => (self.zot(address), "\"port\":"),
        };
        // Who writes to a pipe that nobody reads ends.
        match self.product {
            Distribution => command.stdout(Stdio::null()).stderr(Stdio::piped()),
            Zot => command.stdout(Stdio::piped()).stderr(Stdio::null()),
        };
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let log = match self.product {
            Distribution => Box::new(process.stderr.take().unwrap()) as Box<dyn AsyncRead + Send + Unpin>,
            Zot => Box::new(process.stdout.take().unwrap()),
        };
        let mut lines = BufReader::new(log).lines();
        let listens = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the registry starts");
                if let Some((_, address)) = line.split_once(says) {
                    return address.split(['"', ',']).next().unwrap().to_owned();
                }
            }
        };
        let listens = tokio::time::timeout(PATIENCE, listens).await.unwrap();
        self.host = if listens.contains(':') { listens } else { format!("127.0.0.1:{listens}") };
        // Its log goes on.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        self.process = Some(process);
    }

    fn distribution(&self, address: &str) -> Command {
        let folder = self.folder.path().display();
        self.write(
            "registry.yaml",
            &format!(
                "version: 0.1\nlog: {{formatter: json}}\nstorage: {{filesystem: {{rootdirectory: {folder}/storage}}}}\nauth: {{htpasswd: \
                 {{realm: test, path: {folder}/htpasswd}}}}\nhttp: {{addr: '{address}', tls: {{certificate: {folder}/tls.crt, key: \
                 {folder}/tls.key}}}}\n"
            ),
        );
        let mut command = Command::new(program("registry").unwrap());
        command.arg("serve").arg(self.path("registry.yaml")).env("OTEL_TRACES_EXPORTER", "none");
        command
    }

    fn zot(&self, address: &str) -> Command {
        let path = |name: &str| self.path(name).display().to_string();
        let (host, port) = address.split_once(':').unwrap();
        let mine = ["read", "create", "update"];
        let config = serde_json::json!({
            "distSpecVersion": "1.0.1-dev",
            "storage": {"rootDirectory": path("storage")},
            "http": {
                "address": host, "port": port, "realm": "test",
                "tls": {"cert": path("tls.crt"), "key": path("tls.key")},
                "auth": {"htpasswd": {"path": path("htpasswd")}},
                "accessControl": {
                    "open/**": {"anonymousPolicy": ["read"], "defaultPolicy": mine},
                    "**": {"policies": [{"users": ["node"], "actions": mine}]},
                },
            },
            "log": {"level": "info"},
        });
        self.write("zot.json", &config.to_string());
        let mut command = Command::new(program("zot").unwrap());
        command.arg("serve").arg(self.path("zot.json"));
        command
    }

    async fn stop(&mut self) {
        self.process.take().unwrap().kill().await.unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn name(&self) -> String {
        format!("{}/{NAME}", self.host)
    }

    async fn run(&self, program: PathBuf, arguments: &[&str]) -> (String, bool) {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).env("HOME", self.folder.path()).kill_on_drop(true);
        command.env("DOCKER_CONFIG", self.folder.path()).env("COSIGN_PASSWORD", "");
        command.env("WEIR_REGISTRIES", self.path("registries.yaml"));
        let output = tokio::time::timeout(2 * PATIENCE, command.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (text.into_owned(), output.status.success())
    }

    async fn weir(&self, arguments: &[&str]) -> String {
        let (said, good) = self.run(built::weir(), arguments).await;
        assert!(good, "weir {arguments:?}: {said}");
        said
    }

    pub(super) async fn tool(&self, name: &str, arguments: &[&str]) -> String {
        let (said, good) = self.run(program(name).unwrap(), arguments).await;
        assert!(good, "{name} {arguments:?}: {said}");
        said
    }

    pub(super) async fn push(&self, module: &str) -> String {
        let path = built::module(module).display().to_string();
        let said = self.weir(&["push", &path, &format!("{}:1", self.name())]).await;
        said.lines().find_map(|line| line.trim().strip_prefix("module: ")).unwrap().to_owned()
    }

    /// Signs with a key pair, and nothing in public logs. `bundle`: the newer format.
    pub(super) async fn sign(&self, reference: &str, key: &str, bundle: bool) {
        let reference = reference.trim_start_matches("oci://");
        let key = self.path(key).display().to_string();
        let ca = self.path("ca.pem").display().to_string();
        let format = format!("--new-bundle-format={bundle}");
        let common =
            ["sign", "--key", &key, "--registry-cacert", &ca, "--tlog-upload=false", "--use-signing-config=false"];
        self.tool("cosign", &[&common[..], &[&format, "--yes", reference]].concat()).await;
    }

    fn policy(&self, key: &str) -> String {
        let pem = std::fs::read_to_string(self.path(key)).unwrap();
        let pem: String = pem.lines().map(|line| format!("    {line}\n")).collect();
        format!("policies:\n- prefix: oci://\n  require:\n  - |\n{pem}- prefix: file://\n  require:\n  - |\n{pem}")
    }

    fn setup(&self, server: &str, reference: &str) -> Setup {
        Setup::new(server)
            .filters(&format!("filters:\n  - {{name: services, module: '{reference}', match: ['*/services']}}\n"))
            .flag("--registries", &self.path("registries.yaml").display().to_string())
            .flag("--registry-auth", &self.path("config.json").display().to_string())
            .flag("--signature-policy", &self.path("policy.yaml").display().to_string())
            .flag("--cache-dir", &self.path("cache").display().to_string())
    }
}

#[tokio::test]
async fn a_module_is_pushed_signed_pulled_and_refused_when_it_is_tampered_with() {
    let Some(mut site) = Site::new(Distribution).await else { return };
    let server = edge().await;
    site.tool("cosign", &["generate-key-pair", "--output-key-prefix", "right"]).await;
    site.tool("cosign", &["generate-key-pair", "--output-key-prefix", "wrong"]).await;
    site.write("policy.yaml", &site.policy("right.pub"));
    for (module, bundle) in [("discardcloudservice", false), ("nodeportisolation", true)] {
        let reference = site.push(module).await;
        let weir = site.setup(server.url(), &reference).start().await;
        let line = weir.logged("configuration refused").await.to_string();
        assert!(line.contains("unsigned"), "{line}");
        site.sign(&reference, "wrong.key", bundle).await;
        let (_, line) = weir.logged_after(0, "none of its 1 signatures is valid").await;
        assert!(line.to_string().contains("configuration refused"), "{line}");
        site.sign(&reference, "right.key", bundle).await;
        weir.ready().await;
        // The node restarts, and the registry is away.
        let host = site.host.clone();
        site.stop().await;
        let weir = weir.stopped().await.start_ready().await;
        let setup = weir.stopped().await;
        site.start(&host).await;
        // A module that is altered in the registry does not replace one that is lost.
        std::fs::remove_dir_all(site.path("cache/modules")).unwrap();
        let wasm = std::fs::read(built::module(module)).unwrap();
        let digest = Digest::of(&wasm).hex();
        let data = site.path(&format!("storage/docker/registry/v2/blobs/sha256/{}/{digest}/data", &digest[..2]));
        let mut altered = wasm.clone();
        altered[100] ^= 1;
        std::fs::write(&data, altered).unwrap();
        let weir = setup.start().await;
        let line = weir.logged("configuration refused").await.to_string();
        assert!(line.contains("has another digest"), "{line}");
        std::fs::write(&data, wasm).unwrap();
        weir.ready().await;
    }
}

#[tokio::test]
async fn a_file_that_cosign_has_signed_runs() {
    let Some(site) = Site::new(Distribution).await else { return };
    let server = edge().await;
    site.tool("cosign", &["generate-key-pair", "--output-key-prefix", "right"]).await;
    site.write("policy.yaml", &site.policy("right.pub"));
    let (module, key) = (built::module("discardcloudservice"), site.path("right.key"));
    let bundle = site.path("bundle.json").display().to_string();
    let (module_path, key) = (module.display().to_string(), key.display().to_string());
    let offline = ["--tlog-upload=false", "--use-signing-config=false", "--yes"];
    let newer = ["sign-blob", "--key", &key, "--bundle", &bundle, "--new-bundle-format=true"];
    site.tool("cosign", &[&newer[..], &offline, &[&module_path]].concat()).await;
    let file = site.path("signature").display().to_string();
    let older = ["sign-blob", "--key", &key, "--output-signature", &file, "--new-bundle-format=false"];
    site.tool("cosign", &[&older[..], &offline, &[&module_path]].concat()).await;
    for signature in [&bundle, &file] {
        let signature = std::fs::read_to_string(signature).unwrap();
        let entry = serde_json::json!({"name": "services", "match": ["*/services"], "signature": signature.trim()});
        let filters = serde_json::json!({"filters": [entry]}).to_string();
        let bytes = std::fs::read(&module).unwrap();
        let setup = site.setup(server.url(), "services.wasm").filters(&filters).module("services", &bytes);
        setup.start_ready().await;
    }
}

#[tokio::test]
async fn oras_reads_what_weir_writes_and_the_other_way_round() {
    let Some(site) = Site::new(Distribution).await else { return };
    let ca = site.path("ca.pem").display().to_string();
    let reference = site.push("discardcloudservice").await;
    let name = reference.trim_start_matches("oci://");
    let manifest: serde_json::Value =
        serde_json::from_str(&site.tool("oras", &["manifest", "fetch", "--ca-file", &ca, name]).await).unwrap();
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    let blob = format!("{}@{}", site.name(), manifest["layers"][0]["digest"].as_str().unwrap());
    site.tool("oras", &["blob", "fetch", "--ca-file", &ca, "--output", "blob.wasm", &blob]).await;
    let wasm = std::fs::read(built::module("discardcloudservice")).unwrap();
    assert!(std::fs::read(site.path("blob.wasm")).unwrap() == wasm);
    let target = format!("{}:oras", site.name());
    site.tool("oras", &["push", "--ca-file", &ca, &target, "blob.wasm:application/wasm"]).await;
    let said = site.weir(&["pull", &target, "-o", "pulled.wasm"]).await;
    assert!(std::fs::read(site.path("pulled.wasm")).unwrap() == wasm, "{said}");
    // A file for an air gap is an OCI layout, as other tools know it.
    site.weir(&["save", &reference, "-o", "saved.tar"]).await;
    let digest = reference.split_once('@').unwrap().1;
    let copied = format!("{}/copied:1", site.host);
    let from = format!("saved.tar@{digest}");
    site.tool("oras", &["cp", "--from-oci-layout", "--to-ca-file", &ca, &from, &copied]).await;
    site.weir(&["pull", &copied, "-o", "copied.wasm"]).await;
    assert!(std::fs::read(site.path("copied.wasm")).unwrap() == wasm);
}

/// The login is sent where a registry asks for it, for what it asks, and to nobody else.
#[tokio::test]
async fn both_registries_are_logged_in_to_by_their_own_challenges() {
    for product in [Distribution, Zot] {
        let Some(site) = Site::new(product).await else { return };
        let reference = site.push("discardcloudservice").await;
        let wasm = std::fs::read(built::module("discardcloudservice")).unwrap();
        site.weir(&["pull", &reference, "-o", "pulled.wasm"]).await;
        assert!(std::fs::read(site.path("pulled.wasm")).unwrap() == wasm, "{product:?}");

        // A daemon with the same login runs it.
        site.write("policy.yaml", "policies:\n- prefix: oci://\n  allow: true\n");
        let server = edge().await;
        site.setup(server.url(), &reference).start_ready().await;

        // Without a login, and with a wrong one, nothing of the closed repository is read or written.
        let module = built::module("nodeportisolation").display().to_string();
        let target = format!("{}:2", site.name());
        let auth = |password: &str| {
            let auth = STANDARD.encode(format!("node:{password}"));
            serde_json::json!({"auths": {&site.host: {"auth": auth}}}).to_string()
        };
        for (config, says) in [("{}", ["a credential", "403"]), (&*auth("wrong"), ["does not accept", "403"])] {
            let file = site.write("other.json", config);
            for arguments in [vec!["pull", &reference, "-o", "none.wasm"], vec!["push", &module, &target]] {
                let arguments = [&arguments[..], &["--registry-auth", &file]].concat();
                let (said, good) = site.run(built::weir(), &arguments).await;
                assert!(!good && says.iter().any(|text| said.contains(text)), "{product:?} {arguments:?}: {said}");
            }
        }
        if product == Zot {
            // Where anybody may read, a login counts for the push alone.
            let open = format!("{}/open/services:1", site.host);
            let module = built::module("discardcloudservice").display().to_string();
            site.weir(&["push", &module, &open]).await;
            let nobody = site.write("nobody.json", "{}");
            site.weir(&["pull", &open, "-o", "open.wasm", "--registry-auth", &nobody]).await;
            assert!(std::fs::read(site.path("open.wasm")).unwrap() == wasm);
        }
    }
}
