//! Counts the requests of each client component, for the status page.
//!
//! A client chooses its component (the User-Agent) itself, so the table is bounded: [`MAX_COMPONENTS`] components by name,
//! all others together. A component that has been idle for [`IDLE`] makes room for a new one. The cost is one lock for a
//! request, and another one if it fails or is a watch.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

/// The most components by name.
const MAX_COMPONENTS: usize = 100;
/// How long a component without an open watch keeps its place.
const IDLE: Duration = Duration::from_secs(3600);

/// The clients of the daemon.
#[derive(Debug, Default)]
pub struct ClientTable(Mutex<ClientRecords>);

#[derive(Debug, Default)]
struct ClientRecords {
    named: HashMap<Arc<str>, ClientRecord>,
    /// All components without a place of their own.
    other: Option<ClientRecord>,
}

#[derive(Debug, Clone)]
struct ClientRecord {
    requests: u64,
    failed: u64,
    watches: usize,
    last_seen: Instant,
}

/// The requests of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    /// The component; empty if the client names none. `None`: all components without a place of their own.
    pub component: Option<Arc<str>>,
    /// Its requests since the daemon started.
    pub requests: u64,
    /// Those of them that were answered with 5xx.
    pub failed: u64,
    /// Its open watches.
    pub watches: usize,
    /// The time since its last request.
    pub idle: Duration,
}

/// A request of a client. Dropping it ends its watch.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    table: Arc<ClientTable>,
    component: Option<Arc<str>>,
    is_watch: bool,
}

impl Default for ClientRecord {
    fn default() -> Self {
        Self { requests: 0, failed: 0, watches: 0, last_seen: Instant::now() }
    }
}

impl ClientRecord {
    fn with(self, more: &Self) -> Self {
        Self {
            requests: self.requests + more.requests,
            failed: self.failed + more.failed,
            watches: self.watches + more.watches,
            last_seen: self.last_seen.max(more.last_seen),
        }
    }
}

impl ClientTable {
    /// Counts a request.
    pub(crate) fn begin(self: &Arc<Self>, component: &str, is_watch: bool) -> ClientRequest {
        let mut records = self.lock();
        let component = records.place(component);
        let record = records.record(component.as_ref());
        record.requests += 1;
        record.watches += usize::from(is_watch);
        record.last_seen = Instant::now();
        ClientRequest { table: self.clone(), component, is_watch }
    }

    /// All clients: those with open watches first, then by their last request.
    #[must_use]
    pub fn status(&self) -> Vec<ClientStatus> {
        let records = self.lock();
        let named = records.named.iter().map(|(component, record)| (Some(component.clone()), record));
        let mut all: Vec<_> = named.chain(records.other.iter().map(|record| (None, record))).collect();
        all.sort_by(|(_, one), (_, two)| {
            let key = |record: &ClientRecord| (record.watches > 0, record.last_seen);
            key(two).cmp(&key(one))
        });
        let status = |(component, record): (Option<Arc<str>>, &ClientRecord)| ClientStatus {
            component,
            requests: record.requests,
            failed: record.failed,
            watches: record.watches,
            idle: record.last_seen.elapsed(),
        };
        all.into_iter().map(status).collect()
    }

    /// The components that have sent requests, as far as they are counted by name.
    pub(crate) fn components(&self) -> BTreeSet<String> {
        self.lock().named.keys().map(|component| component.as_ref().to_owned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ClientRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientRecords {
    /// The name under which a component is counted.
    fn place(&mut self, component: &str) -> Option<Arc<str>> {
        if let Some((name, _)) = self.named.get_key_value(component) {
            return Some(name.clone());
        }
        if self.named.len() >= MAX_COMPONENTS {
            let idle = self.named.iter().filter(|(_, record)| record.watches == 0);
            let (name, record) = idle.min_by_key(|(_, record)| record.last_seen)?;
            if record.last_seen.elapsed() < IDLE {
                return None;
            }
            let (name, record) = (name.clone(), record.clone());
            self.named.remove(&name);
            self.other = Some(match self.other.take() {
                Some(other) => other.with(&record),
                None => record,
            });
        }
        let name: Arc<str> = component.into();
        self.named.insert(name.clone(), ClientRecord::default());
        Some(name)
    }

    fn record(&mut self, component: Option<&Arc<str>>) -> &mut ClientRecord {
        match component.and_then(|component| self.named.get_mut(component)) {
            Some(record) => record,
            None => self.other.get_or_insert_default(),
        }
    }
}

impl ClientRequest {
    /// Notes the status of the response.
    pub(crate) fn answered(&self, status: StatusCode) {
        if status.is_server_error() {
            self.table.lock().record(self.component.as_ref()).failed += 1;
        }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.is_watch
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        if self.is_watch {
            // A component with an open watch keeps its place.
            let mut records = self.table.lock();
            let record = records.record(self.component.as_ref());
            record.watches = record.watches.saturating_sub(1);
            record.last_seen = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(status: &'a [ClientStatus], component: Option<&str>) -> &'a ClientStatus {
        status.iter().find(|status| status.component.as_deref() == component).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_failures_and_open_watches_are_counted_by_component() {
        let table = Arc::<ClientTable>::default();
        let watch = table.begin("kube-proxy", true);
        table.begin("kubelet", false).answered(StatusCode::OK);
        table.begin("kubelet", false).answered(StatusCode::BAD_GATEWAY);
        tokio::time::sleep(Duration::from_secs(7)).await;
        let status = table.status();
        assert_eq!(of(&status, Some("kube-proxy")).watches, 1);
        let kubelet = of(&status, Some("kubelet"));
        assert_eq!((kubelet.requests, kubelet.failed, kubelet.idle.as_secs()), (2, 1, 7));
        assert_eq!(status[0].component.as_deref(), Some("kube-proxy"), "clients with open watches are first");
        drop(watch);
        let status = table.status();
        assert_eq!((of(&status, Some("kube-proxy")).watches, status.len()), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn components_beyond_the_bound_are_counted_together() {
        let table = Arc::<ClientTable>::default();
        let watch = table.begin("watching", true);
        for n in 0..1000 {
            table.begin(&format!("client-{n}"), false).answered(StatusCode::OK);
        }
        let status = table.status();
        assert_eq!(status.len(), MAX_COMPONENTS + 1);
        assert_eq!(of(&status, None).requests, 1001 - MAX_COMPONENTS as u64);
        tokio::time::sleep(IDLE).await;
        table.begin("late", false);
        let status = table.status();
        assert_eq!((status.len(), of(&status, Some("late")).requests), (MAX_COMPONENTS + 1, 1));
        assert_eq!(of(&status, None).requests, 1002 - MAX_COMPONENTS as u64, "the idle one is among the others");
        assert_eq!(of(&status, Some("watching")).watches, 1, "an open watch keeps its place");
        drop(watch);
        assert_eq!(of(&table.status(), Some("watching")).watches, 0);
    }
}
