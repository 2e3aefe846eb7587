//! Where the filters' configuration comes from: a ConfigMap, followed through the API, or the same manifest as a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::config::{ConfigSource, Configuration, ConfigurationError};
use weir_upstream::Tasks;

/// Largest manifest that is read, in bytes: a ConfigMap's limit is 1 MiB, base64 and indentation come on top.
const MANIFEST: u64 = 8 << 20;

/// Where to look.
#[derive(Clone)]
pub enum Place {
    /// The manifest as a file.
    File(PathBuf),
    /// A ConfigMap of the cluster.
    ConfigMap {
        /// Weir's own credential.
        client: Client,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What was found there.
#[derive(Debug, Clone)]
pub enum Found {
    /// Nothing is known yet: the API server was not reached.
    Nothing,
    /// A valid configuration. An absent ConfigMap is one without filters.
    Valid(Arc<Configuration>),
    /// Something that is no configuration.
    Invalid(Arc<ConfigurationError>),
    /// The file can't be read.
    Unreadable(Arc<str>),
}

impl Place {
    /// Where a source names; `client` has the daemon's own credential.
    #[must_use]
    pub fn of(source: ConfigSource, client: Client) -> Self {
        match source {
            ConfigSource::File(path) => Self::File(path),
            ConfigSource::ConfigMap { namespace, name } => Self::ConfigMap { client, namespace, name },
        }
    }

    /// For people: `ConfigMap kube-system/weir-filters`, or the file's path.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::ConfigMap { namespace, name, .. } => format!("ConfigMap {namespace}/{name}"),
        }
    }

    /// The directory whose changes may change the configuration.
    #[must_use]
    pub fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            }),
            Self::ConfigMap { .. } => None,
        }
    }

    /// Begins to follow a ConfigMap; for a file the channel holds `Nothing`, [`read`] is called on each notice instead.
    #[must_use]
    pub fn follow(&self, tasks: &Tasks) -> watch::Receiver<Found> {
        let (found, receiver) = watch::channel(Found::Nothing);
        if let Self::ConfigMap { client, namespace, name } = self {
            let api = Api::namespaced(client.clone(), namespace);
            tasks.spawn_until_stop(follow(api, name.clone(), self.name(), found));
        }
        receiver
    }
}

/// Reads a manifest file.
pub(super) async fn read(path: &Path) -> Found {
    let name = path.display().to_string();
    let unreadable = |reason: String| Found::Unreadable(format!("{name}: {reason}").into());
    match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.len() > MANIFEST => return unreadable(format!("larger than {MANIFEST} bytes")),
        Ok(_) => {}
        Err(error) => return unreadable(error.to_string()),
    }
    match tokio::fs::read_to_string(path).await {
        Err(error) => unreadable(error.to_string()),
        Ok(text) => found(Configuration::from_manifest(&name, &text)),
    }
}

fn found(configuration: Result<Configuration, ConfigurationError>) -> Found {
    match configuration {
        Ok(configuration) => Found::Valid(Arc::new(configuration)),
        Err(error) => Found::Invalid(Arc::new(error)),
    }
}

async fn follow(api: Api<ConfigMap>, name: String, place: String, out: watch::Sender<Found>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut events = watch_objects(api, config).default_backoff().into_stream().boxed();
    let mut listed = None;
    loop {
        let now = match events.try_next().await {
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(map))) => {
                listed = Some(map);
                continue;
            }
            Ok(Some(Event::InitDone)) => match listed.take() {
                Some(map) => found(Configuration::from_config_map(&place, &map)),
                None => Found::Valid(Arc::default()),
            },
            Ok(Some(Event::Apply(map))) => found(Configuration::from_config_map(&place, &map)),
            Ok(Some(Event::Delete(_))) => Found::Valid(Arc::default()),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(source = place, "the configuration can not be followed at present, retrying: {error}");
                // The stream backs off by itself; this only keeps a broken back-off from spinning.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        out.send_replace(now);
    }
}
