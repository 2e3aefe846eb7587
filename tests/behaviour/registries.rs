//! Modules in registries and in ConfigMaps of their own.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use weir_spec::Digest;
use weir_tests::built;
use weir_tests::client::{PATIENCE, names};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant;
use weir_tests::registry::{FakeRegistry, Misbehaviour};
use weir_tests::rights::Rights;

use super::edge;
use super::peers::Pool;

mod logins;

const SERVICES: &str = "/api/v1/services";
const NAME: &str = "team/services";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry, and a folder in which commands run.
struct Site {
    registry: FakeRegistry,
    folder: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let site = Self { registry: FakeRegistry::start().await, folder: tempfile::tempdir().unwrap() };
        site.write("registries.yaml", &site.registry.file());
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// Runs `weir`; returns its output, and whether it succeeds.
    async fn weir(&self, arguments: &[&str]) -> (String, bool) {
        let mut command = tokio::process::Command::new(built::weir());
        command.args(arguments).current_dir(self.folder.path()).kill_on_drop(true);
        let registries = self.path("registries.yaml");
        command
            .env("WEIR_REGISTRIES", registries)
            .env("WEIR_CACHE_DIR", self.path("user"))
            .env("HOME", self.folder.path());
        let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (text.into_owned(), output.status.success())
    }

    fn name(&self) -> String {
        format!("{}/{NAME}", self.registry.host())
    }

    /// Pushes a bundled module. Returns its name with the digest.
    async fn push(&self, module: &str) -> String {
        let path = built::module(module).display().to_string();
        let (said, good) = self.weir(&["push", &path, &format!("{}:1", self.name())]).await;
        assert!(good, "{said}");
        said.lines().find_map(|line| line.trim().strip_prefix("module: ")).unwrap().to_owned()
    }

    /// A daemon whose filter is this module.
    fn setup(&self, server: &str, reference: &str) -> Setup {
        let cache = self.path("cache");
        Setup::new(server)
            .filters(&entry(reference))
            .flag("--registries", &self.path("registries.yaml").display().to_string())
            .flag("--cache-dir", &cache.display().to_string())
    }

    /// Signs an artifact as older versions of cosign do: under a tag.
    fn sign(&self, artifact: Digest, key: &KeyPair) {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": self.name()},
                "image": {"docker-manifest-digest": artifact.to_string()},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let annotations =
            json!({"dev.cosignproject.cosign/signature": STANDARD.encode(key.sign(payload.as_bytes()).unwrap())});
        let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
        let manifest = self.manifest(kind, payload.as_bytes(), &annotations, Value::Null);
        self.registry.put_manifest(NAME, &format!("sha256-{}.sig", artifact.hex()), MANIFEST, &manifest);
    }

    /// Signs an artifact as newer versions do: with a bundle that refers to it.
    fn sign_with_bundle(&self, artifact: Digest, predicate: &str, key: &KeyPair) {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": artifact.hex()}}],
            "predicateType": predicate,
            "predicate": {},
        });
        let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
        let signed = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let bundle = json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": ""}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(&payload),
                "payloadType": kind,
                "signatures": [{"sig": STANDARD.encode(key.sign(signed.as_bytes()).unwrap())}],
            },
        });
        let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let subject = json!({"mediaType": MANIFEST, "digest": artifact.to_string(), "size": 1});
        let manifest = self.manifest(kind, bundle.to_string().as_bytes(), &json!({}), subject);
        self.registry.put_manifest(NAME, "referrer", MANIFEST, &manifest);
    }

    fn manifest(&self, kind: &str, blob: &[u8], annotations: &Value, subject: Value) -> String {
        let empty = self.registry.put_blob(b"{}").to_string();
        let digest = self.registry.put_blob(blob).to_string();
        let layer = json!({"mediaType": kind, "digest": digest, "size": blob.len(), "annotations": annotations});
        let config = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2});
        let mut manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": config, "layers": [layer]});
        if !subject.is_null() {
            manifest["subject"] = subject;
        }
        manifest.to_string()
    }
}

fn entry(reference: &str) -> String {
    format!("filters:\n  - {{name: services, module: '{reference}', match: ['*/services']}}\n")
}

fn digest(reference: &str) -> Digest {
    reference.split_once('@').unwrap().1.parse().unwrap()
}

fn policy(key: &KeyPair, prefix: &str) -> String {
    let pem: String = key.public_key_pem().lines().map(|line| format!("    {line}\n")).collect();
    format!("policies:\n- prefix: {prefix}\n  require:\n  - |\n{pem}")
}

async fn shown(weir: &Daemon) -> Vec<String> {
    names(&weir.client("kube-proxy").json(SERVICES).await)
}

#[tokio::test]
async fn a_pushed_module_is_pulled_once_and_outlives_the_registry() {
    let (server, site) = (edge().await, Site::new().await);
    let reference = site.push("discardcloudservice").await;
    assert_eq!(site.push("discardcloudservice").await, reference, "it is reproducible");
    let weir = site.setup(server.url(), &reference).start_ready().await;
    assert!(!shown(&weir).await.contains(&"shop".to_owned()));
    let filter = weir.filter("services").await;
    assert_eq!(
        (filter["state"].as_str(), filter["module"].as_str()),
        (Some("live"), Some(reference.as_str())),
        "{filter}"
    );
    assert_eq!(filter["source"], site.registry.host());
    let module = Digest::of(&std::fs::read(built::module("discardcloudservice")).unwrap()).to_string();
    assert_eq!(filter["digest"], module);
    site.registry.down(true);
    let weir = weir.stopped().await.start_ready().await;
    assert!(weir.filter("services").await["source"].as_str().unwrap().contains("/cache/modules/sha256-"));
    assert_eq!(site.registry.count("GET", &format!("blobs/{module}")), 1);
}

#[tokio::test]
async fn a_registry_that_is_away_stops_nothing_and_its_return_is_noticed() {
    let (server, site) = (edge().await, Site::new().await);
    let reference = site.push("discardcloudservice").await;
    site.registry.down(true);
    let setup = site.setup(server.url(), &reference).filters("filters: []\n");
    let weir = setup.start_ready().await;
    weir.put_filters(&entry(&reference));
    let refused = weir.logged("configuration refused").await.to_string();
    assert!(refused.contains(site.registry.host()), "{refused}");
    assert_eq!(weir.filter("services").await["state"], "failed");
    let from = weir.log_length();
    site.registry.down(false);
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(weir.filter("services").await["state"], "live");
}

#[tokio::test]
async fn bad_answers_are_named() {
    let site = Site::new().await;
    let reference = site.push("discardcloudservice").await;
    let code = |code: u16, text: &str| Misbehaviour::Code(code, text.to_owned());
    let error = |code: &str| format!(r#"{{"errors":[{{"code":"{code}","message":"the message"}}]}}"#);
    let index = |platforms: Value| json!({"schemaVersion": 2, "manifests": platforms}).to_string();
    let cases = [
        (code(401, "{}"), "401: it wants a credential: name one in --registry-auth"),
        (code(403, &error("DENIED")), "403: the message"),
        (code(404, &error("MANIFEST_UNKNOWN")), "404: it does not have sha256:"),
        (code(404, "<html>gone</html>"), "404: it does not have sha256:"),
        (code(429, &error("TOOMANYREQUESTS")), "429: it has had too many requests: the message"),
        (code(500, "broken"), "500: broken"),
        (code(503, "<html>maintenance</html>"), "503: an HTML page: is it a registry?"),
        (code(200, "<html>welcome</html>"), "has another digest: is it a registry?"),
        (Misbehaviour::Redirect, "too many redirects"),
        (Misbehaviour::OtherManifest(index(json!([]))), "has another digest"),
        (Misbehaviour::Altered, "has another digest"),
        (Misbehaviour::Endless, "take more than 256 MiB of memory"),
    ];
    for (misbehaviour, part) in cases {
        site.registry.misbehave(misbehaviour.clone());
        let (said, good) = site.weir(&["pull", &reference]).await;
        assert!(!good && said.contains(part) && said.contains(site.registry.host()), "{misbehaviour:?}: {said}");
    }
    assert!(!site.path("services.wasm").exists());
}

#[tokio::test]
async fn artifacts_that_are_no_filters_are_named() {
    let site = Site::new().await;
    let wasm = std::fs::read(built::module("discardcloudservice")).unwrap();
    let blob = site.registry.put_blob(&wasm).to_string();
    let empty = site.registry.put_blob(b"{}").to_string();
    let layer = |kind: &str, size: usize| json!({"mediaType": kind, "digest": blob, "size": size});
    let manifest = |layers: Value| {
        let config = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2});
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).to_string()
    };
    let good = manifest(json!([layer("application/wasm", wasm.len())]));
    let inner = site.registry.put_manifest(NAME, "inner", MANIFEST, &good).to_string();
    let platform = |architecture: &str| {
        let platform = json!({"architecture": architecture, "os": "wasip2"});
        let entry = json!({"mediaType": MANIFEST, "digest": inner, "size": good.len(), "platform": platform});
        let kind = "application/vnd.oci.image.index.v1+json";
        json!({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}).to_string()
    };
    for (name, manifest, part) in [
        ("an index", platform("wasm"), None),
        ("an index without wasm", platform("amd64"), Some("index of 1 platforms, and none of them is wasm")),
        (
            "an image",
            manifest(json!([layer("application/tar", 1), layer("application/tar", 1)])),
            Some("it has 2 layers"),
        ),
        ("another layer", manifest(json!([layer("application/tar", 1)])), Some("is of type \"application/tar\"")),
        ("2 GB", manifest(json!([layer("application/wasm", 2 << 30)])), Some("more than the limit of 67108864")),
        ("too short", manifest(json!([layer("application/wasm", wasm.len() - 1)])), Some("longer than the")),
    ] {
        let digest = site.registry.put_manifest(NAME, "tag", MANIFEST, &manifest);
        let (said, good) = site.weir(&["pull", &format!("{}@{digest}", site.name()), "-o", "out.wasm"]).await;
        match part {
            Some(part) => assert!(!good && said.contains(part), "{name}: {said}"),
            None => assert!(good && std::fs::read(site.path("out.wasm")).unwrap() == wasm, "{name}: {said}"),
        }
    }
}

#[tokio::test]
async fn a_mirror_stands_in_for_its_registry_and_the_other_way_round() {
    let (site, dead) = (Site::new().await, FakeRegistry::start().await);
    let pushed = digest(&site.push("discardcloudservice").await);
    dead.down(true);
    let (here, dead) = (site.registry.host(), dead.host());
    let plain = format!("- {{host: '{here}', plainHTTP: true}}\n- {{host: '{dead}', plainHTTP: true}}\n");
    site.write(
        "registries.yaml",
        &format!("registries:\n- {{host: registry.example, mirrors: ['{dead}', '{here}']}}\n{plain}"),
    );
    let (said, good) = site.weir(&["pull", &format!("registry.example/{NAME}@{pushed}")]).await;
    assert!(good, "{said}");
    let itself = format!(
        "registries:\n- {{host: '{here}', plainHTTP: true, mirrors: ['{dead}']}}\n- {{host: '{dead}', plainHTTP: true}}\n"
    );
    site.write("registries.yaml", &itself);
    let (said, good) = site.weir(&["pull", &format!("{}@{pushed}", site.name())]).await;
    assert!(good, "{said}");
    // Each address says why.
    site.registry.down(true);
    let (said, good) = site.weir(&["pull", &format!("{}@{pushed}", site.name())]).await;
    let parts =
        [format!(": {dead}: error sending request"), format!("; {}: error sending request", site.registry.host())];
    assert!(!good && parts.iter().all(|part| said.contains(part)), "{said}");
}

#[tokio::test]
async fn an_interrupted_pull_continues_where_it_ended() {
    let (server, site) = (edge().await, Site::new().await);
    let reference = site.push("discardcloudservice").await;
    site.registry.misbehave(Misbehaviour::Truncated(10_000));
    let weir = site.setup(server.url(), &reference).start().await;
    let refused = weir.logged("configuration refused").await.to_string();
    assert!(refused.contains("the answer ended after"), "{refused}");
    weir.ready().await;
    assert_eq!(site.registry.count("GET", "bytes=10000-"), 1);
}

#[tokio::test]
async fn filters_shows_how_far_a_pull_is() {
    let (server, site) = (edge().await, Site::new().await);
    let reference = site.push("discardcloudservice").await;
    let size = std::fs::metadata(built::module("discardcloudservice")).unwrap().len();
    site.registry.misbehave(Misbehaviour::Held(usize::try_from(size / 2).unwrap()));
    let weir = site.setup(server.url(), &reference).start().await;
    let half = async {
        while weir.filter("services").await["state"] != "pulling 49 %"
            && weir.filter("services").await["state"] != "pulling 50 %"
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, half).await;
    assert!(reached.is_ok(), "{}", weir.filter("services").await);
    site.registry.resume();
    weir.ready().await;
}

#[tokio::test]
async fn credentials_are_read_again() {
    let (server, site) = (edge().await, Site::new().await);
    let reference = site.push("discardcloudservice").await;
    site.registry.login("node", "right");
    let config = |password: &str| {
        let auth = STANDARD.encode(format!("node:{password}"));
        json!({"auths": {site.registry.host(): {"auth": auth}}}).to_string()
    };
    let file = site.write("auth.json", &config("expired"));
    let weir = site.setup(server.url(), &reference).flag("--registry-auth", &file).start().await;
    let refused = weir.logged("configuration refused").await.to_string();
    assert!(refused.contains("401: it does not accept the credential"), "{refused}");
    assert!(!refused.contains("expired"), "{refused}");
    let error = weir.filter("services").await["lastError"].to_string();
    assert!(error.contains("401"), "{error}");
    weir_tests::daemon::replace(Path::new(&file), config("right").as_bytes());
    weir.ready().await;
}

#[tokio::test]
async fn only_what_the_policy_accepts_runs() {
    let (server, site) = (edge().await, Site::new().await);
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let reference = site.push("discardcloudservice").await;
    let later = site.push("nodeportisolation").await;
    let prefix = format!("oci://{}/team", site.registry.host());
    let file = site.write("policy.yaml", &policy(&key, &prefix));
    let setup = site.setup(server.url(), &reference).filters("filters: []\n");
    let weir = setup.flag("--signature-policy", &file).start_ready().await;
    let refused = async |from: usize, part: &str| {
        // A retry may come before the change.
        let (next, line) = weir.logged_after(from, part).await;
        assert!(line.to_string().contains("configuration refused"), "{part}: {line}");
        next
    };
    let mut from = weir.log_length();
    weir.put_filters(&entry(&reference));
    from = refused(from, "unsigned").await;
    // A signature of another key, one of another artifact, and a statement that says something else.
    site.sign(digest(&reference), &other);
    weir.put_filters(&(entry(&reference) + "# 2\n"));
    from = refused(from, "none of its 1 signatures is valid").await;
    let signed = "https://sigstore.dev/cosign/sign/v1";
    site.sign_with_bundle(digest(&reference), "https://example.com/scanned", &key);
    weir.put_filters(&(entry(&reference) + "# 3\n"));
    from = refused(from, "none of its 2 signatures is valid").await;
    site.sign_with_bundle(digest(&reference), signed, &key);
    weir.put_filters(&(entry(&reference) + "# 4\n"));
    weir.logged_after(from, "filter set activated").await;
    // The older kind. What the module's own signature says does not count for another one.
    from = weir.log_length();
    weir.put_filters(&entry(&later));
    from = refused(from, "unsigned").await;
    site.sign(digest(&later), &key);
    weir.put_filters(&(entry(&later) + "# 2\n"));
    weir.logged_after(from, "filter set activated").await;
    // The module and its signature outlive the registry, and are verified again.
    site.registry.down(true);
    let setup = weir.stopped().await;
    let weir = setup.start_ready().await;
    let setup = weir.stopped().await;
    std::fs::write(&file, policy(&other, &prefix)).unwrap();
    let weir = setup.start().await;
    let line = weir.logged("configuration refused").await.to_string();
    assert!(line.contains("none of its 1 signatures is valid"), "{line}");
}

#[tokio::test]
async fn modules_of_files_are_signed_in_the_configuration() {
    let server = edge().await;
    let site = Site::new().await;
    let key = KeyPair::generate().unwrap();
    let module = std::fs::read(built::module("discardcloudservice")).unwrap();
    let signature = STANDARD.encode(key.sign(&module).unwrap());
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": ""}},
        "messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": ""}, "signature": signature},
    });
    let file = site.write("policy.yaml", &policy(&key, "file://"));
    let entry = |signature: &str| {
        format!(
            "filters:\n  - {{name: services, module: services.wasm, match: ['*/services'], signature: '{signature}'}}\n"
        )
    };
    let setup = Setup::new(server.url()).module("services", &module).flag("--signature-policy", &file);
    let weir = setup.filters(&entry(&signature)).start_ready().await;
    for (text, part) in [
        (entry("").replace(", signature: ''", ""), "unsigned: file://services.wasm"),
        (entry("c2lnbmVk"), "none of its 1 signatures is valid"),
        (entry("?"), "is neither what `cosign sign-blob` prints"),
    ] {
        let from = weir.log_length();
        weir.put_filters(&text);
        let (_, line) = weir.logged_after(from, "configuration refused").await;
        assert!(line.to_string().contains(part), "{line}");
    }
    let from = weir.log_length();
    weir.put_filters(&entry(&bundle.to_string()).replace("*/services", "*/services#list"));
    weir.logged_after(from, "filter set activated").await;
}

#[tokio::test]
async fn a_saved_artifact_crosses_an_air_gap_with_its_signature() {
    let (server, site, other) = (edge().await, Site::new().await, Site::new().await);
    let key = KeyPair::generate().unwrap();
    let reference = site.push("discardcloudservice").await;
    site.sign(digest(&reference), &key);
    let (said, good) = site.weir(&["save", &reference, "-o", "module.tar"]).await;
    assert!(good, "{said}");
    // Into another registry.
    std::fs::copy(site.path("module.tar"), other.path("module.tar")).unwrap();
    let (said, good) = other.weir(&["load", "module.tar", &format!("{}:2", other.name())]).await;
    assert!(good, "{said}");
    let loaded = said.trim().strip_prefix("pushed ").unwrap().to_owned();
    assert_eq!(digest(&loaded), digest(&reference));
    let file = other.write("policy.yaml", &policy(&key, "oci://"));
    let weir = other.setup(server.url(), &loaded).flag("--signature-policy", &file).start_ready().await;
    drop(weir);
    // Into a modules directory.
    site.registry.down(true);
    let setup = site.setup(server.url(), &reference).flag("--signature-policy", &file);
    let name = format!("sha256-{}.tar", digest(&reference).hex());
    std::fs::copy(site.path("module.tar"), setup.modules().join(name)).unwrap();
    let weir = setup.start_ready().await;
    assert!(!shown(&weir).await.contains(&"shop".to_owned()));
    // A damaged file is reported.
    let mut bytes = std::fs::read(site.path("module.tar")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(other.path("module.tar"), bytes).unwrap();
    let (said, good) = other.weir(&["load", "module.tar", &other.name()]).await;
    assert!(!good && said.contains("it is damaged"), "{said}");
}

#[tokio::test]
async fn one_pull_feeds_a_pool() {
    let (server, site, pool) = (edge().await, Site::new().await, Pool::new(7));
    let reference = site.push("discardcloudservice").await;
    let setup = |index: usize| {
        let cache = site.path(&format!("cache-{index}")).display().to_string();
        pool.setup(server.url(), index)
            .filters("filters: []\n")
            .flag("--registries", &site.path("registries.yaml").display().to_string())
            .flag("--cache-dir", &cache)
    };
    let weirs = [setup(0).start_ready().await, setup(1).start_ready().await, setup(2).start_ready().await];
    for weir in &weirs {
        weir.put_filters(&entry(&reference));
    }
    for weir in &weirs {
        weir.logged("\"filters\":\"services\"").await;
    }
    let module = Digest::of(&std::fs::read(built::module("discardcloudservice")).unwrap());
    assert_eq!(site.registry.count("GET", &format!("blobs/{module}")), 1);
    // Nobody else gets one.
    let path = format!("/peer/modules/{}", digest(&reference));
    let answer = pool.node_http1(0, "edge-b").get(&path).await;
    assert_eq!(answer.status, 200);
    assert_eq!(pool.node_http1(0, "edge-x").get(&path).await.status, 403);
    assert_eq!(pool.anonymous_http1(0).get(&path).await.status, 403);
    let other = format!("/peer/modules/{}", Digest::of(b"other"));
    assert_eq!(pool.node_http1(0, "edge-b").get(&other).await.status, 404);
    assert_eq!(pool.node_http1(0, "edge-b").get("/peer/modules/../key").await.status, 403);
}

#[tokio::test]
async fn a_module_in_a_config_map_of_its_own_is_read_once() {
    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let module = std::fs::read(built::module("discardcloudservice")).unwrap();
    let map = |name: &str, data: Value| {
        let metadata = json!({"name": name, "namespace": "kube-system"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": true, "binaryData": data})
    };
    server.store().put(map("services-1", json!({"services.wasm": STANDARD.encode(&module)}))).unwrap();
    grant(&server, Rights::shipped().reading("", "configmaps"));
    server.store().put(map("two", json!({"a": "", "b": ""}))).unwrap();
    let configuration = |name: &str, digest: Digest, more: &str| {
        let filters = format!(
            "filters: [{{name: services, module: 'configmap://{name}', digest: '{digest}', match: ['*/services']}}]{more}"
        );
        let metadata = json!({"name": "weir-filters", "namespace": "kube-system"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"filters.yaml": filters}})
    };
    let digest = Digest::of(&module);
    server.store().put(configuration("services-1", digest, "")).unwrap();
    let cache = folder.path().display().to_string();
    let weir = Setup::new(server.url()).without("--config-file").flag("--cache-dir", &cache).start_ready().await;
    assert_eq!(weir.filter("services").await["source"], "ConfigMap kube-system/services-1");
    let reads = || server.requests().iter().filter(|request| request.path.contains("configmaps/services-1")).count();
    assert_eq!(reads(), 1);
    for (name, digest, part) in [
        ("services-2", Digest::of(b"2"), "there is none in namespace kube-system"),
        ("services-1", Digest::of(b"2"), "and the configuration names sha256:"),
        ("two", Digest::of(b"2"), "its binaryData must have one key"),
    ] {
        let from = weir.log_length();
        server.store().put(configuration(name, digest, "")).unwrap();
        let (_, line) = weir.logged_after(from, "configuration refused").await;
        assert!(line.to_string().contains(part), "{line}");
    }
    let before = reads();
    let from = weir.log_length();
    let renamed = configuration("services-1", digest, " ").to_string().replace("*/services", "*/services#list");
    server.store().put(serde_json::from_str(&renamed).unwrap()).unwrap();
    weir.logged_after(from, "filter set activated").await;
    let weir = weir.stopped().await.start_ready().await;
    assert!(!shown(&weir).await.contains(&"shop".to_owned()));
    assert_eq!(reads(), before, "the cache has it");
}

#[tokio::test]
async fn check_pulls_what_a_configuration_names() {
    let site = Site::new().await;
    let reference = site.push("discardcloudservice").await;
    site.write("filters.yaml", &entry(&reference));
    let (said, good) = site.weir(&["check", "filters.yaml"]).await;
    assert!(good && said.contains("services: discardcloudservice"), "{said}");
    let key = KeyPair::generate().unwrap();
    let file = site.write("policy.yaml", &policy(&key, "oci://"));
    let (said, good) = site.weir(&["check", "filters.yaml", "--signature-policy", &file]).await;
    assert!(!good && said.contains("unsigned"), "{said}");
    // A tag is for people: nodes want a digest.
    site.write("filters.yaml", &entry(&format!("oci://{}:1", site.name())));
    let (said, good) = site.weir(&["check", "filters.yaml"]).await;
    assert!(!good && said.contains("has no digest"), "{said}");
    let (said, good) = site.weir(&["pull", &format!("{}:1", site.name())]).await;
    assert!(good && site.path("services.wasm").exists(), "{said}");
}
