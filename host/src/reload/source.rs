//! Reads the filters' configuration: watches a ConfigMap, or reads a manifest file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::config::{ConfigSource, Configuration, ConfigurationError};
use weir_upstream::{Tasks, error_report};

/// The largest manifest file, in bytes. A ConfigMap has at most 1 MiB; the rest is for base64 and indentation.
const MAX_MANIFEST: u64 = 8 << 20;
/// The most different errors of one outage that are logged.
const MAX_LOGGED: usize = 8;

/// The last state of the source.
#[derive(Debug, Clone)]
pub enum SourceState {
    /// Not read yet, because the API server has not responded.
    Pending,
    /// A valid configuration. If the ConfigMap does not exist, it has no filters and a warning.
    Valid(Arc<Configuration>),
    /// An invalid configuration.
    Invalid(Arc<ConfigurationError>),
    /// The file cannot be read.
    Unreadable(Arc<str>),
}

/// Starts to watch a ConfigMap with the daemon's own credential. For a file the state stays [`SourceState::Pending`]: the
/// reloader calls [`read`] after each change.
#[must_use]
pub fn watch_source(source: &ConfigSource, client: Client, tasks: &Tasks) -> watch::Receiver<SourceState> {
    let (sender, receiver) = watch::channel(SourceState::Pending);
    if let ConfigSource::ConfigMap { namespace, name } = source {
        let api = Api::namespaced(client, namespace);
        tasks.spawn_until_stop(watch_config_map(api, name.clone(), source.to_string(), sender));
    }
    receiver
}

/// Reads a manifest file.
pub(super) async fn read(path: &Path) -> SourceState {
    let name = path.display().to_string();
    let unreadable = |reason: String| SourceState::Unreadable(format!("{name}: {reason}").into());
    match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.len() > MAX_MANIFEST => {
            return unreadable(format!("larger than {MAX_MANIFEST} bytes"));
        }
        Ok(_) => {}
        Err(error) => return unreadable(error.to_string()),
    }
    match tokio::fs::read_to_string(path).await {
        Err(error) => unreadable(error.to_string()),
        Ok(text) => Configuration::from_manifest(&name, &text).into(),
    }
}

impl From<Result<Configuration, ConfigurationError>> for SourceState {
    fn from(result: Result<Configuration, ConfigurationError>) -> Self {
        match result {
            Ok(configuration) => Self::Valid(Arc::new(configuration)),
            Err(error) => Self::Invalid(Arc::new(error)),
        }
    }
}

async fn watch_config_map(api: Api<ConfigMap>, name: String, source: String, sender: watch::Sender<SourceState>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut events = watch_objects(api, config).default_backoff().into_stream().boxed();
    let mut listed = None;
    // The errors of the present outage that the log has already. Several API servers fail with different errors.
    let mut logged: Vec<String> = Vec::new();
    loop {
        let state = match events.try_next().await {
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(map))) => {
                listed = Some(map);
                continue;
            }
            Ok(Some(Event::InitDone)) => match listed.take() {
                Some(map) => Configuration::from_config_map(&source, &map).into(),
                None => SourceState::Valid(Arc::new(Configuration::missing(&source))),
            },
            Ok(Some(Event::Apply(map))) => Configuration::from_config_map(&source, &map).into(),
            Ok(Some(Event::Delete(_))) => SourceState::Valid(Arc::new(Configuration::missing(&source))),
            Ok(None) => return,
            Err(error) => {
                let reason = error_report(&error);
                if logged.len() < MAX_LOGGED && !logged.contains(&reason) {
                    tracing::warn!(source, reason, "cannot watch the configuration, retrying");
                    logged.push(reason);
                }
                // The stream has a back-off of its own. This pause bounds the loop if that fails.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if !std::mem::take(&mut logged).is_empty() {
            tracing::info!(source, "watching the configuration again");
        }
        sender.send_replace(state);
    }
}
