//! The task that keeps a store up to date: it lists the collection, watches it, and resumes or lists again after failures.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use weir_document::TypeMeta;
use weir_document::protobuf::kind_of;
use weir_kube::Encoding;
use weir_upstream::{BackOff, Connectivity, DelegatedCredential, Reconnects, jitter};

use super::collection::Collection;
use super::decode::{EventDecoder, WatchEvent};
use super::object::ObjectFormat;
use super::resource_store::ResourceStore;
use super::snapshot::{Delta, Snapshot};
use super::sources::{MAX_OF_PEER, Sources};
use super::trust::Continuity;
use crate::error::ReflectorError;
use crate::peers::PeerOrder;
use crate::resource_client::{RequestError, ResourceClient, ResponseChunks};
use crate::timing::ReflectorTiming;
use crate::uplink::UplinkLimit;

/// How often in a row a watch may start at a version that the API server does not know. A server that lags behind another
/// one catches up meanwhile.
const MAX_UNKNOWN_VERSIONS: u32 = 3;
/// After a longer pause the reflector lists. Clients would otherwise get an old state until the watch has caught up.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The API server that reflectors read from.
#[derive(Clone)]
pub struct ReflectorClient {
    /// A client with the identity that reads. It connects to the API server directly, so filters never apply.
    pub client: kube::Client,
    /// The connectivity of the same API server. It ends delays as soon as any request succeeds.
    pub connectivity: Connectivity,
    /// The delegated credential that the client sends, if any. The reflector pauses while no open request delegates it.
    pub delegated: Option<DelegatedCredential>,
}

/// Keeps the store of one collection up to date while [`ResourceReflector::run`] runs.
pub(crate) struct ResourceReflector {
    pub(super) sources: Sources,
    pub(super) collection: Collection,
    pub(super) encoding: Encoding,
    pub(super) timing: ReflectorTiming,
    reconnects: Reconnects,
    pub(super) store: Arc<ResourceStore>,
    /// Bounds what lists take from the link.
    pub(super) uplink: Option<UplinkLimit>,
    /// Whether the next watch is short, because a BOOKMARK comes only shortly before the end of a watch, otherwise once a minute.
    needs_bookmark: bool,
    /// The highest version for which a BOOKMARK was needed.
    asked_until: u64,
    pub(super) delegated: Option<DelegatedCredential>,
    /// Whether the objects differ from the API server's and must be listed again.
    pub(super) must_relist: bool,
    /// The last change of the cluster when the present request was sent.
    pub(super) cluster_change: u64,
    pub(super) is_private: bool,
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
    pub(crate) fn new(
        ReflectorClient { client, connectivity, delegated }: ReflectorClient,
        collection: Collection,
        timing: ReflectorTiming,
    ) -> Self {
        let encoding = collection.encoding();
        let api_version = collection.api_version();
        let kind = kind_of(&api_version, &collection.resource.resource).unwrap_or_default().to_owned();
        let format = ObjectFormat { encoding, type_meta: Arc::new(TypeMeta { api_version, kind }) };
        let resource = collection.resource.clone();
        Self {
            collection,
            encoding,
            timing,
            reconnects: connectivity.reconnects(),
            sources: Sources::new(
                ResourceClient { client, resource, response_timeout: timing.response_timeout },
                connectivity,
            ),
            store: Arc::new(ResourceStore::new(format)),
            uplink: None,
            needs_bookmark: false,
            asked_until: 0,
            delegated,
            must_relist: false,
            cluster_change: 0,
            is_private: false,
        }
    }

    /// For one client alone, which waits until the store follows the API server again: it goes on from its version after any pause.
    #[must_use]
    pub(crate) fn private(self, is_private: bool) -> Self {
        Self { is_private, ..self }
    }

    /// Bounds what lists take from the link to the API server. Watches are not bounded.
    #[must_use]
    pub(crate) fn with_uplink_limit(self, uplink: Option<UplinkLimit>) -> Self {
        Self { uplink, ..self }
    }

    /// Also reads from other Weirs of the pool, in this order.
    #[must_use]
    pub(crate) fn with_peers(mut self, peers: PeerOrder) -> Self {
        self.sources.set_peers(peers);
        self
    }

    /// The store that the reflector fills.
    #[must_use]
    pub(crate) fn store(&self) -> Arc<ResourceStore> {
        self.store.clone()
    }

    /// Runs until it is dropped. Cancel-safe: the store keeps what was written.
    pub(crate) async fn run(mut self) {
        self.store.end_restore();
        self.follow(Phase::List).await;
    }

    /// Runs until it is dropped, and starts with objects from disk: it watches from their version on, without a list.
    ///
    /// Once `foreign` resolves, the objects are those of another cluster: the reflector lists, and replaces all of them.
    /// Cancel-safe: the store keeps what was written.
    pub(crate) async fn run_restored(mut self, snapshot: Snapshot, foreign: impl Future<Output = ()>) {
        self.store.restore(snapshot);
        self.store.end_restore();
        // Clients of an earlier process may be ahead of what was on disk.
        self.needs_bookmark = true;
        tokio::select! {
            () = self.follow(Phase::Watch) => {}
            () = foreign => {}
        }
        self.store.set_foreign();
        self.follow(Phase::List).await;
    }

    async fn follow(&mut self, mut phase: Phase) {
        let mut backoff = BackOff::new(self.timing.initial_backoff, self.timing.max_backoff);
        let mut unknown_versions = 0;
        loop {
            if self.wait_for_credential().await > MAX_PAUSE && !self.is_private {
                phase = Phase::List;
            }
            let sent = self.delegated.as_ref().and_then(DelegatedCredential::newest);
            if self.apply_doubt() {
                phase = Phase::List;
            }
            self.select_source();
            let started = tokio::time::Instant::now();
            let before = self.store.snapshot().version;
            let result = match phase {
                Phase::List => self.list().await.map(|()| {
                    self.settle();
                    // What was asked for may be of a former history.
                    self.asked_until = self.asked_until.min(self.store.snapshot().version);
                    Phase::Watch
                }),
                Phase::Watch => self.watch_on().await,
            };
            // The cluster may be being restored while the server does not answer, also behind a load balancer that does.
            if matches!((&result, &phase), (Err(RequestError::Other(_)), Phase::Watch)) && !self.reads_from_peer() {
                self.store.trust().question(Continuity::Unknown);
            }
            phase = match (result, phase) {
                (Ok(next), current) => {
                    // A server that ends each watch at once must not cause a busy loop.
                    let progress = self.store.snapshot().version != before;
                    if matches!(current, Phase::List) || progress || started.elapsed() > self.timing.initial_backoff {
                        backoff.reset();
                    } else {
                        backoff.wait_or_reconnect(&mut self.reconnects).await;
                    }
                    unknown_versions = 0;
                    next
                }
                // Another client may delegate one: nothing is wrong with the API server.
                (Err(RequestError::Withdrawn), current) => current,
                // No open request delegates the credential any more.
                (Err(_), current) if self.is_paused() => current,
                // The next source goes on at once, where the store is.
                (Err(error), current) if self.sources.peer_failed(matches!(error, RequestError::Expired)) => {
                    tracing::debug!(collection = %self.collection, ?error, "the peer failed, reading from another source");
                    current
                }
                (Err(RequestError::UnknownVersion), current) => {
                    unknown_versions += 1;
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                    if unknown_versions < MAX_UNKNOWN_VERSIONS {
                        current
                    } else {
                        let version = self.store.snapshot().version;
                        tracing::warn!(collection = %self.collection, version, "the API server does not know the version of the store, listing again");
                        Phase::List
                    }
                }
                (Err(RequestError::Expired), _) => {
                    tracing::debug!(collection = %self.collection, "resourceVersion has expired, listing again");
                    self.sources.expired();
                    backoff.wait_or_reconnect(&mut self.reconnects).await;
                    Phase::List
                }
                (Err(RequestError::NotFound), _) => {
                    self.report(ReflectorError::NotServed { resource: self.collection.resource.clone() });
                    let withdrawn = withdrawn(self.delegated.as_ref(), sent.as_deref());
                    let wait = backoff.wait_for(jitter(self.timing.rediscovery), &mut self.reconnects);
                    tokio::select! { () = wait => {}, () = withdrawn => {} }
                    Phase::List
                }
                (Err(RequestError::Other(error)), current) => {
                    let invalid = matches!(error, ReflectorError::InvalidResponse { .. });
                    self.refused(&error).await;
                    self.report(error);
                    let withdrawn = withdrawn(self.delegated.as_ref(), sent.as_deref());
                    let wait = backoff.wait_or_reconnect(&mut self.reconnects);
                    // The next client with a credential does not wait for what another one's got.
                    tokio::select! { () = wait => {}, () = withdrawn => {} }
                    if invalid { Phase::List } else { current }
                }
            };
        }
    }

    /// Records that the reader of the store was refused. A refused delegated credential says nothing about others of its
    /// client. A refused watch is followed by a list, because clients read lists from the store, too.
    async fn refused(&self, error: &ReflectorError) {
        if error.is_refusal() {
            match &self.delegated {
                None => self.store.set_refused(true),
                // The client that sends the credential records the refusal.
                Some(_) => drop(self.newest_version().await),
            }
        }
    }

    /// Whether no open request delegates the credential that the reflector sends.
    fn is_paused(&self) -> bool {
        self.delegated.as_ref().is_some_and(|delegated| !delegated.is_delegated())
    }

    /// Waits while the reflector is paused, and returns for how long. Meanwhile the store does not follow the API server.
    async fn wait_for_credential(&self) -> Duration {
        let started = tokio::time::Instant::now();
        if let Some(delegated) = self.delegated.as_ref().filter(|delegated| !delegated.is_delegated()) {
            self.store.set_paused();
            delegated.until_delegated().await;
        }
        started.elapsed()
    }

    /// Whether no open request delegates the credential that a request was sent with any more. `None`: it was sent without one.
    fn is_withdrawn(&self, sent: Option<&HeaderMap>) -> bool {
        self.delegated.as_ref().is_some_and(|delegated| sent.is_none_or(|sent| delegated.is_withdrawn(sent)))
    }

    fn select_source(&mut self) {
        let before = self.store.peer();
        let is_own = self.must_relist || self.store.bytes() > MAX_OF_PEER;
        let peer = self.sources.select(is_own, self.store.snapshot().version);
        if before != peer {
            let source = peer.as_deref().unwrap_or("the API server");
            tracing::info!(collection = %self.collection, source, "reading from another source");
            self.store.set_peer(peer);
        }
    }

    /// The client of the source.
    pub(super) fn client(&self) -> &ResourceClient {
        self.sources.client()
    }

    /// Whether the source is another Weir of the pool.
    pub(super) fn reads_from_peer(&self) -> bool {
        self.sources.is_peer()
    }

    /// Bounds what lists take from the link to the API server. Peers are near.
    pub(super) fn uplink(&self) -> Option<&UplinkLimit> {
        self.uplink.as_ref().filter(|_| !self.reads_from_peer())
    }

    fn report(&self, error: ReflectorError) {
        let text = error.to_string();
        // A client of its own gets the API server's answer, and chooses what is read.
        let is_of_client = self.is_private || self.delegated.is_some();
        match (self.store.set_error(error), is_of_client) {
            (false, _) => {}
            (true, true) => tracing::debug!(collection = %self.collection, error = text, "reflector failed, retrying"),
            (true, false) => tracing::warn!(collection = %self.collection, error = text, "reflector failed, retrying"),
        }
    }

    /// Watches. A server that is silent for the whole time may be at a version below that of the store: it sends neither
    /// bookmarks nor events below the version of the watch.
    async fn watch_on(&mut self) -> Result<Phase, RequestError> {
        let started = tokio::time::Instant::now();
        let wanted = self.needs_bookmark.then_some(self.asked_until);
        let received = self.watch().await?;
        if self.reads_from_peer() {
            if wanted.is_some_and(|wanted| self.store.snapshot().version < wanted) {
                // The next source is asked for the BOOKMARK, too.
                self.needs_bookmark = true;
                return Err(self.client().unavailable("the peer is behind: a client waits for a later version"));
            }
        } else if !received && started.elapsed() >= self.timing.watch_timeout / 2 {
            self.store.trust().question(Continuity::Lost);
        }
        Ok(Phase::Watch)
    }

    /// Watches until the server or the timeout ends the watch. Returns whether it sent an event.
    async fn watch(&mut self) -> Result<bool, RequestError> {
        let timeout = match self.needs_bookmark {
            true => self.timing.first_bookmark,
            false => jitter(self.timing.watch_timeout).max(Duration::from_secs(1)),
        };
        let snapshot = self.store.snapshot();
        let (version, seconds) = (snapshot.version, timeout.as_secs());
        let parameters =
            format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}");
        // The server ends the watch in time. This deadline ends it later, in case the connection is dead.
        let in_time = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let end = tokio::time::sleep(timeout + self.timing.response_timeout);
        tokio::pin!(end);
        // No gzip: the server would compress each event on its own.
        let path = self.collection.path_with(&parameters);
        let sent = self.delegated.as_ref().and_then(DelegatedCredential::newest);
        let response = match self.client().get(&path, self.collection.accept_watch(), false).await {
            Err(_) if self.is_withdrawn(sent.as_deref()) => return Err(RequestError::Withdrawn),
            response => response?,
        };
        self.needs_bookmark = false;
        if !self.reads_from_peer() {
            self.store.note_warnings(response.headers());
        }
        let mut chunks = ResponseChunks::new(self.client(), response, self.store.received())?;
        let encoding = chunks.encoding();
        if encoding != snapshot.format.encoding && version > 0 {
            let reason =
                format_args!("the watch is in {encoding:?}, the objects are in {:?}", snapshot.format.encoding);
            return Err(self.client().invalid_response(reason));
        }
        self.store.set_watched();
        self.accepted();
        let mut decoder = EventDecoder::new(encoding);
        let mut received = false;
        let store = self.store.clone();
        let late = store.late(self.asked_until);
        tokio::pin!(late);
        loop {
            let chunk = tokio::select! {
                chunk = chunks.next() => chunk,
                version = &mut late => {
                    (self.needs_bookmark, self.asked_until) = (true, version);
                    return Ok(received);
                }
                () = &mut end => return Ok(received),
                () = self.sources.outdated() => return Ok(received),
                () = withdrawn(self.delegated.as_ref(), sent.as_deref()) => return Err(RequestError::Withdrawn),
                () = store.trust().until_doubted() => return Ok(received),
            };
            // The next watch delivers an incomplete event again.
            let Ok(Some(chunk)) = chunk else {
                // A connection may end with the history.
                if !self.reads_from_peer() && tokio::time::Instant::now() < in_time {
                    self.store.trust().question(Continuity::Lost);
                }
                return Ok(received);
            };
            received = true;
            decoder.push(chunk);
            let mut deltas = Vec::new();
            let result = self.events(&mut decoder, &snapshot.format, &mut deltas);
            if !deltas.is_empty() {
                self.store.apply(deltas);
            }
            result?;
            if self.reads_from_peer() && self.store.bytes() > MAX_OF_PEER {
                return Err(self.client().unavailable("the peer's objects take too much memory"));
            }
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

/// Resolves when no open request delegates the credential of a request any more; never for the daemon's own. A watch ends then and is
/// sent again, with another credential of the same client if there is one.
async fn withdrawn(delegated: Option<&DelegatedCredential>, sent: Option<&HeaderMap>) {
    match delegated.zip(sent) {
        Some((delegated, sent)) => delegated.until_withdrawn(sent).await,
        None => std::future::pending().await,
    }
}
