//! The Helm chart and a real API server: a daemon with the arguments of the DaemonSet follows an installation from the manifests to
//! the chart, an upgrade and a roll-back. [`super::dry_run`] has all that the chart renders.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, REQUIRED};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{Plane, skipped};

/// Runs kubectl as the administrator, with this input.
pub(super) fn kubectl(plane: &Plane, arguments: &[&str], input: &str) -> Output {
    use std::io::Write as _;
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(plane.kubeconfig("admin")).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Such a command must succeed. Returns what it prints.
pub(super) fn prints(plane: &Plane, arguments: &[&str], input: &str) -> String {
    let output = kubectl(plane, arguments, input);
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn has_kubectl() -> bool {
    let found = Command::new("kubectl").args(["version", "--client"]).output();
    let has = found.is_ok_and(|output| output.status.success());
    if !has {
        skipped("there is no kubectl on PATH");
    }
    has
}

/// The URL of the API server and the token of the daemon's service account, as its kubeconfig has them.
pub(super) fn server_and_token(plane: &Plane) -> [String; 2] {
    let config = std::fs::read_to_string(plane.kubeconfig("weir")).unwrap();
    let config: Value = serde_saphyr::from_str(&config).unwrap();
    [&config["clusters"][0]["cluster"]["server"], &config["users"][0]["user"]["token"]]
        .map(|text| text.as_str().unwrap().to_owned())
}

/// The DaemonSet's volumes of ConfigMaps and Secrets as folders: where the pod has each, and where the test has it.
fn mounted(plane: &Plane, pod: &Value, folder: &Path) -> Vec<(String, String)> {
    let data = |kind: &str, name: &Value| -> Value {
        let name = name.as_str().unwrap();
        serde_json::from_str(&prints(plane, &["--namespace=kube-system", "get", kind, name, "--output=json"], ""))
            .unwrap()
    };
    let mut mounts = Vec::new();
    for volume in pod["volumes"].as_array().unwrap() {
        let mut files = Vec::new();
        if let Some(name) = volume["configMap"].get("name") {
            for (key, text) in data("configmap", name)["data"].as_object().unwrap() {
                files.push((key.clone(), text.as_str().unwrap().to_owned()));
            }
        }
        let projected = volume["projected"]["sources"].as_array().into_iter().flatten();
        let projected = projected.map(|source| (&source["secret"]["name"], &source["secret"]["items"][0]));
        let secret = volume.get("secret").map(|secret| (&secret["secretName"], &secret["items"][0]));
        for (name, item) in projected.chain(secret) {
            let packed = data("secret", name)["data"][item["key"].as_str().unwrap()].as_str().unwrap().to_owned();
            let text = String::from_utf8(STANDARD.decode(packed).unwrap()).unwrap();
            files.push((item["path"].as_str().unwrap().to_owned(), text));
        }
        let mount = pod["containers"][0]["volumeMounts"].as_array().unwrap().iter();
        let inside =
            mount.clone().find(|mount| mount["name"] == volume["name"]).unwrap()["mountPath"].as_str().unwrap();
        let outside = folder.join(volume["name"].as_str().unwrap());
        std::fs::create_dir_all(&outside).unwrap();
        let outside = outside.display().to_string();
        for (name, text) in files {
            std::fs::write(format!("{outside}/{name}"), text.replace(&format!("{inside}/"), &format!("{outside}/")))
                .unwrap();
        }
        mounts.push((format!("{inside}/"), format!("{outside}/")));
    }
    mounts
}

/// A daemon with the arguments, the environment and the files of the DaemonSet in the cluster. Only paths and addresses are the
/// test's own.
pub(super) fn deployed(plane: &Plane, folder: &Path) -> Setup {
    let get = |kind: &str, name: &str| -> Value {
        let text = prints(plane, &["--namespace=kube-system", "get", kind, name, "--output=json"], "");
        serde_json::from_str(&text).unwrap()
    };
    let pod = get("daemonset", "weir")["spec"]["template"]["spec"].clone();
    let mounts = mounted(plane, &pod, folder);
    let container = &pod["containers"][0];
    let own = |path: std::path::PathBuf| path.display().to_string();
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut arguments = Vec::new();
    for argument in container["args"].as_array().unwrap().iter().skip(1) {
        let argument = argument.as_str().unwrap();
        let (flag, value) = argument.split_once('=').unwrap();
        let value = match (flag, value) {
            ("--node-name", "$(NODE_NAME)") => "edge-a".to_owned(),
            ("--certificate-authority", path) if path.starts_with(account) => own(plane.ca()),
            ("--token-file", path) if path.starts_with(account) => continue,
            ("--client-ca-file", "/client-ca/client-ca.crt") => own(plane.ca()),
            ("--modules-dir", "/modules") => own(built::modules()),
            ("--cache-dir", "/var/lib/weir/cache") | ("--cache-key-dir", "/var/lib/weir") => continue,
            (_, value) => {
                mounts.iter().fold(value.to_owned(), |value, (inside, outside)| value.replace(inside, outside))
            }
        };
        arguments.push((flag.to_owned(), value));
    }
    assert_eq!(container["args"][0], "serve");
    assert!(container["args"].as_array().unwrap().contains(&json!(format!("--token-file={account}/token"))));
    assert_eq!(container["env"][1]["name"], "WEIR_SERVER");
    let servers = get("configmap", "weir-node")["data"]["server"].as_str().unwrap().to_owned();
    let [_, token] = server_and_token(plane);
    Setup::exactly(&arguments).env("WEIR_SERVER", &servers).file("--token-file", "token", &token)
}

pub(super) async fn filters(weir: &Daemon) -> Vec<String> {
    let shown = weir.admin().json("/filters").await;
    shown["filters"].as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until these filters are active.
async fn has_filters(weir: &Daemon, mut from: usize, expected: &[&str]) {
    while filters(weir).await != expected {
        (from, _) = weir.logged_after(from, "filter set activated").await;
    }
}

#[tokio::test]
async fn a_daemon_follows_the_chart_from_the_manifests_through_an_upgrade_and_back() {
    let Some(helm) = Helm::new().filter(|_| has_kubectl()) else { return };
    // Its own cluster: other tests use the ConfigMap of the filters, too.
    let Some(plane) = Plane::own() else { return };
    let kubeconfig = plane.kubeconfig("admin").display().to_string();
    let folder = built::workspace().join("deploy").display().to_string();
    let _ = prints(&plane, &["apply", "--kustomize", &folder], "");
    let system = ["--namespace", "kube-system", "--kubeconfig", kubeconfig.as_str()];
    let [url, _] = server_and_token(&plane);
    let servers = format!("servers={}", json!([url]));
    let release = |command: &[&str]| helm.prints(&[command, &system].concat());
    let image = || {
        let path = "--output=jsonpath={.spec.template.spec.containers[0].image}";
        prints(&plane, &["--namespace=kube-system", "get", "daemonset", "weir", path], "")
    };

    // The older version has one filter, and no node's server in its values.
    let older = helm.copy("0.0.9");
    let older = older.to_str().unwrap();
    let one = "filters=[{\"name\":\"discardcloudservice\"}]";
    let refused = helm.run(&[&["install", "weir", older][..], &REQUIRED, &["--set-json", &servers], &system].concat());
    assert!(!refused.status.success(), "what kubectl has applied is not Helm's");
    let _ = release(
        &[&["install", "weir", older, "--take-ownership"][..], &REQUIRED, &["--set-json", &servers, "--set-json", one]]
            .concat(),
    );
    assert_eq!(image(), "weir:0.0.9");
    let (cache, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directory = cache.path().display().to_string();
    let weir = deployed(&plane, files.path()).flag("--cache-dir", &directory).start_ready().await;
    assert_eq!(filters(&weir).await, ["discardcloudservice"]);

    let from = weir.log_length();
    let chart = helm.chart().to_str().unwrap();
    let with_operator = ["--set-json", &servers, "--set-json", "operator.enabled=true"];
    let _ = release(&[&["upgrade", "weir", chart, "--reset-values"][..], &REQUIRED, &with_operator].concat());
    let _ = prints(&plane, &["--namespace=weir-operator", "get", "deployment", "weir-operator"], "");
    assert_eq!(image(), format!("weir:{}", env!("CARGO_PKG_VERSION")));
    let all = ["servicetopology", "endpoints", "discardcloudservice", "nodeportisolation", "nodeportaddresses"];
    // A running daemon takes the filters of the upgrade.
    has_filters(&weir, from, &all).await;
    assert!(!weir.log_text().contains("forbidden"), "the permissions came with them: {}", weir.log_text());
    // The pod is replaced: the next daemon has the arguments of the new version, and the cache of its predecessor.
    weir.kill().await;
    let weir = deployed(&plane, files.path()).flag("--cache-dir", &directory).start_ready().await;
    // It may begin with what was kept before: its predecessor was killed as soon as the set was active.
    has_filters(&weir, 0, &all).await;

    let from = weir.log_length();
    let _ = release(&["rollback", "weir", "1"]);
    assert_eq!(image(), "weir:0.0.9");
    has_filters(&weir, from, &["discardcloudservice"]).await;
    let history: Value = serde_json::from_str(&release(&["history", "weir", "--output", "json"])).unwrap();
    let states: Vec<_> =
        history.as_array().unwrap().iter().map(|revision| revision["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["superseded", "superseded", "deployed"]);
    let _ = release(&["uninstall", "weir"]);
    assert!(!kubectl(&plane, &["--namespace=kube-system", "get", "configmap", "weir-filters"], "").status.success());
    assert!(
        !kubectl(&plane, &["--namespace=weir-operator", "get", "deployment", "weir-operator"], "").status.success()
    );
    // Users' YurtIngresses stay, and with them what only the operator deletes.
    let _ = prints(&plane, &["get", "crd/yurtingresses.apps.openyurt.io", "namespace/ingress-nginx"], "");
}
