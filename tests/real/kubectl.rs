//! kubectl, straight to the API server and through Weir, as the same user.

use std::ffi::OsStr;
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{Plane, skipped};

/// kubectl and the two ways that it can go.
pub(crate) struct Kubectl {
    pub(crate) plane: &'static Plane,
    pub(crate) weir: Daemon,
    identity: &'static str,
    home: TempDir,
}

/// One of the two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Through,
}

impl Kubectl {
    /// As an identity of the control plane, with these filters in force, in a namespace of its own. None, and a word about
    /// it, where kubectl or the control plane is missing.
    pub(crate) async fn start(identity: &'static str, namespace: &str, filters: &str) -> Option<Self> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            skipped("there is no kubectl on PATH");
            return None;
        }
        let plane = Plane::shared()?;
        // The plain port lends this identity to kubectl, which sends no credential of its own over plain HTTP.
        let lent = plane.kubeconfig(identity).display().to_string();
        let weir = Setup::kubeconfig(&plane.kubeconfig("weir"))
            .flag("--node-kubeconfig", &lent)
            .flag("--modules-dir", &built::modules().display().to_string())
            .filters(filters)
            .start_ready()
            .await;
        let kubectl = Self { plane, weir, identity, home: tempfile::tempdir().unwrap() };
        kubectl.admin(&["create", "namespace", namespace]).await;
        Some(kubectl)
    }

    /// The same behind another daemon.
    pub(crate) fn behind(self, weir: Daemon) -> Self {
        Self { weir, ..self }
    }

    fn command(&self, way: Way, identity: &str) -> Command {
        let mut command = Command::new("kubectl");
        match way {
            Way::Direct => command.arg("--kubeconfig").arg(self.plane.kubeconfig(identity)),
            Way::Through => {
                command.arg("--server").arg(self.weir.url()).env("KUBECONFIG", self.home.path().join("none"))
            }
        };
        command.env("HOME", self.home.path()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// A kubectl command that is not started yet.
    pub(crate) fn goes<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> Command {
        let mut command = self.command(way, self.identity);
        command.args(arguments);
        command
    }

    /// Runs it, whatever comes of it.
    pub(crate) async fn run<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A], input: &str) -> Output {
        finished(self.goes(way, arguments), input).await
    }

    /// What a command that must succeed prints.
    pub(crate) async fn prints<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> String {
        printed(self.run(way, arguments, "").await, arguments)
    }

    /// What an administrator does on the other side of Weir.
    pub(crate) async fn admin<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        let mut command = self.command(Way::Direct, "admin");
        command.args(arguments);
        printed(finished(command, "").await, arguments)
    }

    /// Likewise, with objects to create.
    pub(crate) async fn create(&self, namespace: &str, manifest: &str) {
        let mut command = self.command(Way::Direct, "admin");
        let arguments = ["create", "--namespace", namespace, "--filename", "-"];
        command.args(arguments);
        printed(finished(command, manifest).await, &arguments);
    }

    /// A command whose lines are read as they come.
    pub(crate) fn follows<A: AsRef<OsStr>>(&self, way: Way, arguments: &[A]) -> Following {
        let mut child = self.goes(way, arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { _child: child, lines }
    }

    /// Asserts that a command prints the same, byte for byte, and ends the same on both ways. What it prints may change
    /// from second to second (ages), so it is compared with what was printed before and after.
    pub(crate) async fn same<A: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[A]) -> Output {
        let mut before = self.run(Way::Direct, arguments, "").await;
        for _ in 0..20 {
            let through = self.run(Way::Through, arguments, "").await;
            let after = self.run(Way::Direct, arguments, "").await;
            if through == before || through == after {
                return through;
            }
            assert_ne!(before, after, "{arguments:?} through Weir: {through:?}\n{}", self.weir.log_text());
            before = after;
        }
        panic!("{arguments:?} never prints the same twice");
    }
}

/// Runs a command with this input to its end.
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

/// A command that goes on; it is killed when dropped.
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
