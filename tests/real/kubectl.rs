//! kubectl as one user, directly to the API server and through Weir.

use std::ffi::OsStr;
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{Plane, skipped};

/// kubectl and its routes to the API server.
pub(crate) struct Kubectl {
    pub(crate) plane: &'static Plane,
    pub(crate) weir: Daemon,
    secure: String,
    identity: &'static str,
    home: TempDir,
}

/// A route from kubectl to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Direct, with a client certificate.
    Direct,
    /// Through the plain port, where Weir attaches the node credential.
    Through,
    /// Through the HTTPS port, with the identity's token.
    Token,
    /// Through the HTTPS port, with the identity's client certificate.
    Certificate,
    /// Through the HTTPS port, with what the exec plugin of a kubeconfig file in the folder of kubectl says, see [`Kubectl::plugin`].
    Plugin,
}

impl Kubectl {
    /// kubectl as an identity of the control plane, with these filters, in its own namespace. Returns `None` and
    /// reports the skipped test if kubectl or the control plane is missing.
    pub(crate) async fn start(identity: &'static str, namespace: &str, filters: &str) -> Option<Self> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            skipped("there is no kubectl on PATH");
            return None;
        }
        let plane = Plane::shared()?;
        // kubectl sends no credential over plain HTTP. Weir attaches this one.
        let credential = plane.kubeconfig(identity).display().to_string();
        let setup = Setup::kubeconfig(&plane.kubeconfig("weir"))
            .flag("--node-kubeconfig", &credential)
            .flag("--modules-dir", &built::modules().display().to_string())
            .filters(filters);
        let weir = plane.secured(setup).start_ready().await;
        let secure = weir.secure_url().await;
        let kubectl = Self { plane, weir, secure, identity, home: tempfile::tempdir().unwrap() };
        kubectl.admin(&["create", "namespace", namespace]).await;
        Some(kubectl)
    }

    /// kubectl as an identity of a control plane of its own, through this daemon.
    pub(crate) async fn on(plane: &'static Plane, weir: Daemon, identity: &'static str) -> Self {
        let secure = weir.secure_url().await;
        Self { plane, weir, secure, identity, home: tempfile::tempdir().unwrap() }
    }

    /// The same with another daemon.
    pub(crate) fn behind(self, weir: Daemon) -> Self {
        Self { weir, ..self }
    }

    fn command(&self, way: Way, identity: &str) -> Command {
        let mut command = Command::new("kubectl");
        let server = match way {
            Way::Direct => None,
            Way::Through => Some(self.weir.url()),
            Way::Token | Way::Certificate | Way::Plugin => Some(self.secure.as_str()),
        };
        match server {
            None => command.arg("--kubeconfig").arg(self.plane.kubeconfig(identity)),
            Some(url) => command.args(["--server", url]).env("KUBECONFIG", self.home.path().join("config")),
        };
        match way {
            Way::Direct | Way::Through => {}
            Way::Plugin => {
                command.arg("--certificate-authority").arg(self.plane.ca()).args(["--user", "plugin"]);
            }
            Way::Token => {
                let token = std::fs::read_to_string(self.plane.token(identity)).unwrap();
                command.arg("--certificate-authority").arg(self.plane.ca()).args(["--token", &token]);
            }
            Way::Certificate => {
                let (certificate, key) = self.plane.certificate(identity);
                command.arg("--certificate-authority").arg(self.plane.ca());
                command.arg("--client-certificate").arg(certificate).arg("--client-key").arg(key);
            }
        }
        command.env("HOME", self.home.path()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Writes a kubeconfig file whose exec plugin says this token.
    pub(crate) fn plugin(&self, token: &str) {
        let said = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{}"}}}}"#,
            token.trim()
        );
        std::fs::write(self.home.path().join("said.json"), said).unwrap();
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "cat",
            "args": [self.home.path().join("said.json")], "interactiveMode": "Never",
        });
        let users = serde_json::json!([{"name": "plugin", "user": {"exec": exec}}]);
        let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "users": users});
        std::fs::write(self.home.path().join("config"), config.to_string()).unwrap();
    }

    /// A kubectl command before its start.
    pub(crate) fn goes<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> Command {
        let mut command = self.command(way, self.identity);
        command.args(arguments);
        command
    }

    /// Runs a command, whether it succeeds or not.
    pub(crate) async fn run<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A], input: &str) -> Output {
        finished(self.goes(way, arguments), input).await
    }

    /// The output of a command that must succeed.
    pub(crate) async fn prints<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> String {
        printed(self.run(way, arguments, "").await, arguments)
    }

    /// Runs a command of the administrator, directly.
    pub(crate) async fn admin<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        let mut command = self.command(Way::Direct, "admin");
        command.args(arguments);
        printed(finished(command, "").await, arguments)
    }

    /// The same, with objects to create.
    pub(crate) async fn create(&self, namespace: &str, manifest: &str) {
        let mut command = self.command(Way::Direct, "admin");
        let arguments = ["create", "--namespace", namespace, "--filename", "-"];
        command.args(arguments);
        printed(finished(command, manifest).await, &arguments);
    }

    /// Starts a command whose output is read line by line.
    pub(crate) fn follows<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> Following {
        let mut child = self.goes(way, arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { _child: child, lines }
    }

    /// Asserts that a command has the same output and exit code through Weir and directly, byte for byte.
    pub(crate) async fn same<A: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[A]) -> Output {
        self.same_by(&[Way::Through], arguments).await
    }

    /// The same on each of these routes. The output contains ages that change every second, so it is compared with the
    /// direct output before and after.
    pub(crate) async fn same_by<A: AsRef<OsStr> + std::fmt::Debug>(&self, ways: &[Way], arguments: &[A]) -> Output {
        let mut before = self.run(Way::Direct, arguments, "").await;
        for way in ways {
            let mut tries = 0;
            loop {
                let through = self.run(*way, arguments, "").await;
                let after = self.run(Way::Direct, arguments, "").await;
                if through == before || through == after {
                    break;
                }
                assert_ne!(before, after, "{arguments:?} by {way:?}: {through:?}\n{}", self.weir.log_text());
                tries += 1;
                assert!(tries < 20, "{arguments:?} never prints the same twice");
                before = after;
            }
        }
        before
    }
}

/// Runs a command with this input until it exits.
pub(crate) async fn finished(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async move { stdin.write_all(input.as_bytes()).await };
    let both = async { tokio::join!(write, child.wait_with_output()).1 };
    tokio::time::timeout(PATIENCE, both).await.expect("kubectl ends in time").unwrap()
}

fn printed<A: AsRef<OsStr>>(output: Output, arguments: &[A]) -> String {
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A running command, killed on drop.
pub(crate) struct Following {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// The next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
        line.unwrap().expect("the command goes on")
    }

    /// The next line's words.
    pub(crate) async fn words(&mut self) -> Vec<String> {
        self.line().await.split_whitespace().map(str::to_owned).collect()
    }
}
