//! etcd is put back from a backup, while Weir runs, while its link is down, and while it is stopped; with fewer writes than there
//! were since the backup, and with more. Nothing of the history that ended is left.

use serde_json::{Value, json};
use tokio::process::Command;
use weir_tests::built;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{Plane, skipped};

use super::kubectl::finished;

const NAMESPACE: &str = "restored";
const SERVICES: &str = "/api/v1/namespaces/restored/services";

/// When the cluster is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Offline,
    Stopped,
}

/// A cluster whose administrator runs kubectl, and the folder of a daemon's cache.
struct Site {
    plane: Plane,
    cache: tempfile::TempDir,
}

impl Site {
    async fn weir(&self) -> Daemon {
        Setup::kubeconfig(&self.plane.kubeconfig("weir-cut"))
            .flag("--node-kubeconfig", &self.plane.kubeconfig("node-cut").display().to_string())
            .flag("--modules-dir", &built::modules().display().to_string())
            .on_disk(self.cache.path())
            .start_ready()
            .await
    }

    async fn control(&self, command: &str) {
        let client = Client::new(self.plane.control(), "test");
        let answer = client.send(http::Method::POST, &format!("/{command}"), "").await;
        assert_eq!(answer.status(), 200, "{command}");
    }

    async fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.plane.kubeconfig("admin")).args(arguments).env("HOME", self.cache.path());
        let output = finished(command, input).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn apply(&self, objects: Vec<Value>) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "--filename", "-"], &list.to_string()).await;
    }

    /// What the API server has.
    async fn names(&self) -> Vec<String> {
        let names = self.kubectl(&["get", "services", "--namespace", NAMESPACE, "--output=name"], "").await;
        names.lines().map(|name| name.trim_start_matches("service/").to_owned()).collect()
    }
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    })
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}})
}

/// The configuration of Weir: with a filter that hides Services of the cloud, or without one.
fn config(hides: bool) -> Value {
    let filters = match hides {
        true => "filters: [{name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}]",
        false => "filters: []",
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-filters", "namespace": "kube-system"},
        "data": {"filters.yaml": filters},
    })
}

/// Waits until a component gets exactly these Services.
async fn gets(weir: &Daemon, names: &[String], when: &str) {
    let client = weir.client("kube-proxy");
    let got = async {
        loop {
            match client.try_get(SERVICES).await {
                Ok(answer) if answer.status == 200 && weir_tests::client::names(&answer.json()) == names => return,
                _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    if tokio::time::timeout(2 * PATIENCE, got).await.is_err() {
        panic!("{when}: {:?} and not {names:?}\n{}", client.names(SERVICES).await, weir.log_text());
    }
}

/// Puts the cluster back, and returns the daemon that gets its Services.
async fn put_back(site: &Site, weir: Daemon, phase: Phase, writes: usize) -> Daemon {
    let when = format!("{phase:?}, {writes} writes");
    site.apply(vec![config(false), service("kept"), service("goes")]).await;
    gets(&weir, &site.names().await, &when).await;
    site.control("backup").await;
    // All of this is of the history that ends.
    site.kubectl(&["delete", "service", "goes", "--namespace", NAMESPACE], "").await;
    site.apply((0..20).map(|n| service(&format!("lost-{n:02}"))).collect()).await;
    gets(&weir, &site.names().await, &when).await;
    site.apply(vec![config(true)]).await;
    gets(&weir, &[], &when).await;

    let (from, weir) = match phase {
        Phase::Running => (weir.log_length(), Some(weir)),
        Phase::Offline => {
            site.control("down").await;
            (weir.log_length(), Some(weir))
        }
        Phase::Stopped => {
            weir.stopped().await;
            (0, None)
        }
    };
    site.control("restore").await;
    site.apply(vec![service("real-0"), service("real-1")]).await;
    site.apply((0..writes).map(|n| map(&format!("map-{n}"))).collect()).await;
    site.control("up").await;
    let weir = match weir {
        Some(weir) => weir,
        None => site.weir().await,
    };
    // The configuration of before the backup is in force, too.
    let names = site.names().await;
    assert!(names.contains(&"goes".to_owned()) && !names.contains(&"lost-00".to_owned()), "{names:?}");
    gets(&weir, &names, &when).await;
    weir.logged_after(from, "the history of the cluster is not the one that the watch cache is of").await;
    // And what is changed from now on.
    site.apply(vec![config(true)]).await;
    gets(&weir, &[], &when).await;
    let maps = ["delete", "configmaps,services", "--all", "--wait=false", "--namespace", NAMESPACE];
    site.kubectl(&maps, "").await;
    weir
}

#[tokio::test]
async fn nothing_of_a_history_that_a_restored_etcd_ended_is_left() {
    let Some(plane) = Plane::own() else { return };
    let version = Command::new("kubectl").args(["version", "--client"]).output().await;
    if !version.is_ok_and(|output| output.status.success()) {
        return skipped("there is no kubectl on PATH");
    }
    let site = Site { plane, cache: tempfile::tempdir().unwrap() };
    site.kubectl(&["create", "namespace", NAMESPACE], "").await;
    site.apply(vec![config(false)]).await;
    let mut weir = site.weir().await;
    for phase in [Phase::Running, Phase::Offline, Phase::Stopped] {
        // There were some thirty writes since the backup.
        for writes in [1, 150] {
            weir = put_back(&site, weir, phase, writes).await;
        }
    }
    let events =
        ["get", "events", "--all-namespaces", "--output=name", "--field-selector", "reason=ClusterHistoryChanged"];
    assert!(!site.kubectl(&events, "").await.is_empty(), "{}", weir.log_text());
}
