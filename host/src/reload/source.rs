//! Reads the filters' configuration: watches a ConfigMap, or reads a manifest file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher as watch_objects;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;

use super::last_good::{LastGood, SourcedConfiguration};
use crate::bounded_file::read_file;
use crate::config::{ConfigSource, ConfigurationError};
use weir_upstream::{BackOff, Reconnects, Tasks, error_report};

/// The largest manifest file, in bytes. A ConfigMap has at most 1 MiB; the rest is for base64 and indentation.
const MAX_MANIFEST: usize = 8 << 20;
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
        let api = Api::namespaced(client, namespace);
        let first = FirstRead { last_good, sender: sender.clone() };
        tasks.spawn_until_stop(watch_config_map(api, reconnects, name.clone(), source.to_string(), sender, first));
    }
    receiver
}

/// Reads a manifest file.
pub(super) async fn read(path: &Path) -> SourceState {
    let name = path.display().to_string();
    let unreadable = |reason: String| SourceState::Unreadable(format!("{name}: {reason}").into());
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_file(&path, MAX_MANIFEST)).await;
    let bytes = read.map_err(std::io::Error::other).flatten();
    match bytes.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)) {
        Err(error) => unreadable(error.to_string()),
        Ok(text) => SourcedConfiguration::of_file(&name, text).into(),
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

    /// The API server has answered: its answer counts.
    fn answered(&mut self) {
        self.last_good = None;
    }
}

/// Whether an error is an answer of the API server, and not a sign that it cannot be reached.
fn is_answer(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status.code < 500,
        _ => false,
    }
}

async fn watch_config_map(
    api: Api<ConfigMap>,
    mut reconnects: Reconnects,
    name: String,
    source: String,
    sender: watch::Sender<SourceState>,
    mut first: FirstRead,
) {
    let late = tokio::time::sleep(FIRST_READ);
    tokio::pin!(late);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut events = watch_objects(api, config).boxed();
    let mut back_off = BackOff::new(RETRY, MAX_RETRY);
    let mut listed = None;
    // The errors of the present outage that the log has already. Several API servers fail with different errors.
    let mut logged: Vec<String> = Vec::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = &mut late, if first.last_good.is_some() => {
                first.failed(&format!("no response within {FIRST_READ:?}")).await;
                continue;
            }
        };
        let state = match event {
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(map))) => {
                listed = Some(map);
                continue;
            }
            Ok(Some(Event::InitDone)) => SourcedConfiguration::of_api_server(&source, listed.take()).into(),
            Ok(Some(Event::Apply(map))) => SourcedConfiguration::of_api_server(&source, Some(map)).into(),
            Ok(Some(Event::Delete(_))) => SourcedConfiguration::of_api_server(&source, None).into(),
            Ok(None) => return,
            Err(error) => {
                let reason = error_report(&error);
                if logged.len() < MAX_LOGGED && !logged.contains(&reason) {
                    tracing::warn!(source, reason, "cannot watch the configuration, retrying");
                    logged.push(reason.clone());
                }
                match is_answer(&error) {
                    true => first.answered(),
                    false => first.failed(&reason).await,
                }
                back_off.wait_or_reconnect(&mut reconnects).await;
                continue;
            }
        };
        if !std::mem::take(&mut logged).is_empty() {
            tracing::info!(source, "watching the configuration again");
        }
        first.answered();
        back_off.reset();
        sender.send_replace(state);
    }
}
