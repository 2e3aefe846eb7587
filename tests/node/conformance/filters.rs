//! The filter of the suite's client: it reads every object, and keeps it. Reloads change its match rules without an effect
//! on anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_tests::built;

use crate::checks::metrics;
use crate::cluster::deploy;
use crate::kubectl::Kubectl;
use crate::runner::until;

/// The interval of reloads.
const INTERVAL: Duration = Duration::from_secs(5);

/// The module, which is Weir's test module, and what it does: it reads each object as a whole.
const FILTER: &str = r#"
      - name: keep
        module: guest.wasm
        match: [MATCH]
        settings: {ops: [{read: [0, name]}, {read: [0, json]}]}
        limits: {time: 1s}
"#;
/// All requests of the suite.
const RULES: [&str; 2] = [r#""e2e.test/*""#, r#""e2e.test/*", "nobody/configmaps""#];

/// RBAC by which the daemon may fill a watch cache of every resource.
const READER: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: weir-reads-everything}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: weir-reads-everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: weir-reads-everything}
subjects: [{kind: ServiceAccount, namespace: kube-system, name: weir}]
";

/// Lets the daemon read every resource, so that views serve all watches of the tests.
pub(super) fn let_weir_read_everything(admin: &Kubectl) {
    let file = "/mnt/weir-reads.yaml";
    std::fs::write(file, READER).unwrap();
    admin.run(&["apply", "-f", file]);
}

/// Adds the filter after those of `deploy/`.
pub(super) fn install(admin: &Kubectl) {
    let module = std::fs::read(built::target().join("guest.wasm")).unwrap();
    let patch = json!({"data": data(0), "binaryData": {"guest.wasm": STANDARD.encode(module)}});
    patch_config_map(admin, &patch).unwrap();
}

/// The ConfigMap's data with the first or the second rules.
fn data(rules: usize) -> Value {
    let manifest = std::fs::read_to_string(deploy("filters.yaml")).unwrap();
    let (_, filters) = manifest.split_once("filters.yaml: |\n").unwrap();
    let (filters, _) = filters.split_once("\n  # An empty value").unwrap();
    let lines: Vec<_> = filters.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let keep: Vec<_> = FILTER.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    json!({"filters.yaml": format!("{}{}\n", lines.join("\n"), keep.join("\n").replace("MATCH", RULES[rules]))})
}

fn patch_config_map(admin: &Kubectl, patch: &Value) -> Result<String, String> {
    let file = "/mnt/filters-patch.json";
    std::fs::write(file, patch.to_string()).unwrap();
    admin.attempt(&["-n", "kube-system", "patch", "configmap", "weir-filters", "--type=merge", "--patch-file", file])
}

/// What Weir says of its filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    /// The reloads that were applied.
    pub(super) reloads: f64,
    /// The objects that the filter has kept.
    pub(super) kept: f64,
}

impl Counted {
    /// What it says now.
    pub(super) fn now() -> Self {
        let metrics = until("Weir's metrics", metrics);
        let value = |series: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(series));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
        };
        Self {
            reloads: value("weir_reloads_total{result=\"applied\"}"),
            kept: value("weir_filter_objects_total{filter=\"keep\",outcome=\"kept\"}"),
        }
    }
}

/// Changes the filter set at intervals, until it is stopped.
pub(super) struct Reloads {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Reloads {
    pub(super) fn start(admin: &Kubectl) -> Self {
        let (admin, stop) = (admin.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut changes = 0;
            while !stopped.load(Ordering::Relaxed) {
                let next = Instant::now() + INTERVAL;
                let rules = (changes + 1) % RULES.len();
                match patch_config_map(&admin, &json!({"data": data(rules)})) {
                    Ok(_) => changes += 1,
                    Err(error) => println!("the filter set was not changed: {error}"),
                }
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Self { stop, thread }
    }

    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
