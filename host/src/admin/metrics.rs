//! Metrics of the process and of lookups. They are sampled when the admin port exports them.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use weir_runtime::Engine;

use super::health::{HealthReport, HealthSources, NodeHealth};
use super::notices::{self, ClientCertificateMetrics, NoticeMetric, Notices};

/// The sampled metrics.
#[derive(Debug, Default)]
pub struct AdminMetrics {
    resident_memory: Gauge,
    code_cache_hits: Counter,
    code_cache_misses: Counter,
    idle_instances: Gauge,
    ready: Gauge,
    reflectors: Gauge,
    degraded_reflectors: Gauge,
    reflector_objects: Gauge,
    health: Family<[(&'static str, &'static str); 1], Gauge>,
    notices: NoticeMetric,
    filter_notices: Family<[(&'static str, String); 2], Gauge>,
    client_certificates: ClientCertificateMetrics,
    offline: Gauge<f64, AtomicU64>,
    grace_left: Gauge<f64, AtomicU64>,
}

impl AdminMetrics {
    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "process_resident_memory",
            "Resident memory size",
            Unit::Bytes,
            self.resident_memory.clone(),
        );
        let mut counter = |name, help, counter: &Counter| registry.register(name, help, counter.clone());
        counter("weir_code_cache_hits", "Modules whose compiled code was in the cache", &self.code_cache_hits);
        counter("weir_code_cache_misses", "Modules that had to be compiled", &self.code_cache_misses);
        let mut gauge = |name, help, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("weir_filter_instances_idle", "Idle instances of filter modules", &self.idle_instances);
        gauge("weir_ready", "1 if a complete filter set is active, else 0", &self.ready);
        gauge("weir_reflectors", "Reflectors that serve the lookups of filters", &self.reflectors);
        gauge(
            "weir_reflectors_degraded",
            "Reflectors whose last list or watch failed: their objects may be out of date",
            &self.degraded_reflectors,
        );
        registry.register(
            "weir_node_health",
            "1 for the health of this node, as in weir status: ready, degraded, offline or not-ready; 0 for the others",
            self.health.clone(),
        );
        registry.register(
            "weir_notices",
            "What an operator should know of this node, by name: 1 while it is so, see the troubleshooting",
            self.notices.clone(),
        );
        registry.register(
            "weir_filter_notices",
            "The notices about a filter that clients see the outcome of, by filter and name: 1 while it is so",
            self.filter_notices.clone(),
        );
        registry.register_with_unit(
            "weir_offline",
            "Time that Weir has run since an API server could be reached last, 0 while one can",
            Unit::Seconds,
            self.offline.clone(),
        );
        registry.register_with_unit(
            "weir_offline_grace_left",
            "Time for which clients other than node components still keep their permissions without an API server",
            Unit::Seconds,
            self.grace_left.clone(),
        );
        registry.register(
            "weir_client_certificate_expiration_timestamp_seconds",
            "Expiry of the client certificate of a credential, as Unix time",
            self.client_certificates.expiry.clone(),
        );
        registry.register_with_unit(
            "weir_client_certificate_lifetime",
            "Time for which the client certificate of a credential is valid in all",
            Unit::Seconds,
            self.client_certificates.lifetime.clone(),
        );
        let mut gauge = |name, help, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("weir_reflector_objects", "Objects in the memory of all reflectors", &self.reflector_objects);
    }

    /// Creates a series of each metric with labels.
    #[cfg(test)]
    pub(crate) fn sample_labels(&self) {
        self.set_health(NodeHealth::Ready);
        self.notices.get_or_create(&[("notice", String::new())]).set(0);
        self.filter_notices.get_or_create(&[("filter", String::new()), ("notice", String::new())]).set(0);
        self.client_certificates.sample_labels();
    }

    pub(super) fn sample(&self, sources: &HealthSources, health: &HealthReport, engine: &Engine) {
        let HealthSources { status, reflectors, notices, .. } = sources;
        self.sample_health(notices, health);
        if let Some(outage) = &notices.outage {
            let status = outage.status();
            self.offline.set(status.map_or(0.0, |status| status.running.as_secs_f64()));
            self.grace_left.set(status.map_or(outage.grace(), |status| status.left).as_secs_f64());
        }
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        // The engine counts from its start, too.
        let raise_to = |counter: &Counter, value: usize| counter.inc_by((value as u64).saturating_sub(counter.get()));
        let (hits, misses) = engine.cache_hits_and_misses();
        raise_to(&self.code_cache_hits, hits);
        raise_to(&self.code_cache_misses, misses);
        set(&self.resident_memory, resident_memory().unwrap_or(0));
        set(&self.idle_instances, status.idle_instances());
        set(&self.ready, usize::from(status.ready().is_ok()));
        let reflectors = reflectors.status();
        set(&self.reflectors, reflectors.len());
        set(&self.degraded_reflectors, reflectors.iter().filter(|reflector| reflector.state.error.is_some()).count());
        set(&self.reflector_objects, reflectors.iter().map(|reflector| reflector.objects).sum());
    }

    /// Exports the health, and what it names.
    pub(crate) fn sample_health(&self, notices: &Notices, health: &HealthReport) {
        self.set_health(health.state);
        notices::sample(notices, &health.notices, &self.notices, &self.client_certificates);
        self.filter_notices.clear();
        for (filter, notice) in health.of_filters() {
            self.filter_notices.get_or_create(&[("filter", filter.to_owned()), ("notice", notice.to_owned())]).set(1);
        }
    }

    fn set_health(&self, state: NodeHealth) {
        for known in NodeHealth::ALL {
            self.health.get_or_create(&[("state", known.label())]).set(i64::from(known == state));
        }
    }
}

/// The resident set size, if the kernel reports it.
pub(super) fn resident_memory() -> Option<usize> {
    // procfs: the read does not block on a disk.
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}
