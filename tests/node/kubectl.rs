//! The operator: kubectl as the cluster's administrator, without Weir unless flags select it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::runner::until;

#[derive(Clone)]
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
    /// Further flags of each call, for example another server.
    flags: Vec<String>,
    /// Whether it runs in the control plane's network.
    in_cloud: bool,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), flags: Vec::new(), in_cloud: false }
    }

    /// The same kubectl with more flags.
    pub(crate) fn with(&self, flags: &[String]) -> Self {
        Self { flags: [self.flags.as_slice(), flags].concat(), ..self.clone() }
    }

    /// The same kubectl at the other end of the link.
    pub(crate) fn in_cloud(&self) -> Self {
        Self { in_cloud: true, ..self.clone() }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(if self.in_cloud { "nsenter" } else { "kubectl" });
        if self.in_cloud {
            command.args(["--net=/run/netns/cloud", "kubectl"]);
        }
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(&self.flags).args(words);
        // For its discovery cache. The home folder belongs to the host.
        command.env("HOME", "/mnt");
        command
    }

    /// Returns standard output, or the error.
    pub(crate) fn attempt(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|error| format!("kubectl: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("kubectl {}: {}", words.join(" "), text(&output.stderr))),
        }
    }

    pub(crate) fn run(&self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn json(&self, words: &[&str]) -> Result<Value, String> {
        let text = self.attempt(&[words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// Waits until `look` accepts the object. `look` returns what is missing.
    pub(crate) fn wait<T>(&self, what: &str, words: &[&str], look: impl Fn(&Value) -> Option<T>) -> T {
        until(what, || {
            let object = self.json(words)?;
            look(&object).ok_or_else(|| format!("kubectl {}: {}", words.join(" "), object["status"]))
        })
    }

    pub(crate) fn apply(&self, text: &str) {
        let path = format!("/mnt/apply-{}.yaml", text.len());
        std::fs::write(&path, text).unwrap();
        self.run(&["apply", "-f", &path]);
    }
}

/// Whether a condition of an object is true.
pub(crate) fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}
