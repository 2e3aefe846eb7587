//! The suite's programs: the runner ginkgo and the tests, with the credential of an administrator's service account.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::programs;
use super::report::Results;
use crate::checks::World;
use crate::runner::until;
use crate::{SERVER_NAME, WEIR};

/// Tests that need images which nobody can build here, and one that replaces files of a web server.
const SKIPPED: &[&str] = &[
    "Aggregator Should",
    "Update Demo",
    "AllowPrivilegeEscalation",
    "rolling updates and roll backs of template modifications",
    r"\[Disruptive\]",
    r"\[Flaky\]",
    r"\[Slow\]",
    r"\[Serial\]",
    "Feature:",
];
/// The administrator, and the namespace of its service account.
const ADMIN: &str = "conformance";

/// The server that the tests' client talks to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The API server itself.
    Direct,
    /// Weir's HTTPS port.
    Weir,
}

/// The suite, ready to run.
pub(super) struct Suite {
    folder: PathBuf,
    focus: Vec<String>,
    token: String,
    authority: PathBuf,
}

impl Suite {
    /// Creates the administrator, and removes the pods of the node's own test.
    pub(super) fn prepare(world: &World<'_>, focus: &[String]) -> Self {
        let admin = &world.admin;
        admin.run(&["create", "namespace", ADMIN]);
        admin.run(&["-n", ADMIN, "create", "serviceaccount", ADMIN]);
        let account = format!("--serviceaccount={ADMIN}:{ADMIN}");
        admin.run(&["create", "clusterrolebinding", ADMIN, "--clusterrole=cluster-admin", &account]);
        let token = admin.run(&["-n", ADMIN, "create", "token", ADMIN, "--duration=24h"]);
        admin.run(&["delete", "pods", "web", "neighbours", "--now"]);
        admin.run(&["delete", "service", "web"]);
        let folder = world.machine.folder("conformance");
        Self { folder, focus: focus.to_vec(), token: token.trim().to_owned(), authority: world.cloud.file("ca.crt") }
    }

    /// Runs the selected tests, or only these.
    pub(super) fn run(&self, target: Target, only: Option<&[String]>) -> Results {
        let name = format!("{target:?}").to_lowercase();
        let (server, kubeconfig) = (self.server(target), self.folder.join(format!("{name}.kubeconfig")));
        std::fs::write(&kubeconfig, self.kubeconfig(&server)).unwrap();
        let log = self.folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let only = only.map(|names| names.iter().map(|name| literal(name)).collect::<Vec<_>>());
        let focus = only.unwrap_or_else(|| self.focus.clone()).join("|");
        println!("running {focus} at {server}; log {}", log.display());
        let report = format!("{name}.json");
        let procs = super::variable("PROCS").unwrap_or_else(|| "4".to_owned());
        let mut command = Command::new(programs().join("ginkgo"));
        command.args(["run", "--no-color", &format!("--procs={procs}"), "--timeout=3h"]);
        command.args([format!("--focus={focus}"), format!("--skip={}", SKIPPED.join("|"))]);
        command.args([format!("--output-dir={}", self.folder.display()), format!("--json-report={report}")]);
        command.arg(programs().join("e2e.test")).arg("--").arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--provider=skeleton", "--num-nodes=1", "--allowed-not-ready-nodes=10"]);
        command.args(["--dump-logs-on-failure=false"]);
        command.env("HOME", "/mnt").current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let status = command.status().unwrap();
        let results = Results::of_ginkgo(&self.folder.join(report)).unwrap_or_else(|error| {
            panic!("the suite ended with {status} and without a report ({error}), see {}", log.display())
        });
        println!("{}", results.summary());
        assert_eq!(status.success(), results.all_passed(), "the suite ended with {status}, see {}", log.display());
        results
    }

    fn server(&self, target: Target) -> String {
        match target {
            Target::Direct => format!("https://{SERVER_NAME}:6443"),
            Target::Weir => WEIR.to_owned(),
        }
    }

    fn kubeconfig(&self, server: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: it,\n\
             clusters: [{{name: it, cluster: {{server: '{server}', certificate-authority: {}}}}}],\n\
             users: [{{name: it, user: {{token: {}}}}}],\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]}}\n",
            self.authority.display(),
            self.token
        )
    }
}

/// The regular expression of a text.
fn literal(text: &str) -> String {
    text.chars().flat_map(|c| (!c.is_alphanumeric() && c != ' ').then_some('\\').into_iter().chain([c])).collect()
}

/// The names of all images that the suite may use.
pub(super) fn image_names() -> Vec<String> {
    until("the suite lists its images", || {
        let output =
            Command::new(programs().join("e2e.test")).arg("--list-images").output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<_> = text.lines().filter(|line| line.contains('/')).map(str::to_owned).collect();
        if names.is_empty() { Err(text) } else { Ok(names) }
    })
}
