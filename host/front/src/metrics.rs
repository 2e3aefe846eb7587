//! Metrics of the certificate of the HTTPS port.

use std::time::{Duration, SystemTime};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use weir_upstream::CertificateValidity;

/// The validity of the certificate of the HTTPS port.
#[derive(Debug, Default)]
pub struct ServingCertificateMetrics {
    /// A family without labels, because a gauge would have a series without an HTTPS port, too.
    expiration: Family<[(&'static str, &'static str); 0], Gauge>,
    lifetime: Family<[(&'static str, &'static str); 0], Gauge>,
}

impl ServingCertificateMetrics {
    /// Sets the validity.
    pub fn set(&self, validity: CertificateValidity) {
        let ends = validity.ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let set = |gauge: &Gauge, time: Duration| gauge.set(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        set(&self.lifetime.get_or_create(&[]), validity.lifetime);
        set(&self.expiration.get_or_create(&[]), ends);
    }

    /// The validity; `None` without a certificate.
    #[must_use]
    pub fn validity(&self) -> Option<CertificateValidity> {
        let get = |gauge: &Gauge| u64::try_from(gauge.get()).ok().map(Duration::from_secs);
        let ends = get(&*self.expiration.get(&[])?)?;
        let lifetime = get(&*self.lifetime.get(&[])?)?;
        Some(CertificateValidity { ends: SystemTime::UNIX_EPOCH.checked_add(ends)?, lifetime })
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_serving_certificate_expiration_timestamp_seconds",
            "Expiry of the certificate of the HTTPS port, as Unix time",
            self.expiration.clone(),
        );
        registry.register_with_unit(
            "weir_serving_certificate_lifetime",
            "Time for which the certificate of the HTTPS port is valid in all",
            Unit::Seconds,
            self.lifetime.clone(),
        );
    }
}
