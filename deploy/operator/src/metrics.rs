//! The operator's metrics.

use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// All metrics. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Families>);

#[derive(Debug, Default)]
struct Families {
    requests: Family<MethodLabel, Counter>,
    reconciles: Family<ResultLabel, Counter>,
    objects: Family<ActionLabel, Counter>,
    pools: Family<StateLabel, Gauge>,
    leader: Gauge,
    pods: Family<ActionLabel, Counter>,
    pods_waiting: Gauge,
    resident: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: PoolStateLabel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values")]
enum Outcome {
    ok,
    error,
}

/// What was done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values")]
pub enum Action {
    /// It was applied; of a pod: its tolerations were set.
    applied,
    /// It was deleted; of a pod: its tolerations were restored.
    removed,
    /// The API server or the operator refused it.
    failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values")]
enum PoolStateLabel {
    ready,
    pending,
    failure,
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let all = &*self.0;
        let name = |name: &str| format!("weir_operator_{name}");
        registry.register(name("requests"), "Requests to the API server, by method", all.requests.clone());
        registry.register(name("reconciles"), "Reconciliations of YurtIngresses, by result", all.reconciles.clone());
        registry.register(name("objects"), "Objects of ingress controllers, by action", all.objects.clone());
        registry.register(name("pools"), "Pools with an ingress controller, by state", all.pools.clone());
        registry.register(name("leader"), "1 if this replica holds the Lease, else 0", all.leader.clone());
        registry.register(name("pods"), "Pods whose tolerations were set, by action", all.pods.clone());
        registry.register(name("pods_waiting"), "Pods whose tolerations are to be set", all.pods_waiting.clone());
        registry.register("process_resident_memory_bytes", "Resident memory size", all.resident.clone());
    }

    /// Counts a request.
    pub(crate) fn request(&self, method: &http::Method) {
        self.0.requests.get_or_create(&MethodLabel { method: method.as_str().to_owned() }).inc();
    }

    pub(crate) fn reconciled(&self, ok: bool) {
        let result = if ok { Outcome::ok } else { Outcome::error };
        self.0.reconciles.get_or_create(&ResultLabel { result }).inc();
    }

    pub(crate) fn object(&self, action: Action) {
        self.0.objects.get_or_create(&ActionLabel { action }).inc();
    }

    pub(crate) fn pod(&self, action: Action) {
        self.0.pods.get_or_create(&ActionLabel { action }).inc();
    }

    pub(crate) fn pods_waiting(&self, waiting: usize) {
        self.0.pods_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    pub(crate) fn leads(&self) {
        self.0.leader.set(1);
    }

    pub(crate) fn pools(&self, ready: usize, pending: usize, failure: usize) {
        for (state, count) in
            [(PoolStateLabel::ready, ready), (PoolStateLabel::pending, pending), (PoolStateLabel::failure, failure)]
        {
            self.0.pools.get_or_create(&StateLabel { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Reads the resident memory of the process from the system.
    pub(crate) fn sample(&self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<i64>().ok());
        self.0.resident.set(kib.unwrap_or_default().saturating_mul(1024));
    }
}
