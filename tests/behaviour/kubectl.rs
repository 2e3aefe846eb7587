//! kubectl through Weir, if it is on PATH: it prints what a JSON read by the same client returns.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::skipped;

use super::{NO_LOAD_BALANCERS, edge, only, service};

struct Kubectl {
    server: ApiServer,
    weir: Daemon,
    home: TempDir,
}

impl Kubectl {
    /// Returns `None` and reports the skipped test if kubectl is not installed.
    async fn start(filters: &str, module: &str) -> Option<Self> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            skipped("there is no kubectl on PATH");
            return None;
        }
        let server = edge().await;
        let weir = Setup::new(server.url()).filters(filters).bundled(module).start_ready().await;
        Some(Self { server, weir, home: tempfile::tempdir().unwrap() })
    }

    fn command(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--server")
            .arg(url)
            .args(arguments)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("none"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn prints(&self, url: &str, arguments: &[&str]) -> String {
        let output = tokio::time::timeout(PATIENCE, self.command(url, arguments).output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn through(&self, arguments: &[&str]) -> String {
        self.prints(self.weir.url(), arguments).await
    }

    fn watch(&self, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.command(self.weir.url(), arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }
}

/// The words of each line except the age, which changes every second.
fn rows(printed: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut lines = printed.lines().map(words);
    let header = lines.next().unwrap_or_default();
    let age = header.iter().position(|word| word == "AGE");
    std::iter::once(header.clone())
        .chain(lines)
        .map(|mut row| {
            if let Some(age) = age {
                row.remove(age);
            }
            row
        })
        .collect()
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("a line in time")
        .unwrap()
        .expect("the watch goes on")
}

#[tokio::test]
async fn visible_objects_print_as_they_do_without_weir() {
    // kubectl's User-Agent names it kubectl. The rule matches every component.
    let Some(kubectl) = Kubectl::start(NO_LOAD_BALANCERS, "discardcloudservice").await else { return };
    for output in [&[][..], &["-o", "wide"], &["-o", "name"], &["--show-labels"], &["--chunk-size=1"]] {
        let arguments = [&["get", "services"], output].concat();
        let direct = kubectl.prints(kubectl.server.url(), &arguments).await;
        let expected: Vec<_> =
            rows(&direct).into_iter().filter(|row| !row.first().is_some_and(|name| name.ends_with("shop"))).collect();
        assert_eq!(rows(&kubectl.through(&arguments).await), expected, "{output:?}");
        assert!(rows(&direct).len() > expected.len(), "{output:?}: {direct}");
    }
    let json: Value = serde_json::from_str(&kubectl.through(&["get", "services", "-o", "json"]).await).unwrap();
    assert_eq!(weir_tests::client::names(&json), ["dashboard", "kubernetes", "web"]);
    let hidden = kubectl.command(kubectl.weir.url(), &["get", "service", "shop"]).output().await.unwrap();
    let error = String::from_utf8_lossy(&hidden.stderr).into_owned();
    assert_eq!(error, "Error from server (NotFound): services \"shop\" not found\n");
}

#[tokio::test]
async fn a_table_never_shows_values_that_a_filter_replaced() {
    let filters = only("masterservice", "    match: ['*/services']\n");
    let Some(kubectl) = Kubectl::start(&filters, "masterservice").await else { return };
    for arguments in [&["get", "services"][..], &["get", "service", "kubernetes"]] {
        let printed = kubectl.through(arguments).await;
        assert!(!printed.contains("10.96.0.1"), "{printed}");
        assert!(printed.contains("kubernetes"), "{printed}");
    }
    let address = ["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"];
    assert_eq!(kubectl.through(&address).await, "169.254.20.10");
    assert!(kubectl.through(&["get", "service", "web"]).await.contains("10.96.10.10"), "others keep their columns");
}

#[tokio::test]
async fn a_watch_prints_rows_of_visible_objects_only() {
    let Some(kubectl) = Kubectl::start(NO_LOAD_BALANCERS, "discardcloudservice").await else { return };
    let (_child, mut lines) = kubectl.watch(&["get", "services", "-w"]);
    let header = line(&mut lines).await;
    assert!(header.starts_with("NAME") && header.contains("CLUSTER-IP"), "{header}");
    for name in ["dashboard", "kubernetes", "web"] {
        assert!(line(&mut lines).await.starts_with(name));
    }
    kubectl.server.store().put(service("hidden", "LoadBalancer")).unwrap();
    kubectl.server.store().put(service("seen", "ClusterIP")).unwrap();
    let seen = line(&mut lines).await;
    assert!(seen.starts_with("seen") && seen.contains("10.96.1.1"), "{seen}");
    kubectl
        .server
        .store()
        .edit("v1", "Service", "default", "shop", |shop| shop["spec"]["type"] = json!("ClusterIP"))
        .unwrap();
    assert!(line(&mut lines).await.starts_with("shop"));
}
