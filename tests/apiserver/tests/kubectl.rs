//! The real kubectl, if it is on PATH, against the server. Otherwise these tests report that they are skipped.
//!
//! kubectl caches discovery on disk, so every test has its own home folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails; clippy.toml relaxes these inside tests only"
)]

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use weir_apiserver::ApiServer;

struct Kubectl {
    server: ApiServer,
    home: TempDir,
}

const MANIFESTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, namespace: default}
data: {a: "1", b: "2"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec: {containers: [{name: c, image: "i:1"}]}
---
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: hz}
spec: {type: Edge}
"#;

impl Kubectl {
    /// Returns `None` and reports the skipped test if kubectl is not installed.
    async fn start() -> Option<Self> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "there is no kubectl on PATH");
            println!("skipped: there is no kubectl on PATH");
            return None;
        }
        Some(Self { server: ApiServer::builder().start().await.unwrap(), home: tempfile::tempdir().unwrap() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--server")
            .arg(self.server.url())
            .args(arguments)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("none"))
            .kill_on_drop(true);
        command
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        tokio::time::timeout(Duration::from_secs(60), output).await.expect("kubectl ends").unwrap()
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        Path::to_str(&path).unwrap().to_owned()
    }
}

#[tokio::test]
async fn get_prints_tables_names_json_and_yaml() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]},
    });
    kubectl.server.store().put(service).unwrap();
    let table = kubectl.run(&["get", "svc", "-A"]).await;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["default", "web", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP"]);
    assert!(kubectl.run(&["get", "services", "-o", "wide"]).await.contains("SELECTOR"));
    assert_eq!(kubectl.run(&["get", "svc", "-o", "name", "-l", "app=web"]).await, "service/web\n");
    let json: Value = serde_json::from_str(&kubectl.run(&["get", "svc", "web", "-o", "json"]).await).unwrap();
    assert_eq!(json["spec"]["clusterIP"], "10.0.0.1");
    assert!(kubectl.run(&["get", "svc", "web", "-o", "yaml"]).await.contains("kind: Service"));
    assert!(kubectl.run(&["get", "np"]).await.is_empty());
    assert!(kubectl.run(&["get", "svc", "--chunk-size=1", "-A"]).await.contains("web"));
    let missing = kubectl.output(&["get", "svc", "none"]).await;
    assert!(String::from_utf8_lossy(&missing.stderr).contains("(NotFound): services \"none\" not found"));
}

#[tokio::test]
async fn apply_creates_changes_and_prunes_fields_and_keeps_others() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let file = kubectl.file("all.yaml", MANIFESTS);
    assert_eq!(kubectl.run(&["apply", "-f", &file]).await.matches(" created").count(), 3);
    assert_eq!(kubectl.run(&["apply", "-f", &file]).await.matches(" unchanged").count(), 3);
    let changed = MANIFESTS.replace(", b: \"2\"", "").replace("i:1", "i:2").replace("Edge", "Cloud");
    let file = kubectl.file("changed.yaml", &changed);
    assert_eq!(kubectl.run(&["apply", "-f", &file]).await.matches(" configured").count(), 3);
    let store = kubectl.server.store();
    assert_eq!(store.get("v1", "ConfigMap", "default", "cm").unwrap()["data"], json!({"a": "1"}));
    let deployment = store.get("apps/v1", "Deployment", "default", "app").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"], json!([{"name": "c", "image": "i:2"}]));
    assert_eq!(deployment["metadata"]["generation"], 2);
    assert!(!kubectl.run(&["diff", "-f", &file]).await.contains("+++"));
    assert_eq!(
        kubectl
            .run(&["apply", "--server-side", "--force-conflicts", "-f", &file])
            .await
            .matches("serverside-applied")
            .count(),
        3
    );
    assert_eq!(kubectl.run(&["delete", "-f", &file]).await.matches(" deleted").count(), 3);
    assert!(store.get("v1", "ConfigMap", "default", "cm").is_none());
}

#[tokio::test]
async fn label_annotate_patch_and_replace_change_objects() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let file = kubectl.file("all.yaml", MANIFESTS);
    kubectl.run(&["create", "-f", &file]).await;
    kubectl.run(&["label", "np", "hz", "a=b"]).await;
    kubectl.run(&["annotate", "cm", "cm", "c=d"]).await;
    kubectl.run(&["patch", "np", "hz", "--type", "merge", "-p", "{\"spec\":{\"type\":\"Cloud\"}}"]).await;
    kubectl.run(&["patch", "deploy", "app", "-p", "{\"spec\":{\"replicas\":5}}"]).await;
    let store = kubectl.server.store();
    let pool = store.get("apps.openyurt.io/v1beta2", "NodePool", "", "hz").unwrap();
    assert_eq!((&pool["metadata"]["labels"], &pool["spec"]["type"]), (&json!({"a": "b"}), &json!("Cloud")));
    assert_eq!(store.get("apps/v1", "Deployment", "default", "app").unwrap()["spec"]["replicas"], 5);
    kubectl.run(&["replace", "-f", &file]).await;
    assert_eq!(store.get("apps/v1", "Deployment", "default", "app").unwrap()["spec"]["replicas"], 2);
}

#[tokio::test]
async fn get_w_prints_what_changes() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let map = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": value, "namespace": "default"}});
    kubectl.server.store().put(map("first")).unwrap();
    let mut child = kubectl.command(&["get", "cm", "-w", "--no-headers"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for name in ["first", "second", "third"] {
        kubectl.server.store().put(map(name)).unwrap();
        let line = loop {
            let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.expect("a line");
            let line = line.unwrap().expect("kubectl goes on");
            if line.starts_with(name) {
                break line;
            }
        };
        assert!(line.starts_with(name));
    }
    child.kill().await.unwrap();
    let mut open = kubectl.server.open_watches();
    tokio::time::timeout(Duration::from_secs(10), open.wait_for(|open| *open == 0))
        .await
        .expect("its watch ends")
        .unwrap();
}

#[tokio::test]
async fn apply_reads_the_standard_input() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let mut child =
        kubectl.command(&["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(MANIFESTS.as_bytes()).await.unwrap();
    drop(input);
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success());
    assert_eq!(kubectl.server.store().list("apps/v1", "Deployment").len(), 1);
}

#[tokio::test]
async fn typed_commands_send_protobuf_and_succeed() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run(&["create", "configmap", "cm", "--from-literal=a=b"]).await;
    kubectl.run(&["create", "namespace", "ns"]).await;
    kubectl.run(&["create", "secret", "generic", "s", "-n", "ns", "--from-literal=a=b"]).await;
    assert_eq!(kubectl.run(&["auth", "can-i", "get", "pods"]).await, "yes\n");
    kubectl.server.set_policy(|_| false);
    assert_eq!(kubectl.output(&["auth", "can-i", "get", "pods"]).await.stdout, b"no\n");
    let store = kubectl.server.store();
    assert_eq!(store.get("v1", "ConfigMap", "default", "cm").unwrap()["data"], json!({"a": "b"}));
    assert_eq!(store.get("v1", "Secret", "ns", "s").unwrap()["data"], json!({"a": "Yg=="}));
}
