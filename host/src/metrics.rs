//! All metrics of the daemon. Each crate and each part of the daemon counts for itself.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use weir_front::ServingCertificateMetrics;
use weir_runtime::RuntimeMetrics;
use weir_store::CheckMetrics;
use weir_store::disk::DiskMetrics;
use weir_upstream::UpstreamMetrics;

use crate::admin::AdminMetrics;
use crate::local_status::LocalStatusMetrics;
use crate::pods::PodMetrics;
use crate::pool::RelayMetrics;
use crate::reload::ReloadMetrics;
use crate::serve::ProxyMetrics;
use weir_view::CacheMetrics;

/// The metrics of each part.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests and watches.
    pub proxy: Arc<ProxyMetrics>,
    /// The certificate of the HTTPS port.
    pub serving_certificate: Arc<ServingCertificateMetrics>,
    /// What is relayed for peers.
    pub relay: Arc<RelayMetrics>,
    /// The API servers.
    pub upstream: Arc<UpstreamMetrics>,
    /// Filters.
    pub runtime: Arc<RuntimeMetrics>,
    /// Reloads of the configuration.
    pub reload: Arc<ReloadMetrics>,
    /// The address for pods.
    pub pods: Arc<PodMetrics>,
    /// The watch cache on disk.
    pub disk: Arc<DiskMetrics>,
    /// Comparisons of watch caches with the API server.
    pub checks: Arc<CheckMetrics>,
    /// Watch caches.
    pub caches: Arc<CacheMetrics>,
    /// What kubelet reports while the API server cannot be reached.
    pub local_status: Arc<LocalStatusMetrics>,
    /// The process and its reflectors.
    pub admin: Arc<AdminMetrics>,
}

impl Metrics {
    /// Creates all metrics and registers them under their exported names.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.proxy.register(registry);
        metrics.serving_certificate.register(registry);
        metrics.upstream.register(registry);
        metrics.relay.register(registry);
        metrics.runtime.register(registry);
        metrics.reload.register(registry);
        metrics.pods.register(registry);
        metrics.disk.register(registry);
        metrics.checks.register(registry);
        metrics.caches.register(registry);
        metrics.local_status.register(registry);
        metrics.admin.register(registry);
        metrics
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.proxy.sample();
        let (ends, lifetime) = (std::time::SystemTime::UNIX_EPOCH, std::time::Duration::ZERO);
        self.serving_certificate.set(weir_upstream::CertificateValidity { ends, lifetime });
        self.upstream.sample();
        self.relay.sample();
        self.runtime.sample();
        self.reload.reload("");
        self.pods.sample();
        self.disk.sample();
        self.checks.sample();
        self.caches.sample_labels();
        self.local_status.sample();
        self.admin.sample_labels();
    }
}
