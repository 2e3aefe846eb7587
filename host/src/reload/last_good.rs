//! The last good configuration on disk: the ConfigMap or the manifest of the filter set that was activated last, modules in it
//! included, and the digests of all others, by which the cache has them. A daemon uses it that starts without the API server, or
//! with a configuration that it refuses: also after an upgrade, whose modules are others.
//!
//! It is there twice: in the cache on disk, and in a file of its own ([`FileCopy`]). What one of them has lost comes back from the
//! other.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use weir_store::disk::{CachedValue, DiskCache};

use super::file_copy::FileCopy;
use crate::config::{ConfigSource, Configuration, ConfigurationError, KeptModule};
use weir_runtime::Filter;
use weir_spec::FilterName;
use weir_upstream::clock;

/// A valid configuration, and where it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedConfiguration {
    configuration: Configuration,
    pub(super) origin: Origin,
}

/// Where a configuration was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Origin {
    /// A manifest file with this text.
    File(String),
    /// The API server; `None` if the ConfigMap does not exist.
    ApiServer(Option<Box<ConfigMap>>),
    /// The disk.
    Disk,
}

/// Where the last good configuration is kept.
#[derive(Debug, Clone)]
pub struct LastGood {
    disk: Arc<DiskCache>,
    copy: FileCopy,
    /// The name of the value.
    name: String,
    /// The name of the ConfigMap or of the file in messages.
    source: String,
}

/// The value on disk.
#[derive(Serialize, Deserialize)]
struct KeptConfiguration {
    /// The name of the value: another source has another configuration. Older releases kept none.
    #[serde(default)]
    name: String,
    /// The uid of the cluster's namespace kube-system, if it was known.
    #[serde(default)]
    cluster: Option<String>,
    activated: jiff::Timestamp,
    content: KeptContent,
    /// The filters that were active, by name. Older releases kept none.
    #[serde(default)]
    filters: BTreeMap<String, KeptFilter>,
}

/// What a filter was made of, apart from its entry.
#[derive(Serialize, Deserialize)]
struct KeptFilter {
    digest: String,
    rules: Vec<String>,
}

/// The content of a configuration.
#[derive(Serialize, Deserialize)]
enum KeptContent {
    /// `None` if the ConfigMap did not exist.
    ConfigMap(Option<Box<ConfigMap>>),
    /// The text of a file.
    Manifest(String),
}

impl SourcedConfiguration {
    /// Validates the text of a manifest file.
    pub(super) fn of_file(source: &str, text: String) -> Result<Self, ConfigurationError> {
        let configuration = Configuration::from_manifest(source, &text)?;
        Ok(Self { configuration, origin: Origin::File(text) })
    }

    /// Whether it is the last good configuration from disk.
    pub(super) fn is_from_disk(&self) -> bool {
        self.origin == Origin::Disk
    }

    /// The same to fall back to: what is tried and followed is the present one.
    pub(super) fn as_fallback(&self) -> Self {
        Self { configuration: self.configuration.clone(), origin: Origin::Disk }
    }

    /// Whether both are ConfigMaps of the API server with the same content.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.origin, &other.origin) {
            (Origin::ApiServer(Some(one)), Origin::ApiServer(Some(other))) => {
                one.data == other.data && one.binary_data == other.binary_data
            }
            (Origin::ApiServer(one), Origin::ApiServer(other)) => one.is_none() && other.is_none(),
            _ => false,
        }
    }

    /// Validates the ConfigMap of the API server; `None` if it does not exist.
    pub(super) fn of_api_server(source: &str, map: Option<ConfigMap>) -> Result<Self, ConfigurationError> {
        let configuration = validate(source, map.as_ref())?;
        Ok(Self { configuration, origin: Origin::ApiServer(map.map(Box::new)) })
    }
}

impl Deref for SourcedConfiguration {
    type Target = Configuration;

    fn deref(&self) -> &Configuration {
        &self.configuration
    }
}

impl LastGood {
    /// Creates the place of a source's configuration, in a cache on disk and in a directory.
    #[must_use]
    pub fn new(disk: Arc<DiskCache>, directory: &Path, source: &ConfigSource) -> Self {
        let name = match source {
            ConfigSource::ConfigMap { namespace, name } => format!("configuration/{namespace}/{name}"),
            ConfigSource::File(path) => format!("configuration/file/{}", path.display()),
        };
        Self { disk, copy: FileCopy::new(directory), name, source: source.to_string() }
    }

    /// The cache on disk.
    pub(super) fn disk(&self) -> Arc<DiskCache> {
        self.disk.clone()
    }

    /// Keeps the configuration of an activated filter set, unless it is from here. One that names no set says that there has been
    /// none: a start without the API server is ready then, too.
    pub(super) async fn keep(&self, activated: &SourcedConfiguration, filters: &[Arc<Filter>]) {
        // Only the content counts: names, versions and managed fields are of no use.
        let content = |map: &ConfigMap| {
            let (data, binary_data) = (map.data.clone(), map.binary_data.clone());
            Box::new(ConfigMap { data, binary_data, ..ConfigMap::default() })
        };
        let content = match &activated.origin {
            Origin::ApiServer(map) => KeptContent::ConfigMap(map.as_deref().map(content)),
            Origin::File(text) => KeptContent::Manifest(text.clone()),
            Origin::Disk => return,
        };
        let filters = filters.iter().map(|filter| (filter.entry().name.to_string(), KeptFilter::of(filter)));
        let (name, cluster) = (self.name.clone(), self.disk.cluster().await);
        let kept =
            KeptConfiguration { name, cluster, activated: clock::timestamp(), content, filters: filters.collect() };
        match serde_json::to_vec(&kept) {
            Ok(bytes) => {
                self.copy.write(bytes.clone());
                // An old one is better than none: without it nothing that filters match is served.
                self.disk.put(&self.name, CachedValue::lasting(bytes), false).await;
            }
            Err(error) => tracing::error!(%error, "the last good configuration cannot be kept on disk"),
        }
    }

    /// Waits until the copy is on disk.
    #[cfg(test)]
    pub(super) async fn written(&self) {
        self.copy.written().await;
    }

    /// The text of the file that it was read from.
    pub(super) async fn manifest(&self) -> Option<String> {
        match self.newest().await?.ok()?.content {
            KeptContent::Manifest(text) => Some(text),
            KeptContent::ConfigMap(_) => None,
        }
    }

    /// The last good configuration, with a warning that says why it is used; `None` if there is none.
    pub(super) async fn read(&self, reason: &str) -> Option<SourcedConfiguration> {
        self.valid(self.newest().await?, reason)
    }

    /// The same, if it names a set; otherwise that of another source.
    pub(super) async fn read_of_any(&self, reason: &str) -> Option<SourcedConfiguration> {
        let names_set = |found: &SourcedConfiguration| found.absent.is_none();
        if let Some(own) = self.read(reason).await.filter(names_set) {
            return Some(own);
        }
        let (copy, cluster) = (self.copy.read().await?, self.disk.cluster().await);
        let kept = KeptConfiguration::parse(&copy);
        let is_of_cluster = kept.as_ref().is_ok_and(|kept| kept.is_of(&kept.name, cluster.as_deref()));
        self.valid(kept, reason).filter(|found| is_of_cluster && names_set(found))
    }

    fn valid(&self, kept: Result<KeptConfiguration, String>, reason: &str) -> Option<SourcedConfiguration> {
        let read = kept.and_then(|kept| {
            let configuration = match kept.content {
                KeptContent::ConfigMap(map) => validate(&self.source, map.as_deref()),
                KeptContent::Manifest(text) => Configuration::from_manifest(&self.source, &text),
            };
            let mut configuration = configuration.map_err(|error| error.to_string())?;
            configuration.kept = kept.filters.iter().filter_map(|(name, filter)| filter.read(name)).collect();
            Ok((kept.activated, configuration))
        });
        match read {
            Ok((activated, mut configuration)) => {
                configuration.warnings.push(format!(
                    "{reason}: this is the last good configuration, activated {} ago, at {activated}",
                    age(activated)
                ));
                Some(SourcedConfiguration { configuration, origin: Origin::Disk })
            }
            Err(reason) => {
                tracing::error!(source = self.source, reason, "the last good configuration on disk is not usable");
                None
            }
        }
    }
}

impl LastGood {
    /// The newer one of both copies, which the other one becomes, too. `None` without any.
    async fn newest(&self) -> Option<Result<KeptConfiguration, String>> {
        let cached = self.disk.get(&self.name).await.map(|value| value.bytes);
        let (copy, cluster) = (self.copy.read().await, self.disk.cluster().await);
        let in_cache = cached.as_deref().map(KeptConfiguration::parse);
        // The cache knows what it is of. The file is there for all.
        let in_copy = copy.as_deref().and_then(|bytes| KeptConfiguration::parse(bytes).ok());
        let in_copy = in_copy.filter(|kept| kept.is_of(&self.name, cluster.as_deref()));
        let is_newer = match (&in_cache, &in_copy) {
            (Some(Ok(in_cache)), Some(in_copy)) => in_copy.activated > in_cache.activated,
            (_, in_copy) => in_copy.is_some(),
        };
        if is_newer {
            let name = &self.name;
            tracing::warn!(name, "the watch cache has lost the last good configuration, its copy is used");
            self.disk.put(name, CachedValue::lasting(copy?), false).await;
            return in_copy.map(Ok);
        }
        if let Some(cached) =
            cached.filter(|_| matches!(in_cache, Some(Ok(_)))).filter(|cached| copy.as_ref() != Some(cached))
        {
            self.copy.write(cached);
        }
        in_cache
    }
}

impl KeptConfiguration {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Whether it is of this source, and may be of this cluster.
    fn is_of(&self, name: &str, cluster: Option<&str>) -> bool {
        self.name == name && self.cluster.as_deref().zip(cluster).is_none_or(|(own, present)| own == present)
    }
}

impl KeptFilter {
    fn of(filter: &Filter) -> Self {
        let rules = filter.rules().iter().map(ToString::to_string).collect();
        Self { digest: filter.digest().to_string(), rules }
    }

    /// What is not valid counts as none: another release may have written it.
    fn read(&self, name: &str) -> Option<(FilterName, KeptModule)> {
        let rules = self.rules.iter().map(|rule| rule.parse().ok()).collect::<Option<_>>()?;
        Some((name.parse().ok()?, KeptModule { digest: self.digest.parse().ok()?, rules }))
    }
}

fn validate(source: &str, map: Option<&ConfigMap>) -> Result<Configuration, ConfigurationError> {
    match map {
        Some(map) => Configuration::from_config_map(source, map),
        None => Ok(Configuration::missing(source)),
    }
}

/// The time since then, in whole seconds; zero if the clock was set back.
fn age(then: jiff::Timestamp) -> String {
    let seconds = clock::timestamp().as_second().saturating_sub(then.as_second());
    format!("{:?}", Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
