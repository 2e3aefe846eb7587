//! The Helm chart of `deploy/helm`, rendered by Helm, which `make deploy-tools` builds with promtool.
//!
//! Without Go they cannot be built. The tests then report that they are skipped; with `CI` set they fail.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::built;
use crate::plane::skipped;

pub mod combinations;

/// Helm.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    chart: PathBuf,
    /// Helm's own files, so that those of the machine do not matter.
    home: tempfile::TempDir,
}

/// The path of a program of `tests/deploy`; `None` if it is not built.
///
/// # Panics
/// If `CI` is set and it is not built.
#[must_use]
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = built::target().join("deploy").join(name);
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("{name} was not built: `make deploy-tools` does it, and needs Go"));
    None
}

/// A file of `deploy/`, as text.
#[must_use]
pub fn text(name: &str) -> String {
    let path = built::workspace().join("deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values without which the chart renders nothing.
pub const REQUIRED: [&str; 6] = [
    "--set-json",
    "image.repository=\"weir\"",
    "--set-json",
    "servers=[\"https://apiserver.example.internal:6443\"]",
    "--set-json",
    "operator.image.repository=\"weir-operator\"",
];

impl Helm {
    /// Helm with the chart of this repository; `None` if Helm is not built.
    ///
    /// # Panics
    /// If `CI` is set and it is not built.
    #[must_use]
    pub fn new() -> Option<Self> {
        let chart = built::workspace().join("deploy").join("helm").join("weir");
        Some(Self { program: tool("helm")?, chart, home: tempfile::tempdir().unwrap() })
    }

    /// The folder of the chart.
    #[must_use]
    pub fn chart(&self) -> &Path {
        &self.chart
    }

    /// The chart as it was released in this version.
    #[must_use]
    pub fn released(version: &str) -> PathBuf {
        built::workspace().join("tests/deploy/charts").join(format!("weir-{version}.tgz"))
    }

    /// A copy of the chart with another version of the chart and of the daemon.
    #[must_use]
    pub fn copy(&self, version: &str) -> PathBuf {
        let copy = self.home.path().join(version);
        let copied = Command::new("cp").arg("-r").arg(&self.chart).arg(&copy).status().unwrap();
        assert!(copied.success(), "the chart is copied");
        let file = copy.join("Chart.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {version}\n"),
            _ => format!("{line}\n"),
        });
        std::fs::write(&file, lines.collect::<String>()).unwrap();
        copy
    }

    /// Runs Helm.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, self.home.path().join(name));
        }
        command.args(arguments).env_remove("KUBECONFIG").output().unwrap()
    }

    /// The output of a command of Helm that must succeed.
    #[must_use]
    pub fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The manifest of the chart in `kube-system` with these values: `name=value` in JSON.
    ///
    /// # Errors
    /// What Helm says is wrong.
    pub fn manifest(&self, values: &[&str]) -> Result<String, String> {
        self.manifest_of(&self.chart, "kube-system", values)
    }

    /// The manifest of a chart in a namespace.
    ///
    /// # Errors
    /// What Helm says is wrong.
    pub fn manifest_of(&self, chart: &Path, namespace: &str, values: &[&str]) -> Result<String, String> {
        let mut arguments = vec!["template", "weir", chart.to_str().unwrap(), "--namespace", namespace];
        arguments.extend(REQUIRED);
        arguments.extend(values.iter().flat_map(|value| ["--set-json", value]));
        let output = self.run(&arguments);
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// The objects of that manifest.
    #[must_use]
    pub fn objects(&self, values: &[&str]) -> Vec<Value> {
        let manifest = self.manifest(values).unwrap_or_else(|error| panic!("{values:?}: {error}"));
        weir_store::read_objects(&manifest).unwrap()
    }
}

/// Whether Helm creates the object for a moment only: for a test, or after an uninstall.
#[must_use]
pub fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"].is_string()
}

/// The object of this kind and name.
#[must_use]
pub fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// All permissions of rules, as `verb resource.group/name`.
#[must_use]
pub fn permissions(role: &Value) -> Vec<String> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut permissions = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let mut names = texts(rule, "resourceNames");
        if names.is_empty() {
            names.push("*".to_owned());
        }
        for verb in texts(rule, "verbs") {
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    permissions.extend(names.iter().map(|name| format!("{verb} {resource}.{group}/{name}")));
                }
            }
        }
    }
    permissions.sort();
    permissions.dedup();
    permissions
}
