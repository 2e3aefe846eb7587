//! Metrics of watch caches, by resource. The label has as many values as there are cached resources.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use weir_kube::GroupResource;

use super::status::CacheStatus;
use super::watch_counters::WatchCounters;

/// The metrics of watch caches. Gauges are sampled when the admin port exports them.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    stores: Family<StateLabels, Gauge>,
    objects: Family<ResourceLabel, Gauge>,
    bytes: Family<ResourceLabel, Gauge>,
    watches: Family<ResourceLabel, Gauge>,
    degraded: Family<ResourceLabel, Gauge>,
    received: Family<ResourceLabel, Counter>,
    sent: Family<ResourceLabel, Counter>,
    slow: Family<ResourceLabel, Counter>,
    /// What each store had received at the last sample.
    sampled: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    resource: String,
    state: &'static str,
}

impl CacheMetrics {
    /// The counters of the watches of a resource.
    pub(super) fn counters(&self, resource: &GroupResource) -> WatchCounters {
        let label = label(resource);
        let counter = |family: &Family<ResourceLabel, Counter>| family.get_or_create(&label).clone();
        WatchCounters { sent: counter(&self.sent), slow: counter(&self.slow) }
    }

    /// The events that watches of a resource got; `None` if it never had a watch.
    pub fn events_sent(&self, resource: &GroupResource) -> Option<u64> {
        self.sent.get(&label(resource)).map(|counter| counter.get())
    }

    /// Sets the gauges to the present state.
    pub fn sample(&self, caches: &[CacheStatus]) {
        self.stores.clear();
        for family in [&self.objects, &self.bytes, &self.watches, &self.degraded] {
            family.clear();
        }
        let mut sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *sampled);
        for cache in caches {
            let label = label(&cache.collection.resource);
            let add = |family: &Family<ResourceLabel, Gauge>, value: usize| {
                family.get_or_create(&label).inc_by(i64::try_from(value).unwrap_or(i64::MAX));
            };
            add(&self.objects, cache.store.objects);
            add(&self.bytes, cache.store.bytes);
            add(&self.watches, cache.views.iter().map(|view| view.open_watches()).sum());
            add(&self.degraded, cache.views.iter().map(|view| view.degraded_objects()).sum());
            let state = StateLabels { resource: label.resource.clone(), state: cache.state() };
            self.stores.get_or_create(&state).inc();
            let name = format!("{} {}", cache.reader, cache.collection);
            let known = before.get(&name).copied().unwrap_or(0);
            // A store that was closed and opened again counts from 0.
            let new = cache.store.received.checked_sub(known).unwrap_or(cache.store.received);
            self.received.get_or_create(&label).inc_by(new);
            sampled.insert(name, cache.store.received);
        }
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        let mut gauge =
            |name, help, family: &Family<ResourceLabel, Gauge>| registry.register(name, help, family.clone());
        gauge("weir_cache_objects", "Objects in watch caches, by resource", &self.objects);
        gauge("weir_cache_watches", "Open watches that are served from watch caches, by resource", &self.watches);
        gauge(
            "weir_cache_degraded_objects",
            "Objects in watch caches on which a filter failed, by resource. Its failure policy applies, or their last good outcome stands in",
            &self.degraded,
        );
        registry.register_with_unit(
            "weir_cache",
            "Bytes of the objects in watch caches, by resource",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "weir_cache_stores",
            "Watch caches by resource and state: synced, syncing, stale (from disk, not confirmed), failing (the notice failing-cache while an API server answers), or error (of lookups, or of what one client asks for or may read)",
            self.stores.clone(),
        );
        registry.register_with_unit(
            "weir_cache_received",
            "Bytes that the API server sent for watch caches, by resource",
            Unit::Bytes,
            self.received.clone(),
        );
        registry.register("weir_cache_events_sent", "Events sent from watch caches, by resource", self.sent.clone());
        registry.register(
            "weir_cache_slow_watches",
            "Watches that were ended because their client reads too slowly, by resource",
            self.slow.clone(),
        );
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample_labels(&self) {
        let resource: GroupResource = GroupResource { group: String::new(), resource: String::new() };
        self.counters(&resource);
        let label = label(&resource);
        for family in [&self.objects, &self.bytes, &self.watches, &self.degraded] {
            drop(family.get_or_create(&label));
        }
        drop(self.received.get_or_create(&label));
        drop(self.stores.get_or_create(&StateLabels { resource: String::new(), state: "" }));
    }
}

fn label(resource: &GroupResource) -> ResourceLabel {
    ResourceLabel { resource: resource.to_string() }
}
