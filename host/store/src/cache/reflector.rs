//! The task that keeps a store up to date: it lists the collection, watches it, and resumes or lists again after failures.

use std::sync::Arc;
use std::time::Duration;

use weir_document::TypeMeta;
use weir_document::protobuf::kind_of;
use weir_kube::Encoding;
use weir_upstream::{BackOff, Connectivity, Reconnects, jitter};

use super::collection::Collection;
use super::decode::{self, EventDecoder, PageDecoder, WatchEvent};
use super::object::{Object, ObjectFormat};
use super::resource_store::{Delta, ResourceStore, Snapshot};
use super::sources::Sources;
use crate::error::ReflectorError;
use crate::peers::PeerOrder;
use crate::query::escaped;
use crate::resource_client::{RequestError, ResourceClient, ResponseChunks};
use crate::timing::ReflectorTiming;

/// Items per page, as in client-go.
const PAGE: usize = 500;
/// The largest total size of the objects of one list.
const MAX_LIST: usize = 512 << 20;

/// The API server that reflectors read from.
#[derive(Clone)]
pub struct ReflectorClient {
    /// A client with the identity that reads. It connects to the API server directly, so filters never apply.
    pub client: kube::Client,
    /// The connectivity of the same API server. It ends delays as soon as any request succeeds.
    pub connectivity: Connectivity,
}

/// Keeps the store of one collection up to date while [`ResourceReflector::run`] runs.
pub struct ResourceReflector {
    sources: Sources,
    collection: Collection,
    encoding: Encoding,
    timing: ReflectorTiming,
    reconnects: Reconnects,
    store: Arc<ResourceStore>,
}

/// What a reflector does next.
enum Phase {
    /// List the collection: its objects are unknown, or their version has expired.
    List,
    /// Watch from the store's version on.
    Watch,
}

impl ResourceReflector {
    /// Creates a reflector with an empty store. `client` sends with the identity that reads the collection.
    #[must_use]
    pub fn new(
        ReflectorClient { client, connectivity }: ReflectorClient,
        collection: Collection,
        timing: ReflectorTiming,
    ) -> Self {
        let encoding = collection.encoding();
        let api_version = collection.api_version();
        let kind = kind_of(&api_version, &collection.resource.resource).unwrap_or_default().to_owned();
        let format = ObjectFormat { encoding, type_meta: Arc::new(TypeMeta { api_version, kind }) };
        let resource = collection.resource.clone();
        let client = ResourceClient { client, resource, response_timeout: timing.response_timeout };
        Self {
            collection,
            encoding,
            timing,
            reconnects: connectivity.reconnects(),
            sources: Sources::new(client, connectivity),
            store: Arc::new(ResourceStore::new(format)),
        }
    }

    /// Also reads from other Weirs of the pool, in this order.
    #[must_use]
    pub(crate) fn with_peers(mut self, peers: PeerOrder) -> Self {
        self.sources.set_peers(peers);
        self
    }

    /// The store that the reflector fills.
    #[must_use]
    pub fn store(&self) -> Arc<ResourceStore> {
        self.store.clone()
    }

    /// Runs until it is dropped. Cancel-safe: the store keeps what was written.
    pub async fn run(mut self) {
        self.store.end_restore();
        self.follow(Phase::List).await;
    }

    /// Runs until it is dropped, and starts with objects from disk: it watches from their version on, without a list.
    ///
    /// Once `foreign` resolves, the objects are those of another cluster: the reflector lists, and replaces all of them.
    /// Cancel-safe: the store keeps what was written.
    pub async fn run_restored(mut self, snapshot: Snapshot, foreign: impl Future<Output = ()>) {
        self.store.restore(snapshot);
        self.store.end_restore();
        tokio::select! {
            () = self.follow(Phase::Watch) => {}
            () = foreign => {}
        }
        self.store.set_foreign();
        self.follow(Phase::List).await;
    }

    async fn follow(&mut self, mut phase: Phase) {
        let mut backoff = BackOff::new(self.timing.initial_backoff, self.timing.max_backoff);
        loop {
            self.select_source();
            let started = tokio::time::Instant::now();
            let before = self.store.snapshot().version;
            let result = match phase {
                Phase::List => self.list().await.map(|()| Phase::Watch),
                Phase::Watch => self.watch().await.map(|()| Phase::Watch),
            };
            phase = match (result, phase) {
                (Ok(next), current) => {
                    // A server that ends each watch at once must not cause a busy loop.
                    let progress = self.store.snapshot().version != before;
                    if matches!(current, Phase::List) || progress || started.elapsed() > self.timing.initial_backoff {
                        backoff.reset();
                    } else {
                        backoff.wait_or_reconnect(&mut self.reconnects).await;
                    }
                    next
                }
                (Err(RequestError::Expired), _) => {
                    tracing::debug!(collection = %self.collection, "resourceVersion has expired, listing again");
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                    Phase::List
                }
                // The next source goes on at once, where the store is.
                (Err(error), current) if self.sources.peer_failed() => {
                    tracing::debug!(collection = %self.collection, ?error, "the peer failed, reading from another source");
                    current
                }
                (Err(RequestError::NotFound), _) => {
                    self.report(ReflectorError::NotServed { resource: self.collection.resource.clone() });
                    backoff.wait_for(jitter(self.timing.rediscovery), &mut self.reconnects).await;
                    Phase::List
                }
                (Err(RequestError::Other(error)), current) => {
                    let invalid = matches!(error, ReflectorError::InvalidResponse { .. });
                    self.report(error);
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                    if invalid { Phase::List } else { current }
                }
            };
        }
    }

    fn select_source(&mut self) {
        let before = self.store.peer();
        let peer = self.sources.select();
        if before != peer {
            let source = peer.as_deref().unwrap_or("the API server");
            tracing::info!(collection = %self.collection, source, "reading from another source");
            self.store.set_peer(peer);
        }
    }

    fn client(&self) -> &ResourceClient {
        self.sources.client()
    }

    fn report(&self, error: ReflectorError) {
        let text = error.to_string();
        if self.store.set_error(error) {
            tracing::warn!(collection = %self.collection, error = text, "reflector failed, retrying");
        }
    }

    /// Lists all pages. All of them have the version of the first one.
    async fn list(&self) -> Result<(), RequestError> {
        let mut objects = Vec::new();
        let mut bytes = 0_usize;
        let mut token: Option<String> = None;
        loop {
            let parameters = match &token {
                None => format!("limit={PAGE}"),
                Some(token) => format!("limit={PAGE}&continue={}", escaped(token)),
            };
            let mut page = self.page(&self.collection.path_with(&parameters)).await?;
            bytes = bytes.saturating_add(page.objects.iter().map(|object| object.bytes.len()).sum());
            if bytes > MAX_LIST {
                let resource = self.collection.resource.clone();
                return Err(RequestError::Other(ReflectorError::TooLarge { resource, limit: MAX_LIST }));
            }
            objects.append(&mut page.objects);
            token = match page.continue_token {
                Some(next) if Some(&next) == token.as_ref() => {
                    return Err(self.client().invalid_response("a page names itself as the next one"));
                }
                next => next,
            };
            if self.sources.is_peer() && page.version < self.store.snapshot().version {
                return Err(self.client().unavailable("the peer is behind this node"));
            }
            if token.is_none() {
                self.store.replace(page.format, objects, page.version);
                return Ok(());
            }
        }
    }

    async fn page(&self, path: &str) -> Result<Page, RequestError> {
        let invalid = |error: decode::DecodeError| self.client().invalid_response(error);
        let response = self.client().get(path, self.collection.accept_list(), true).await?;
        let chunks = ResponseChunks::new(self.client(), response, self.encoding)?;
        let mut chunks = chunks.counted(self.store.received());
        let mut decoder = PageDecoder::new(self.encoding);
        let mut items = Vec::new();
        loop {
            match tokio::time::timeout(self.timing.response_timeout, chunks.next()).await {
                Ok(Ok(Some(chunk))) => {
                    decoder.push(chunk);
                    decoder.items(&mut items).map_err(invalid)?;
                }
                Ok(Ok(None)) => break,
                Ok(Err(reason)) => return Err(self.client().unavailable(reason)),
                Err(_) => {
                    let reason = format!("the list stalled for {:?}", self.timing.response_timeout);
                    return Err(self.client().unavailable(reason));
                }
            }
        }
        decoder.finish();
        decoder.items(&mut items).map_err(invalid)?;
        let meta = decoder.meta();
        let format = decode::list_format(self.encoding, meta).map_err(invalid)?;
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version
            .ok_or_else(|| self.client().invalid_response("the list has no numeric metadata.resourceVersion"))?;
        let objects =
            items.iter().map(|item| decode::object(&format, self.collection.content, item)).collect::<Result<_, _>>();
        Ok(Page { objects: objects.map_err(invalid)?, format, version, continue_token: meta.continue_token.clone() })
    }

    /// Watches until the server or the timeout ends the watch.
    async fn watch(&self) -> Result<(), RequestError> {
        let timeout = jitter(self.timing.watch_timeout).max(Duration::from_secs(1));
        let snapshot = self.store.snapshot();
        let (version, seconds) = (snapshot.version, timeout.as_secs());
        let parameters =
            format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}");
        // The server ends the watch in time. This deadline ends it later, in case the connection is dead.
        let end = tokio::time::sleep(timeout + self.timing.response_timeout);
        tokio::pin!(end);
        // No gzip: the server would compress each event on its own.
        let path = self.collection.path_with(&parameters);
        let response = self.client().get(&path, self.collection.accept_watch(), false).await?;
        let chunks = ResponseChunks::new(self.client(), response, self.encoding)?;
        let mut chunks = chunks.counted(self.store.received());
        self.store.set_synced();
        let mut decoder = EventDecoder::new(self.encoding);
        loop {
            let chunk = tokio::select! {
                chunk = chunks.next() => chunk,
                () = &mut end => return Ok(()),
                () = self.sources.outdated() => return Ok(()),
            };
            // The next watch delivers an incomplete event again.
            let Ok(Some(chunk)) = chunk else { return Ok(()) };
            decoder.push(chunk);
            let mut deltas = Vec::new();
            let result = self.events(&mut decoder, &snapshot.format, &mut deltas);
            if !deltas.is_empty() {
                self.store.apply(deltas);
            }
            result?;
        }
    }

    /// Turns the complete events into deltas.
    fn events(
        &self,
        decoder: &mut EventDecoder,
        format: &ObjectFormat,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), RequestError> {
        while let Some(event) =
            decoder.next(format, self.collection.content).map_err(|error| self.client().invalid_response(error))?
        {
            deltas.push(match event {
                WatchEvent::Put(object) => Delta::Put(object),
                WatchEvent::Delete(key, version) => Delta::Remove(key, version),
                WatchEvent::Bookmark(version) => Delta::Bookmark(version),
                WatchEvent::Error(status) => return Err(self.client().error_event(&status)),
            });
        }
        Ok(())
    }
}

/// One page of a list.
struct Page {
    objects: Vec<Object>,
    format: ObjectFormat,
    version: u64,
    continue_token: Option<String>,
}
