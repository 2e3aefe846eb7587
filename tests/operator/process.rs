//! The operator as a child process.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use weir_tests::built;
use weir_tests::client::{Client, PATIENCE};

use super::cluster::{Cluster, until};

/// A running operator. Dropping it kills the process.
pub(super) struct Operator {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    lines: watch::Receiver<usize>,
    admin: Client,
    _folder: tempfile::TempDir,
}

impl Operator {
    /// Starts the operator with its own ServiceAccount, and waits until it is ready.
    pub(super) async fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let operator = Self::begin(cluster, flags).await;
        operator.ready().await;
        operator
    }

    /// Starts the operator.
    pub(super) async fn begin(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::begin_at(cluster, flags, &cluster.server).await
    }

    /// Starts the operator, which reaches the API server through the proxy only.
    pub(super) async fn behind_proxy(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::begin_at(cluster, flags, &cluster.proxied_server()).await
    }

    async fn begin_at(cluster: &Cluster, flags: &[&str], server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = cluster.kubeconfig(folder.path(), "weir-operator", "weir-operator").await;
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        std::fs::write(&kubeconfig, text.replace(&cluster.server, server)).unwrap();
        let short = !flags.iter().any(|flag| flag.starts_with("--lease-seconds"));
        let mut child = Command::new(built::operator())
            .args(["serve", "--admin-address=127.0.0.1:0", "--verbose", "--kubeconfig"])
            .arg(kubeconfig)
            .args(short.then_some("--lease-seconds=3"))
            .args(flags)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("`make build` builds the operator");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (count, lines) = watch::channel(0);
        let mut output = BufReader::new(child.stderr.take().unwrap()).lines();
        let sink = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                if std::env::var_os("WEIR_TEST_LOG").is_some() {
                    eprintln!("{line}");
                }
                sink.lock().unwrap().push(line);
                count.send_modify(|count| *count += 1);
            }
        });
        let mut operator =
            Self { child, log, lines, admin: Client::new("http://127.0.0.1:1", "test"), _folder: folder };
        let line = operator.logged("admin port listens").await;
        let address = line.rsplit_once("address=").unwrap().1;
        operator.admin = Client::new(&format!("http://{address}"), "test");
        operator
    }

    /// Waits for a line of the log.
    pub(super) async fn logged(&self, text: &str) -> String {
        let mut lines = self.lines.clone();
        let found = async {
            loop {
                let hit = self.log.lock().unwrap().iter().find(|line| line.contains(text)).cloned();
                if let Some(hit) = hit {
                    return hit;
                }
                if lines.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(line) => line,
            Err(_) => panic!("the log has no line with {text:?}:\n{}", self.log.lock().unwrap().join("\n")),
        }
    }

    /// Waits until it acts, or waits for another replica.
    pub(super) async fn ready(&self) {
        until("the operator is ready", async || (self.not_ready().await.is_empty()).then_some(())).await;
    }

    /// What `/readyz` reports; empty if nothing is wrong.
    pub(super) async fn not_ready(&self) -> String {
        let answer = self.admin.get("/readyz").await;
        if answer.status == 200 { String::new() } else { answer.text() }
    }

    /// All that `/readyz` says.
    pub(super) async fn readyz(&self) -> String {
        self.admin.get("/readyz").await.text()
    }

    /// The sum of all series of a metric.
    pub(super) async fn metric(&self, series: &str) -> f64 {
        let text = self.admin.get("/metrics").await.text();
        let values = text.lines().filter(|line| line.starts_with(series)).filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum()
    }

    /// Requests to the API server that are not for the Lease: its renewals are a GET and a PUT each, and nothing else is a PUT.
    pub(super) async fn requests(&self) -> f64 {
        self.metric("weir_operator_requests_total").await
            - 2.0 * self.metric("weir_operator_requests_total{method=\"PUT\"}").await
    }

    /// Waits until the lists and watches of the start, which count against the bound of requests, are over.
    pub(super) async fn settled(&self) {
        until("no requests are sent for a second", async || {
            let before = self.requests().await;
            tokio::time::sleep(Duration::from_millis(1100)).await;
            ((self.requests().await - before).abs() <= 1.0).then_some(())
        })
        .await;
    }

    pub(super) async fn live(&self) -> bool {
        self.admin.get("/livez").await.status == 200
    }

    /// Kills the process, as a crash does.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until it ends by itself. Returns its exit code and the last line of its log.
    pub(super) async fn ended(mut self) -> (Option<i32>, String) {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        // The reader of the log reaches its end a moment later.
        let mut lines = self.lines.clone();
        while lines.changed().await.is_ok() {}
        (status.code(), self.log.lock().unwrap().last().cloned().unwrap_or_default())
    }

    /// Sends SIGTERM and waits for the end.
    pub(super) async fn stop(mut self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}
