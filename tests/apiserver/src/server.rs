//! The server as tests hold it: built, started, observed, disturbed, dropped.
//!
//! Everything that it started ends when it is dropped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, Attributes, Enforce, User};
use crate::body::Gzip;
use crate::catalog::{Catalog, Resource};
use crate::fault::{Action, End};
use crate::listen::Listener;
use crate::plane::Plane;
use crate::record::{Record, Recorded};
use crate::store::Store;
use crate::stream::PodLog;
use crate::tls;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is not to be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("cannot serve TLS")]
    Tls(#[source] tls::TlsError),
}

/// How a server shall be. Made by [`ApiServer::builder`].
#[derive(Debug)]
pub struct Builder {
    address: SocketAddr,
    history: usize,
    bookmarks: Duration,
    gzip: Gzip,
    tokens: BTreeMap<String, User>,
    known_tokens_only: bool,
    record: usize,
    streams: u32,
    tls: Option<(Vec<u8>, Vec<u8>)>,
    client_ca: Option<Vec<u8>>,
    catalog: Catalog,
}

/// A running server.
pub struct ApiServer {
    plane: Arc<Plane>,
    url: String,
    address: SocketAddr,
    broken: watch::Sender<u64>,
    drained: watch::Sender<u64>,
    tasks: JoinSet<()>,
}

// === impl Builder ===

impl Builder {
    /// Listens here instead of a free port of 127.0.0.1.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Listens on this port of 127.0.0.1; 0 for a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// How many events are kept per resource; 10,000 unless told. Older starts of watches get 410.
    #[must_use]
    pub fn history(mut self, events: usize) -> Self {
        self.history = events;
        self
    }

    /// How often watches that allow it get a bookmark; a minute unless told.
    #[must_use]
    pub fn bookmark_interval(mut self, every: Duration) -> Self {
        self.bookmarks = every;
        self
    }

    /// When answers are gzipped.
    #[must_use]
    pub fn gzip(mut self, gzip: Gzip) -> Self {
        self.gzip = gzip;
        self
    }

    /// Knows a bearer token. Unknown tokens are taken too, as users of that very name, unless `known_tokens_only`.
    #[must_use]
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        self.tokens.insert(token.to_owned(), User::new(user, groups));
        self
    }

    /// Answers 401 to tokens that it was not told.
    #[must_use]
    pub fn known_tokens_only(mut self) -> Self {
        self.known_tokens_only = true;
        self
    }

    /// How many requests are remembered; 10,000 unless told.
    #[must_use]
    pub fn record(mut self, requests: usize) -> Self {
        self.record = requests;
        self
    }

    /// HTTP/2 streams per connection; 250 unless told, as kube-apiserver.
    #[must_use]
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.streams = streams;
        self
    }

    /// Serves https with this certificate chain and key, both PEM.
    #[must_use]
    pub fn tls(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Asks for client certificates over TLS and verifies them by this CA; what was shown is recorded with each request.
    #[must_use]
    pub fn client_ca(mut self, certificate: impl Into<Vec<u8>>) -> Self {
        self.client_ca = Some(certificate.into());
        self
    }

    /// Serves one more resource.
    #[must_use]
    pub fn resource(self, resource: Resource) -> Self {
        self.catalog.add(resource);
        self
    }

    /// Does not serve a resource that is there by default.
    #[must_use]
    pub fn without_resource(self, group: &str, plural: &str) -> Self {
        self.catalog.remove(group, plural, None);
        self
    }

    /// Listens and serves, in tasks of the present runtime.
    pub async fn start(self) -> Result<ApiServer, StartError> {
        let tls = match &self.tls {
            None => None,
            Some((certificates, key)) => {
                let config = tls::config(certificates, key, self.client_ca.as_deref()).map_err(StartError::Tls)?;
                Some(TlsAcceptor::from(Arc::new(config)))
            }
        };
        let address = self.address;
        let failed = |source| StartError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let catalog = Arc::new(self.catalog);
        let plane = Arc::new(Plane::new(
            Store::new(Arc::clone(&catalog), self.history),
            catalog,
            Access::new(self.tokens, self.known_tokens_only),
            Record::new(self.record),
            self.bookmarks,
            self.gzip,
        ));
        plane.seed();
        let (broken, drained) = (watch::Sender::new(0), watch::Sender::new(0));
        let listener = Listener {
            plane: Arc::clone(&plane),
            tls,
            streams: self.streams,
            broken: broken.subscribe(),
            drained: drained.subscribe(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.run(socket));
        Ok(ApiServer { plane, url: format!("{scheme}://{address}"), address, broken, drained, tasks })
    }
}

// === impl ApiServer ===

impl ApiServer {
    /// A server with the built-in kinds, OpenYurt's CRDs and the usual four namespaces, on a free port of 127.0.0.1.
    pub fn builder() -> Builder {
        Builder {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            history: 10_000,
            bookmarks: Duration::from_secs(60),
            gzip: Gzip::Large,
            tokens: BTreeMap::new(),
            known_tokens_only: false,
            record: 10_000,
            streams: 250,
            tls: None,
            client_ca: None,
            catalog: Catalog::new(),
        }
    }

    /// `http://127.0.0.1:<port>`, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its objects.
    pub fn store(&self) -> &Store {
        &self.plane.store
    }

    /// The last requests, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        self.plane.record.all()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.plane.record.clear();
    }

    /// How many requests there ever were; wakes with each.
    pub fn request_count(&self) -> watch::Receiver<u64> {
        self.plane.record.count()
    }

    /// Forgets all history: see [`Store::compact`].
    pub fn compact(&self) {
        self.plane.store.compact();
    }

    /// Serves one more resource from now on.
    pub fn add_resource(&self, resource: Resource) {
        self.plane.catalog.add(resource);
    }

    /// Stops serving a resource in all versions, deletes its objects and ends its watches, as deleting its CRD does.
    pub fn remove_resource(&self, group: &str, plural: &str) {
        self.plane.catalog.remove(group, plural, None);
        self.plane.store.forget(&crate::catalog::qualified(group, plural));
    }

    /// Stops serving one version of a resource; its objects stay.
    pub fn remove_version(&self, group: &str, version: &str, plural: &str) {
        self.plane.catalog.remove(group, plural, Some(version));
    }

    /// Lets a hook decide what becomes of each request from now on. It replaces the one before and must not block.
    pub fn on_request(&self, hook: impl Fn(&Recorded) -> Action + Send + Sync + 'static) {
        self.plane.set_hook(Some(Arc::new(hook)));
    }

    /// Answers every request for a path (not decoded; whatever the query and method) with this body from now on. It is
    /// written as it lies in memory: the upstream of throughput measurements. A later one for the path replaces it.
    pub fn fix(&self, path: &str, media: HeaderValue, body: impl Into<Bytes>) {
        self.plane.fixed.set(path, media, body.into());
    }

    /// Serves every request as ever.
    pub fn clear_hook(&self) {
        self.plane.set_hook(None);
    }

    /// How many watches are open now: `wait_for(|open| *open == 0)` awaits that the last is gone.
    pub fn open_watches(&self) -> watch::Receiver<usize> {
        self.plane.watches.subscribe()
    }

    /// How many followed logs and upgraded connections are open now.
    pub fn open_streams(&self) -> watch::Receiver<usize> {
        self.plane.streams.subscribe()
    }

    /// Ends all watches that run now.
    pub fn close_watches(&self, end: End) {
        self.plane.signals.send_modify(|signals| {
            signals.closed += 1;
            signals.end = end;
        });
    }

    /// Sends a bookmark on all watches that allow it, after the events so far.
    pub fn send_bookmarks(&self) {
        self.plane.signals.send_modify(|signals| signals.bookmark += 1);
    }

    /// Breaks all connections that are open now. New ones are accepted.
    pub fn break_connections(&self) {
        self.broken.send_modify(|times| *times += 1);
    }

    /// Ends all connections that are open now when their requests are answered; over HTTP/2 that is said (GOAWAY). New ones
    /// are accepted.
    pub fn drain_connections(&self) {
        self.drained.send_modify(|times| *times += 1);
    }

    /// When answers are gzipped from now on.
    pub fn set_gzip(&self, gzip: Gzip) {
        self.plane.set_gzip(gzip);
    }

    /// What reviews answer, and [`ApiServer::enforce`] enforces. Without it everything is allowed.
    pub fn set_policy(&self, policy: impl Fn(&Attributes) -> bool + Send + Sync + 'static) {
        self.plane.access.set(Arc::new(policy));
    }

    /// On whom the policy is enforced with 403; on nobody unless told.
    pub fn enforce(&self, enforce: Enforce) {
        self.plane.access.enforce(enforce);
    }

    /// Knows one more token.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        self.plane.access.add_token(token.to_owned(), User::new(user, groups));
    }

    /// The log of a pod, to be written to. The pod need not exist.
    pub fn pod_log(&self, namespace: &str, pod: &str) -> PodLog {
        self.plane.log(namespace, pod)
    }

    /// Stops, and returns when the port is free again.
    pub async fn stop(mut self) {
        self.plane.stop();
        self.tasks.shutdown().await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // The set of accepted connections goes with the accept loop; tasks of HTTP/2 streams and upgrades are the plane's.
        self.plane.stop();
    }
}
