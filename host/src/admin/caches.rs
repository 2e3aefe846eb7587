//! `/caches`: what the node would live on without the API server, and how far behind it is.
//!
//! The size of the answer is bounded by the number of stores and views. It contains no object, only names of resources,
//! selectors of reflectors and components of clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use weir_kube::Encoding;
use weir_store::disk::DiskStoreStatus;
use weir_upstream::Upstream;

use crate::local_status::LocalStatus;
use weir_view::{CacheMetrics, CacheStatus, View, Views};

/// The watch caches, as the admin port reads them.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "reports only")]
pub struct Caches {
    /// Knows since when no API server is reachable; `None` in tests.
    pub upstream: Option<Arc<Upstream>>,
    /// `None` in tests.
    pub views: Option<Arc<Views>>,
    /// `None` if it is off.
    pub local_status: Option<Arc<LocalStatus>>,
    /// Sampled when the metrics are exported.
    pub metrics: Arc<CacheMetrics>,
}

impl Caches {
    pub(crate) fn sample(&self) {
        self.metrics.sample(&self.status());
    }

    pub(crate) fn to_json(&self) -> Value {
        let since = self.upstream.as_ref().and_then(|upstream| upstream.offline_since());
        let stores: Vec<_> = self.status().iter().map(store).collect();
        json!({
            "offlineSince": since.and_then(timestamp),
            "localStatus": self.local_status.as_ref().map(|status| status.to_json()),
            "stores": stores,
        })
    }

    /// The events that watches got from watch caches, by resource.
    pub(super) fn events_sent(&self) -> Vec<(Arc<str>, u64)> {
        let resources: BTreeSet<_> = self.status().iter().map(|cache| cache.collection.resource.clone()).collect();
        resources
            .iter()
            .filter_map(|resource| Some((resource.to_string().into(), self.metrics.events_sent(resource)?)))
            .collect()
    }

    pub(super) fn status(&self) -> Vec<CacheStatus> {
        self.views.as_ref().map(|views| views.status()).unwrap_or_default()
    }
}

pub(super) fn timestamp(time: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok()?.round(jiff::Unit::Second).ok().map(|time| time.to_string())
}

pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

fn store(cache: &CacheStatus) -> Value {
    let CacheStatus { collection, store, .. } = cache;
    json!({
        "resource": collection.resource.to_string(),
        "path": collection.path,
        "fieldSelector": collection.field_selector,
        "labelSelector": collection.label_selector,
        "identity": cache.reader.to_string(),
        "encoding": match collection.encoding() { Encoding::Json => "json", Encoding::Protobuf => "protobuf" },
        "state": cache.state(),
        "synced": store.synced,
        "stale": store.stale,
        "peer": store.peer.as_deref(),
        "error": store.error.as_ref().map(ToString::to_string),
        "resourceVersion": store.version.to_string(),
        "objects": store.objects,
        "bytes": store.bytes,
        "lagSeconds": store.lag.map(seconds),
        "receivedBytes": store.received,
        "history": { "events": store.events, "bytes": store.event_bytes },
        "disk": cache.disk.as_ref().map(disk),
        "views": cache.views.iter().map(|view| self::view(view)).collect::<Vec<_>>(),
    })
}

fn disk(status: &DiskStoreStatus) -> Value {
    json!({
        "ageSeconds": seconds(status.age()),
        "resourceVersion": status.version.to_string(),
        "objects": status.objects,
        "bytes": status.bytes,
    })
}

fn view(view: &View) -> Value {
    let status = view.status();
    json!({
        "components": view.component_names(),
        "chainVersion": status.chain.map(|version| version.to_string()),
        "resourceVersion": status.version.to_string(),
        "stamp": status.stamp.map(|version| version.to_string()),
        "clients": status.watches,
        "hidden": status.hidden,
        "edited": status.edited,
        "editedBytes": status.edited_bytes,
        "degraded": status.degraded,
        "history": { "events": status.events, "bytes": status.event_bytes },
    })
}
