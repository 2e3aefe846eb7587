//! The task of one reflector: discover the resource, list it, watch it, and resume or relist after each failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch::Sender;
use weir_kube::LookupSpec;
use weir_upstream::{BackOff, Connectivity, Reconnects, jitter};

use super::discovery::{ServedResource, discover};
use super::error::ReflectorError;
use super::indexed_objects::Delta;
use super::list::{ResourceList, list};
use super::resource_client::{RequestError, ResourceClient};
use super::snapshot::{ReflectorId, Store};
use super::timing::ReflectorTiming;
use super::watch::{WatchHandler, watch};

/// The API server that reflectors read from.
#[derive(Clone)]
pub struct ReflectorClient {
    /// A client with the daemon's own identity. It connects to the API server directly, so filters never apply.
    pub client: kube::Client,
    /// The connectivity of the same API server. It ends delays as soon as any request succeeds.
    pub connectivity: Connectivity,
}

/// The state of a reflector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReflectorState {
    /// Whether the first list has completed. While there is an error, the objects may be stale.
    pub synced: bool,
    /// The last error, until a list or watch succeeds.
    pub error: Option<ReflectorError>,
}

/// The task of one reflector.
pub(super) struct Reflector {
    client: ResourceClient,
    lookup: Arc<LookupSpec>,
    timing: ReflectorTiming,
    reconnects: Reconnects,
    writer: StoreWriter,
}

/// Writes the objects and the state of one reflector.
struct StoreWriter {
    lookup: Arc<LookupSpec>,
    id: ReflectorId,
    store: Arc<Store>,
    state: Sender<ReflectorState>,
    /// Whether the log says that the resource is not served.
    not_served: bool,
}

/// What a reflector does next.
enum Phase {
    /// Find the API version and the path of the resource.
    Discover,
    /// List the resource: the objects are unknown, or their resourceVersion has expired.
    List(ServedResource),
    /// Watch the resource from this resourceVersion.
    Watch(ServedResource, String),
}

impl Reflector {
    pub(super) fn new(
        ReflectorClient { client, connectivity }: ReflectorClient,
        lookup: Arc<LookupSpec>,
        id: ReflectorId,
        store: Arc<Store>,
        state: Sender<ReflectorState>,
        timing: ReflectorTiming,
    ) -> Self {
        let resource = lookup.resource.clone();
        let client = ResourceClient { client, resource, response_timeout: timing.response_timeout };
        let writer = StoreWriter { lookup: lookup.clone(), id, store, state, not_served: false };
        Self { client, lookup, timing, reconnects: connectivity.reconnects(), writer }
    }

    /// Runs until the task is cancelled. Cancel-safe: the store keeps the objects that were written.
    pub(super) async fn run(mut self) {
        let mut backoff = BackOff::new(self.timing.initial_backoff, self.timing.max_backoff);
        let mut phase = Phase::Discover;
        loop {
            phase = match phase {
                Phase::Discover => match discover(&self.client, &self.lookup).await {
                    Ok(served) => Phase::List(served),
                    Err(error) => self.retry(error, Phase::Discover, &mut backoff).await,
                },
                Phase::List(served) => match list(&self.client, &self.lookup, &served).await {
                    Ok(listed) => {
                        backoff.reset();
                        let version = listed.version.clone();
                        self.writer.replace(listed);
                        Phase::Watch(served, version)
                    }
                    Err(error) => self.retry(error, Phase::List(served), &mut backoff).await,
                },
                Phase::Watch(served, version) => self.watch(served, version, &mut backoff).await,
            };
        }
    }

    async fn watch(&mut self, served: ServedResource, mut version: String, backoff: &mut BackOff) -> Phase {
        let started = tokio::time::Instant::now();
        let initial_version = version.clone();
        let timeout = self.timing.watch_timeout;
        match watch(&self.client, &self.lookup, &served, &mut version, timeout, &mut self.writer).await {
            Ok(()) => {
                // A server that ends each watch at once must not cause a busy loop.
                if version != initial_version || started.elapsed() > self.timing.initial_backoff {
                    backoff.reset();
                } else {
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                }
                Phase::Watch(served, version)
            }
            Err(RequestError::Expired) => {
                tracing::debug!(resource = %self.lookup.resource, version, "resourceVersion of the watch has expired, relisting");
                // The list resets the backoff. Without this wait, a server that expires every version causes a busy loop.
                if version == initial_version {
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                }
                Phase::List(served)
            }
            Err(RequestError::NotFound) => Phase::Discover,
            Err(error @ RequestError::Other(ReflectorError::InvalidResponse { .. })) => {
                self.retry(error, Phase::List(served), backoff).await
            }
            Err(error) => self.retry(error, Phase::Watch(served, version), backoff).await,
        }
    }

    /// Reports the error, waits, and continues with `next`. A resource that is not served is discovered again instead.
    async fn retry(&mut self, error: RequestError, next: Phase, backoff: &mut BackOff) -> Phase {
        match error {
            RequestError::NotFound => {
                self.writer.clear();
                backoff.wait_for(jitter(self.timing.rediscovery), &mut self.reconnects).await;
                Phase::Discover
            }
            RequestError::Expired | RequestError::UnknownVersion => {
                backoff.wait_or_reconnect(&mut self.reconnects).await;
                next
            }
            RequestError::Other(error) => {
                self.writer.set_error(error);
                backoff.wait_or_reconnect(&mut self.reconnects).await;
                next
            }
        }
    }
}

impl StoreWriter {
    /// Applies the difference between a complete list and the store.
    fn replace(&mut self, listed: ResourceList) {
        self.not_served = false;
        let mut listed: BTreeMap<_, _> = listed.objects.into_iter().collect();
        let stored = self.store.objects(&self.lookup, self.id);
        let deleted = stored.iter().flat_map(|stored| stored.keys()).filter(|key| !listed.contains_key(*key));
        let mut deltas: Vec<Delta> = deleted.map(|key| Delta::Remove(key.clone())).collect();
        while let Some((key, object)) = listed.pop_first() {
            deltas.push(Delta::Put(key, object));
        }
        self.store.apply(&self.lookup, self.id, deltas);
        self.set_synced();
    }

    /// Removes all objects, because the API server does not serve the resource.
    fn clear(&mut self) {
        if self.lookup.optional {
            tracing::debug!(resource = %self.lookup.resource, "resource is not served by the API server, treated as empty");
        } else if !self.not_served {
            tracing::warn!(
                resource = %self.lookup.resource,
                "resource that a filter looks up is not served by the API server, treated as empty until it is"
            );
        }
        self.not_served = true;
        let stored = self.store.objects(&self.lookup, self.id);
        let deltas = stored.iter().flat_map(|stored| stored.keys()).map(|key| Delta::Remove(key.clone())).collect();
        self.store.apply(&self.lookup, self.id, deltas);
        self.set_synced();
    }

    fn set_synced(&self) {
        self.state.send_if_modified(|state| {
            let new = ReflectorState { synced: true, error: None };
            let changed = *state != new;
            *state = new;
            changed
        });
    }

    fn set_error(&self, error: ReflectorError) {
        self.state.send_if_modified(|state| {
            let changed = state.error.as_ref() != Some(&error);
            if changed {
                tracing::warn!(resource = %self.lookup.resource, %error, synced = state.synced, "reflector failed, retrying");
                state.error = Some(error);
            }
            changed
        });
    }
}

impl WatchHandler for StoreWriter {
    fn started(&mut self) {
        self.set_synced();
    }

    fn apply(&mut self, deltas: Vec<Delta>) {
        self.store.apply(&self.lookup, self.id, deltas);
    }
}
