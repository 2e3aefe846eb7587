//! `/status`: what the status page and `weir status` show, in one answer.
//!
//! The answer is bounded: each list by [`MAX_ITEMS`], each list in an item by [`MAX_INNER_ITEMS`], each text by [`MAX_TEXT`].
//! `omitted` has the number of items that were left out. It contains no object of the cluster, only names of resources,
//! selectors, components and messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use weir_runtime::{FilterCounts, RuntimeMetrics};
use weir_upstream::{ServerState, ServerStatus, clock};

use super::caches::{seconds, timestamp};
use super::health::{HealthReport, HealthSources};
use super::notices::Notice;
use super::port::{AdminParts, Shared};
use crate::client_table::ClientStatus;
use crate::serve::FailureStatus;
use weir_view::CacheStatus;

/// The most items of a list.
const MAX_ITEMS: usize = 256;
/// The most items of a list in an item.
const MAX_INNER_ITEMS: usize = 32;
/// The longest text, in bytes.
const MAX_TEXT: usize = 1000;

/// Returns the answer of `/status`.
pub(super) fn overview(shared: &Shared) -> Value {
    let Shared { parts, started, .. } = shared;
    let AdminParts { sources, runtime, clients, node_name, .. } = parts;
    let HealthSources { status, reflectors, caches, .. } = sources;
    let notice = |notice: &Notice| json!({ "name": notice.name, "text": notice.text, "isRemark": notice.is_remark() });
    let health = HealthReport::of(sources);
    let filters = status.to_json().get_mut("filters").map(Value::take);
    let upstream = caches.upstream.as_ref();
    let offline_since = upstream.and_then(|upstream| upstream.offline_since()).and_then(timestamp);
    let mut answer = health.to_json();
    insert(&mut answer, "node", node_name.as_str());
    insert(&mut answer, "version", env!("CARGO_PKG_VERSION"));
    insert(&mut answer, "time", clock::timestamp().to_string());
    insert(&mut answer, "uptimeSeconds", seconds(started.elapsed()));
    insert(&mut answer, "offlineSince", offline_since);
    insert(&mut answer, "residentMemoryBytes", super::metrics::resident_memory());
    let lists = [
        ("notices", health.notices.iter().map(notice).collect()),
        ("filters", with_counts(filters, runtime)),
        ("reloads", status.reloads()),
        ("lookups", reflectors.status().iter().map(super::port::lookup).collect()),
        ("caches", cache_rows(&caches.status())),
        ("servers", upstream.map(|upstream| upstream.server_status()).unwrap_or_default().iter().map(server).collect()),
        (
            "failures",
            parts.proxy.as_ref().map(|proxy| proxy.failures()).unwrap_or_default().iter().map(failure).collect(),
        ),
        ("clients", clients.status().iter().map(client).collect()),
    ];
    let mut omitted = Map::new();
    for (name, mut items) in lists {
        if let Some(more) = items.len().checked_sub(MAX_ITEMS).filter(|more| *more > 0) {
            omitted.insert(name.to_owned(), more.into());
            items.truncate(MAX_ITEMS);
        }
        insert(&mut answer, name, items);
    }
    insert(&mut answer, "omitted", omitted);
    bound(&mut answer, 0);
    // Bounded by itself, and longer than other lists in an item.
    insert(&mut answer, "activity", parts.activity.to_json());
    answer
}

/// Adds a member to an object.
pub(super) fn insert(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Value::Object(members) = object {
        members.insert(name.to_owned(), value.into());
    }
}

/// Cuts texts, and the lists of items.
fn bound(value: &mut Value, depth: usize) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT => {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
            text.push('…');
        }
        Value::Array(items) => {
            if depth > 1 {
                items.truncate(MAX_INNER_ITEMS);
            }
            items.iter_mut().for_each(|item| bound(item, depth + 1));
        }
        Value::Object(members) => members.values_mut().for_each(|value| bound(value, depth + 1)),
        _ => {}
    }
}

/// The filters, each with what it has done.
fn with_counts(filters: Option<Value>, runtime: &RuntimeMetrics) -> Vec<Value> {
    let Some(Value::Array(mut filters)) = filters else { return Vec::new() };
    for filter in &mut filters {
        let name: Arc<str> = filter["name"].as_str().unwrap_or_default().into();
        let mode = filter["mode"].as_str().and_then(|mode| mode.parse().ok()).unwrap_or_default();
        let FilterCounts { kept, edited, hidden, failed, replayed, seconds } = runtime.counts(&name, mode);
        let objects = json!({ "kept": kept, "edited": edited, "hidden": hidden, "failed": failed });
        insert(filter, "objects", objects);
        insert(filter, "replayed", replayed);
        insert(filter, "seconds", seconds);
    }
    filters
}

fn server(server: &ServerStatus) -> Value {
    let since = match server.state {
        ServerState::Down { since } => since.and_then(timestamp),
        ServerState::Up | ServerState::Unresponsive | ServerState::NotReady | ServerState::Standby => None,
    };
    json!({ "name": server.name, "relay": server.relay, "state": server.state.label(), "since": since })
}

fn failure(failure: &FailureStatus) -> Value {
    json!({
        "first": timestamp(failure.first),
        "component": failure.component,
        "code": failure.code,
        "what": failure.what,
        "path": failure.path,
        "error": failure.error,
        "count": failure.count,
    })
}

fn client(client: &ClientStatus) -> Value {
    let last_seen = clock::now().checked_sub(client.idle).and_then(timestamp);
    json!({
        "component": client.component,
        "requests": client.requests,
        "failed": client.failed,
        "watches": client.watches,
        "lastSeen": last_seen,
    })
}

/// What the stores of one resource and one identity have in common: kubelet's Secrets alone are a store each.
#[derive(Default)]
struct CacheRow {
    stores: usize,
    objects: usize,
    bytes: usize,
    received: u64,
    lag: Option<f64>,
    watches: usize,
    hidden: usize,
    edited: usize,
    degraded: usize,
    /// The worst state.
    state: &'static str,
    error: Option<String>,
    peer: Option<String>,
}

fn cache_rows(caches: &[CacheStatus]) -> Vec<Value> {
    let mut rows: BTreeMap<(String, String), CacheRow> = BTreeMap::new();
    for cache in caches {
        let key = (cache.collection.resource.to_string(), cache.reader.to_string());
        rows.entry(key).or_default().add(cache);
    }
    rows.iter().map(|((resource, identity), row)| row.to_json(resource, identity)).collect()
}

/// The worst state has the highest rank.
fn rank(state: &str) -> usize {
    ["", "synced", "stale", "syncing", "error", "failing"].iter().position(|known| *known == state).unwrap_or_default()
}

impl CacheRow {
    fn add(&mut self, cache: &CacheStatus) {
        let store = &cache.store;
        self.stores += 1;
        self.objects += store.objects;
        self.bytes += store.bytes;
        self.received += store.received;
        if let Some(lag) = store.lag {
            self.lag = Some(self.lag.unwrap_or_default().max(seconds(lag)));
        }
        self.take_state(cache.state(), store.error.as_ref().map(ToString::to_string));
        self.peer = self.peer.take().or_else(|| store.peer.as_deref().map(str::to_owned));
        for view in &cache.views {
            let view = view.status();
            self.watches += view.watches;
            self.hidden += view.hidden;
            self.edited += view.edited;
            self.degraded += view.degraded;
        }
    }

    /// Keeps the worst state with its error, or with that of a better one if it has none.
    fn take_state(&mut self, state: &'static str, error: Option<String>) {
        let known = self.error.take();
        self.error = if rank(state) > rank(self.state) {
            self.state = state;
            error.or(known)
        } else {
            known.or(error)
        };
    }

    fn to_json(&self, resource: &str, identity: &str) -> Value {
        json!({
            "resource": resource,
            "identity": identity,
            "stores": self.stores,
            "state": self.state,
            "error": self.error,
            "peer": self.peer,
            "objects": self.objects,
            "bytes": self.bytes,
            "receivedBytes": self.received,
            "lagSeconds": self.lag,
            "watches": self.watches,
            "hidden": self.hidden,
            "edited": self.edited,
            "degraded": self.degraded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_inner_lists_are_cut() {
        let mut json = json!({
            "notReady": "é".repeat(MAX_TEXT),
            "filters": (0..100).map(|_| json!({"match": vec!["x"; 100]})).collect::<Vec<_>>(),
        });
        bound(&mut json, 0);
        let text = json["notReady"].as_str().unwrap();
        assert!(text.len() <= MAX_TEXT + '…'.len_utf8() && text.ends_with("é…"), "{text}");
        let filters = json["filters"].as_array().unwrap();
        assert_eq!((filters.len(), filters[0]["match"].as_array().unwrap().len()), (100, MAX_INNER_ITEMS));
    }

    #[test]
    fn the_error_of_a_row_is_that_of_its_worst_state() {
        let (error, failing) = (("error", Some("of one client")), ("failing", Some("of the node")));
        for (stores, expected) in [
            (&[error, failing][..], failing),
            (&[failing, error], failing),
            (&[error, error], error),
            (&[("synced", None), error, ("syncing", None)], error),
            (&[("synced", None), ("stale", None)], ("stale", None)),
        ] {
            let mut row = CacheRow::default();
            for &(state, error) in stores {
                row.take_state(state, error.map(str::to_owned));
            }
            assert_eq!((row.state, row.error.as_deref()), expected, "{stores:?}");
        }
    }

    #[test]
    fn the_worst_state_counts_for_a_row() {
        let mut states = ["failing", "synced", "error", "syncing", "stale", ""];
        states.sort_by_key(|state| rank(state));
        assert_eq!(states, ["", "synced", "stale", "syncing", "error", "failing"]);
    }
}
