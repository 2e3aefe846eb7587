//! The API server's handle for tests: build, start, observe, inject faults, drop.
//!
//! Dropping it ends all its tasks.

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

use crate::access::{Access, Attributes, Enforce, Policy, User};
use crate::body::Gzip;
use crate::catalog::{Catalog, Resource};
use crate::fault::{Action, End};
use crate::listen::Listener;
use crate::plane::Plane;
use crate::record::{Recorded, RequestLog};
use crate::store::ObjectStore;
use crate::stream::PodLog;
use crate::tls;

/// A reason that the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerStartError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The certificate or key is invalid.
    #[error("cannot serve TLS")]
    Tls(#[source] tls::ServerTlsError),
}

/// The settings of a server. [`ApiServer::builder`] creates it.
pub struct Builder {
    address: SocketAddr,
    history: usize,
    bookmarks: Duration,
    gzip: Gzip,
    tokens: BTreeMap<String, User>,
    known_tokens_only: bool,
    rights: BTreeMap<String, Policy>,
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

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Builder {
    /// Sets the address to listen on. The default is a free port of 127.0.0.1.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Sets the port on 127.0.0.1; 0 selects a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// Sets the number of events kept per resource, 10,000 by default. Watches from older versions get 410.
    #[must_use]
    pub fn history(mut self, events: usize) -> Self {
        self.history = events;
        self
    }

    /// Sets the interval of bookmarks for watches that allow them, one minute by default.
    #[must_use]
    pub fn bookmark_interval(mut self, every: Duration) -> Self {
        self.bookmarks = every;
        self
    }

    /// Sets when responses are gzipped.
    #[must_use]
    pub fn gzip(mut self, gzip: Gzip) -> Self {
        self.gzip = gzip;
        self
    }

    /// Adds a bearer token. Without `known_tokens_only`, any other token names its user.
    #[must_use]
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        self.tokens.insert(token.to_owned(), User::authenticated(user, groups));
        self
    }

    /// Limits a user to what this policy allows, in all its requests: see [`ApiServer::set_rights`].
    #[must_use]
    pub fn rights(mut self, user: &str, allowed: impl Fn(&Attributes) -> bool + Send + Sync + 'static) -> Self {
        self.rights.insert(user.to_owned(), Arc::new(allowed));
        self
    }

    /// Returns 401 for unknown tokens.
    #[must_use]
    pub fn known_tokens_only(mut self) -> Self {
        self.known_tokens_only = true;
        self
    }

    /// Sets the number of recorded requests, 10,000 by default.
    #[must_use]
    pub fn record(mut self, requests: usize) -> Self {
        self.record = requests;
        self
    }

    /// Sets the HTTP/2 streams per connection, 250 by default as in kube-apiserver.
    #[must_use]
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.streams = streams;
        self
    }

    /// Serves HTTPS with this certificate chain and key, both PEM.
    #[must_use]
    pub fn tls(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Requests client certificates over TLS and verifies them by this CA. Each recorded request has the certificate.
    #[must_use]
    pub fn client_ca(mut self, certificate: impl Into<Vec<u8>>) -> Self {
        self.client_ca = Some(certificate.into());
        self
    }

    /// Serves another resource.
    #[must_use]
    pub fn resource(self, resource: Resource) -> Self {
        self.catalog.add(resource);
        self
    }

    /// Removes a default resource.
    #[must_use]
    pub fn without_resource(self, group: &str, plural: &str) -> Self {
        self.catalog.remove(group, plural, None);
        self
    }

    /// Binds the address and serves in tasks of the current runtime.
    pub async fn start(self) -> Result<ApiServer, ServerStartError> {
        let tls = match &self.tls {
            None => None,
            Some((certificates, key)) => {
                let config =
                    tls::config(certificates, key, self.client_ca.as_deref()).map_err(ServerStartError::Tls)?;
                Some(TlsAcceptor::from(Arc::new(config)))
            }
        };
        let address = self.address;
        let failed = |source| ServerStartError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let catalog = Arc::new(self.catalog);
        let plane = Arc::new(Plane::new(
            ObjectStore::new(Arc::clone(&catalog), self.history),
            catalog,
            Access::new(self.tokens, self.known_tokens_only, self.rights),
            RequestLog::new(self.record),
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
    /// Starts a server with the built-in kinds, OpenYurt's CRDs and the usual four namespaces on a free port of
    /// 127.0.0.1.
    pub fn builder() -> Builder {
        Builder {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            history: 10_000,
            bookmarks: Duration::from_secs(60),
            gzip: Gzip::Large,
            tokens: BTreeMap::new(),
            known_tokens_only: false,
            rights: BTreeMap::new(),
            record: 10_000,
            streams: 250,
            tls: None,
            client_ca: None,
            catalog: Catalog::new(),
        }
    }

    /// `http://127.0.0.1:<port>`, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its objects.
    pub fn store(&self) -> &ObjectStore {
        &self.plane.store
    }

    /// The recorded requests, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        self.plane.record.all()
    }

    /// Clears the recorded requests.
    pub fn clear_requests(&self) {
        self.plane.record.clear();
    }

    /// The number of requests since the start. The receiver is notified of each.
    pub fn request_count(&self) -> watch::Receiver<u64> {
        self.plane.record.count()
    }

    /// Discards all history: see [`ObjectStore::compact`].
    pub fn compact(&self) {
        self.plane.store.compact();
    }

    /// Adds a resource.
    pub fn add_resource(&self, resource: Resource) {
        self.plane.catalog.add(resource);
    }

    /// Removes a resource in all versions, deletes its objects and ends its watches, as deleting its CRD does.
    pub fn remove_resource(&self, group: &str, plural: &str) {
        self.plane.catalog.remove(group, plural, None);
        self.plane.store.forget(&crate::catalog::qualified(group, plural));
    }

    /// Removes one version of a resource. Its objects stay.
    pub fn remove_version(&self, group: &str, version: &str, plural: &str) {
        self.plane.catalog.remove(group, plural, Some(version));
    }

    /// Sets the hook that decides how each request is served. It replaces the previous one and must not block.
    pub fn on_request(&self, hook: impl Fn(&Recorded) -> Action + Send + Sync + 'static) {
        self.plane.set_hook(Some(Arc::new(hook)));
    }

    /// Serves this body for every request to a path, with any query and method. The path is compared in its
    /// encoded form. The body is written without a copy, for throughput measurements. A later body for the path
    /// replaces it.
    pub fn fix(&self, path: &str, media: HeaderValue, body: impl Into<Bytes>) {
        self.plane.fixed.set(path, media, body.into());
    }

    /// Removes the hook.
    pub fn clear_hook(&self) {
        self.plane.set_hook(None);
    }

    /// The number of open watches. `wait_for(|open| *open == 0)` awaits the end of the last one.
    pub fn open_watches(&self) -> watch::Receiver<usize> {
        self.plane.watches.subscribe()
    }

    /// The number of followed logs and upgraded connections that are open.
    pub fn open_streams(&self) -> watch::Receiver<usize> {
        self.plane.streams.subscribe()
    }

    /// Ends all running watches.
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

    /// Closes all open connections. It accepts new ones.
    pub fn break_connections(&self) {
        self.broken.send_modify(|times| *times += 1);
    }

    /// Closes all open connections after their current requests; over HTTP/2 with GOAWAY. It accepts new ones.
    pub fn drain_connections(&self) {
        self.drained.send_modify(|times| *times += 1);
    }

    /// Changes when responses are gzipped.
    pub fn set_gzip(&self, gzip: Gzip) {
        self.plane.set_gzip(gzip);
    }

    /// Sets the policy that answers reviews and that [`ApiServer::enforce`] enforces. The default allows everything.
    pub fn set_policy(&self, policy: impl Fn(&Attributes) -> bool + Send + Sync + 'static) {
        self.plane.access.set(Arc::new(policy));
    }

    /// Sets the requests on which the policy is enforced with 403. The default is none.
    pub fn enforce(&self, enforce: Enforce) {
        self.plane.access.enforce(enforce);
    }

    /// Limits a user to what this policy allows, whatever else is enforced: its reads and writes, reviews of other users, and
    /// the users that it impersonates. Other users are not affected.
    pub fn set_rights(&self, user: &str, allowed: impl Fn(&Attributes) -> bool + Send + Sync + 'static) {
        self.plane.access.set_rights(user.to_owned(), Arc::new(allowed));
    }

    /// Adds a known token.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        self.plane.access.add_token(token.to_owned(), User::authenticated(user, groups));
    }

    /// The log of a pod, for tests to append to. The pod need not exist.
    pub fn pod_log(&self, namespace: &str, pod: &str) -> PodLog {
        self.plane.log(namespace, pod)
    }

    /// Stops the server. Returns when the port is free again.
    pub async fn stop(mut self) {
        self.plane.stop();
        self.tasks.shutdown().await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // The accept loop owns the accepted connections. The plane owns the tasks of HTTP/2 streams and upgrades.
        self.plane.stop();
    }
}
