//! Reads the filters' configuration: watches a ConfigMap, or reads a manifest file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::last_good::{LastGood, SourcedConfiguration};
use crate::config::{ConfigSource, ConfigurationError};
use weir_kube::utf8;
use weir_process::{FileRead, WatchedFiles};
use weir_upstream::{BackOff, Reconnects, Tasks, error_report};

/// The largest manifest file, in bytes. A ConfigMap has at most 1 MiB; the rest is for base64 and indentation.
pub(super) const MAX_MANIFEST: usize = 8 << 20;
/// How long the start waits for a writer of the file.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The most different errors of one outage that are logged.
const MAX_LOGGED: usize = 8;

/// The last state of the source.
#[derive(Debug, Clone)]
pub enum SourceState {
    /// Not read yet, because the API server has not responded.
    Pending,
    /// A valid configuration. If the ConfigMap does not exist, it has no filters and a warning.
    Valid(Arc<SourcedConfiguration>),
    /// An invalid configuration.
    Invalid(Arc<ConfigurationError>),
    /// The file cannot be read.
    Unreadable(Arc<str>),
}

/// How long the first read may take before the configuration on disk is used. Short, because clients wait for it, and a link
/// that drops packets causes no error. An answer that comes later replaces the configuration on disk.
const FIRST_READ: Duration = Duration::from_millis(50);
/// The first and the longest wait between attempts. A reconnect ends a wait.
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// How long the API server keeps a watch open, in seconds. kube takes less than 295.
const WATCH: u32 = 290;

/// Starts to watch a ConfigMap with the daemon's own credential. While the API server cannot be reached, `last_good` is the
/// first state. For a file the state stays [`SourceState::Pending`]: the
/// reloader calls [`read`] after each change.
#[must_use]
pub fn watch_source(
    source: &ConfigSource,
    (client, reconnects): (Client, Reconnects),
    last_good: Option<LastGood>,
    tasks: &Tasks,
) -> watch::Receiver<SourceState> {
    let (sender, receiver) = watch::channel(SourceState::Pending);
    if let ConfigSource::ConfigMap { namespace, name } = source {
        let follower = Follower {
            api: Api::namespaced(client, namespace),
            fields: format!("metadata.name={name}"),
            source: source.to_string(),
            first: FirstRead { last_good, until: Instant::now() + FIRST_READ, sender: sender.clone() },
            sender,
            known: None,
            logged: Vec::new(),
        };
        tasks.spawn_until_stop(follower.run(reconnects));
    }
    receiver
}

/// Reads a manifest file. `None` while it is being written, or its file system does not answer.
pub(super) async fn read(path: &Path, files: &WatchedFiles) -> Option<SourceState> {
    match files.read(path, MAX_MANIFEST, Duration::ZERO).await {
        Ok(FileRead::BeingWritten) => None,
        // What was read of it last counts.
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => None,
        read => state(path, read),
    }
}

/// Reads a manifest file for the first time, after a short wait for a writer. The configuration that was in force before this
/// start is whole, and need not wait.
pub(super) async fn read_first(path: &Path, files: &WatchedFiles, last_good: Option<&LastGood>) -> Option<SourceState> {
    let known = async {
        let text = match last_good {
            Some(last_good) => last_good.manifest().await,
            None => None,
        };
        match text {
            Some(text) if files.still_has(path, text.as_bytes()).await => text.into_bytes(),
            _ => std::future::pending().await,
        }
    };
    let read = tokio::select! {
        biased;
        read = files.read(path, MAX_MANIFEST, FIRST_WAIT) => read,
        known = known => Ok(FileRead::Complete(known)),
    };
    state(path, read)
}

fn state(path: &Path, read: std::io::Result<FileRead>) -> Option<SourceState> {
    let name = path.display().to_string();
    let unreadable = |reason: String| SourceState::Unreadable(format!("{name}: {reason}").into());
    let bytes = match read {
        Ok(FileRead::BeingWritten) => return None,
        Ok(FileRead::Complete(bytes)) => Ok(bytes),
        Err(error) => Err(error),
    };
    let text = bytes.map_err(|error| error.to_string());
    let text = text.and_then(|bytes| Ok(utf8(&bytes)?.to_owned()));
    Some(text.map_or_else(unreadable, |text| SourcedConfiguration::of_file(&name, text).into()))
}

impl SourceState {
    /// Whether both have the same content of the same source.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Valid(one), Self::Valid(other)) => one.is_same(other),
            (Self::Invalid(one), Self::Invalid(other)) => one.to_string() == other.to_string(),
            _ => false,
        }
    }
}

impl From<Result<SourcedConfiguration, ConfigurationError>> for SourceState {
    fn from(result: Result<SourcedConfiguration, ConfigurationError>) -> Self {
        match result {
            Ok(configuration) => Self::Valid(Arc::new(configuration)),
            Err(error) => Self::Invalid(Arc::new(error)),
        }
    }
}

/// The first read of the ConfigMap: if it fails or takes long, the configuration on disk is used, once.
struct FirstRead {
    last_good: Option<LastGood>,
    until: Instant,
    sender: watch::Sender<SourceState>,
}

impl FirstRead {
    /// Uses the configuration on disk, unless the ConfigMap has been read.
    async fn failed(&mut self, reason: &str) {
        let Some(last_good) = self.last_good.take() else { return };
        let reason = format!("the API server has not answered ({reason})");
        if let Some(configuration) = last_good.read(&reason).await {
            self.sender.send_replace(SourceState::Valid(Arc::new(configuration)));
        }
    }

    /// Reads from the API server. After a while the configuration on disk is used.
    async fn read<T>(&mut self, request: impl Future<Output = T>) -> T {
        tokio::pin!(request);
        tokio::select! {
            answer = &mut request => return answer,
            () = sleep_until(self.until), if self.last_good.is_some() => {}
        }
        self.failed(&format!("no response within {FIRST_READ:?}")).await;
        request.await
    }
}

/// Follows a ConfigMap.
///
/// kube's watcher goes on from a version after each lost connection, and never gets what a restored etcd has below it. So each
/// watch begins with a list of uid and version, and one of all content if these are others.
struct Follower {
    api: Api<ConfigMap>,
    /// The field selector.
    fields: String,
    source: String,
    sender: watch::Sender<SourceState>,
    first: FirstRead,
    /// The object of the present state; `Some(None)`: there is none.
    known: Option<Option<Revision>>,
    /// The errors of the present outage that the log has already. Several API servers fail with different errors.
    logged: Vec<String>,
}

/// The uid and the resourceVersion.
type Revision = (Option<String>, Option<String>);

fn revision(object: &impl Resource) -> Revision {
    (object.meta().uid.clone(), object.meta().resource_version.clone())
}

impl Follower {
    /// Runs until it is dropped. Cancel-safe.
    async fn run(mut self, mut reconnects: Reconnects) {
        let mut back_off = BackOff::new(RETRY, MAX_RETRY);
        loop {
            let started = Instant::now();
            let followed = self.follow().await;
            if let Err(error) = &followed {
                self.failed(error).await;
            }
            if started.elapsed() > RETRY {
                back_off.reset();
            }
            // A watch that has ended in time is followed by the next one.
            if followed.is_err() || started.elapsed() < RETRY {
                back_off.wait_or_reconnect(&mut reconnects).await;
            }
        }
    }

    /// Reads the present state if it is another one than before, and follows it until the watch ends.
    async fn follow(&mut self) -> Result<(), kube::Error> {
        let api = self.api.clone();
        let listing = ListParams::default().fields(&self.fields);
        let listed = self.first.read(api.list_metadata(&listing)).await?;
        let mut version = listed.metadata.resource_version;
        if self.known != Some(listed.items.first().map(revision)) {
            let listed = self.first.read(api.list(&listing)).await?;
            version = listed.metadata.resource_version;
            self.publish(listed.items.into_iter().next());
        }
        self.answered();
        let watching = WatchParams::default().fields(&self.fields).timeout(WATCH);
        let events = api.watch(&watching, version.as_deref().unwrap_or_default()).await?;
        tokio::pin!(events);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => self.publish(Some(map)),
                WatchEvent::Deleted(_) => self.publish(None),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn publish(&mut self, map: Option<ConfigMap>) {
        self.known = Some(map.as_ref().map(revision));
        let state: SourceState = SourcedConfiguration::of_api_server(&self.source, map).into();
        // Annotations and owners of fields change nothing, however often.
        self.sender.send_if_modified(|current| {
            let differs = !current.is_same(&state);
            *current = state;
            differs
        });
    }

    fn answered(&mut self) {
        if !std::mem::take(&mut self.logged).is_empty() {
            tracing::info!(source = self.source, "watching the configuration again");
        }
        // The API server's answer counts.
        self.first.last_good = None;
    }

    async fn failed(&mut self, error: &kube::Error) {
        let reason = error_report(error);
        if self.logged.len() < MAX_LOGGED && !self.logged.contains(&reason) {
            tracing::warn!(source = self.source, reason, "cannot watch the configuration, retrying");
            self.logged.push(reason.clone());
        }
        match error {
            // That is an answer, and not a sign that the API server cannot be reached.
            kube::Error::Api(status) if status.code < 500 => self.first.last_good = None,
            _ => self.first.failed(&reason).await,
        }
    }
}
