//! `weir diff`: a new configuration compared with the one in force, on the objects of a cluster.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::pki::kubeconfig;

use super::edge;

const OLD: &str = "filters:\n  - {name: nodeportisolation, match: ['kube-proxy/services']}\n";
const NEW: &str = "filters:
  - {name: nodeportisolation, match: ['kube-proxy/services']}
  - {name: discardcloudservice, match: ['*/services']}
  - {name: servicetopology, match: ['kube-proxy/endpointslices.discovery.k8s.io'], nodes: {pools: [hangzhou]}}
";

struct Desk {
    server: ApiServer,
    folder: tempfile::TempDir,
}

impl Desk {
    /// A cluster whose ConfigMap has `OLD`, with its modules in it.
    async fn new() -> Self {
        let server = edge().await;
        let modules = ["nodeportisolation", "discardcloudservice", "servicetopology"];
        let module = |name: &str| STANDARD.encode(std::fs::read(built::module(name)).unwrap());
        let binary: serde_json::Map<_, _> =
            modules[..1].iter().map(|name| (format!("{name}.wasm"), Value::from(module(name)))).collect();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-filters", "namespace": "kube-system"},
            "data": {"filters.yaml": OLD}, "binaryData": binary,
        });
        server.store().put(map).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(server.url(), "", "token: operator");
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        Self { server, folder }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn diff(&self, config: &Path, node: &str, more: &[&str]) -> Output {
        self.command(config, node, more).output().await.unwrap()
    }

    fn command(&self, config: &Path, node: &str, more: &[&str]) -> Command {
        let mut command = Command::new(built::weir());
        command
            .arg("diff")
            .arg(config)
            .args(["--node-name", node, "--modules-dir"])
            .arg(built::modules())
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .args(more);
        command.env_clear();
        command
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn a_new_configuration_is_compared_with_the_one_in_force() {
    let desk = Desk::new().await;
    let output = desk.diff(&desk.file("new.yaml", NEW), "edge-a", &[]).await;
    assert_eq!(
        stdout(&output),
        "\
kube-proxy endpointslices.discovery.k8s.io: 1 of 1 objects change
  1 edited: default/web-x7k2p
any other client services: 1 of 4 objects change
  1 hidden: default/shop
kube-proxy services: 1 of 4 objects change
  1 hidden: default/shop
",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1), "it differs");
    let json: Value =
        serde_json::from_str(&stdout(&desk.diff(&desk.file("new.yaml", NEW), "edge-a", &["-o", "json"]).await))
            .unwrap();
    assert_eq!(
        (&json[1]["component"], &json[1]["hidden"]),
        (&json!("any other client"), &json!(["services default/shop"]))
    );
}

#[tokio::test]
async fn filters_for_other_nodes_and_equal_configurations_change_nothing() {
    let desk = Desk::new().await;
    let output = desk.diff(&desk.file("new.yaml", NEW), "edge-c", &[]).await;
    assert!(!stdout(&output).contains("endpointslices"), "servicetopology is not for edge-c: {}", stdout(&output));
    let output = desk.diff(&desk.file("old.yaml", OLD), "edge-a", &[]).await;
    assert_eq!(stdout(&output), "kube-proxy services: none of 4 objects changes\n");
    assert_eq!(output.status.code(), Some(0));
    // Two files, without the ConfigMap.
    desk.server.store().delete("v1", "ConfigMap", "kube-system", "weir-filters");
    let (old, new) = (desk.file("old.yaml", NEW), desk.file("new.yaml", OLD));
    let output = desk.diff(&new, "edge-a", &["--against", &old.display().to_string()]).await;
    assert!(stdout(&output).contains("  1 shown: default/shop\n"), "{}", stdout(&output));
}

#[tokio::test]
async fn an_input_that_cannot_be_compared_is_an_error() {
    let desk = Desk::new().await;
    for (text, node, reason) in [
        ("filters: [{name: a}]", "edge-a", "filter a: "),
        ("filters: [{name: a, mode: x}]", "edge-a", "not a mode"),
        (NEW, "edge-z", "edge-z: the cluster has no such Node"),
        (
            "filters: [{name: discardcloudservice, match: ['*/*']}]",
            "edge-a",
            "a rule for all resources cannot be compared",
        ),
    ] {
        let output = desk.diff(&desk.file("new.yaml", text), node, &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{text}: {error}");
        assert!(error.contains(reason), "{text}: {error}");
    }
    let observed = NEW.replace("match: ['*/services']", "match: ['*/services'], mode: observe");
    let output = desk.diff(&desk.file("new.yaml", &observed), "edge-a", &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("note: filter discardcloudservice only observes"), "{error}");
    assert!(!stdout(&output).contains("shop"), "{}", stdout(&output));
}

#[tokio::test]
async fn a_configuration_is_read_from_standard_input_and_a_missing_config_map_is_said() {
    let desk = Desk::new().await;
    let nowhere = ["--config-map", "kube-system/weir-filter"];
    let mut command = desk.command(Path::new("-"), "edge-a", &nowhere);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(NEW.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stdout(&output).contains("any other client services: 1 of 4 objects change\n"), "{error}");
    let expected = "note: ConfigMap kube-system/weir-filter does not exist: no filter is in force\n";
    assert!(error.contains(expected), "{error}");
}

/// `weir explain --node` runs the filters in force for any node, without a daemon.
#[tokio::test]
async fn an_object_is_explained_for_a_node_without_its_daemon() {
    let desk = Desk::new().await;
    desk.server.store().edit("v1", "ConfigMap", "kube-system", "weir-filters", |map| {
        map["data"]["filters.yaml"] = NEW.into();
    });
    let explained = async |node: &str| {
        let mut command = Command::new(built::weir());
        command
            .args(["explain", "endpointslice/web-x7k2p", "--component", "kube-proxy", "--node", node, "-o", "json"])
            .arg("--modules-dir")
            .arg(built::modules())
            .arg("--kubeconfig")
            .arg(desk.folder.path().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(desk.folder.path().join("cache"));
        let output = command.env_clear().output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let here = explained("edge-a").await;
    assert_eq!((&here["outcome"], &here["filters"][0]["filter"]), (&json!("edited"), &json!("servicetopology")));
    assert_eq!(here["shown"]["endpoints"].as_array().unwrap().len(), 2);
    let elsewhere = explained("edge-c").await;
    assert_eq!((&elsewhere["outcome"], &elsewhere["filters"]), (&json!("unchanged"), &json!([])));
    assert_eq!((&here["filtersOff"], &elsewhere["filtersOff"]), (&json!(false), &json!(false)));
    // Nobody knows who is in the pool: the filter fails, as it does in the daemon.
    desk.server.remove_resource("apps.openyurt.io", "nodepools");
    let unknown = explained("edge-a").await;
    let filter = &unknown["filters"][0];
    assert_eq!((&unknown["outcome"], &filter["decision"]), (&json!("failed"), &json!("failed")), "{filter}");
    assert!(filter["failure"].as_str().unwrap().contains("nodepools.apps.openyurt.io cannot be read"), "{filter}");
    desk.server.store().edit("v1", "Node", "", "edge-a", |node| {
        node["metadata"]["annotations"]["weir.dev/filters"] = "off".into();
    });
    let off = explained("edge-a").await;
    assert_eq!((&off["outcome"], &off["filtersOff"]), (&json!("unchanged"), &json!(true)), "as the daemon does it");
}
