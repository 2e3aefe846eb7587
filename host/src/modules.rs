//! The modules that a configuration names: the bytes, from wherever they are, after their digests and signatures have been
//! checked.
//!
//! ```text
//! NAME.wasm         binaryData ─► cache, for the last good configuration ─► modules directory
//! configmap://NAME  cache ─► ConfigMap
//! oci://NAME@DIGEST modules directory ─► cache ─► peers ─► registry and its mirrors
//! ```
//!
//! The files of [`TrustFlags`] are read each time, so that a renewed credential or another policy counts at the next reload.

mod artifact;
mod cache;
mod config_map;
mod peer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube::Client;

pub(crate) use self::artifact::found;
pub use self::cache::ModuleCache;
pub(crate) use self::cache::{Arrival, layout_file};
pub(crate) use self::peer::{PEER_MODULES, WAIT};
use crate::config::{Configuration, TrustFlags};
use crate::logging::Told;
use crate::unpack::unpacked;
use weir_kube::utf8;
use weir_process::{FileRead, WatchedFiles, files};
use weir_registry::signature::SignaturePolicy;
use weir_runtime::Filter;
use weir_spec::{Digest, FilterEntry, MAX_MODULE, ModuleSource};
use weir_store::Peers;

/// The largest file of settings in bytes.
const MAX_SETTINGS: usize = 4 << 20;
/// How long a module waits for who is writing it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The name under which `binaryData` of the configuration's own ConfigMap stands in the signature policy. No ConfigMap has it.
const OWN: &str = "configmap://binaryData";

/// Where modules come from.
#[derive(Default)]
pub struct Modules {
    /// The directory of modules.
    pub directory: Option<PathBuf>,
    /// How registries are reached, and what is trusted.
    pub trust: TrustFlags,
    /// What has been read once.
    pub cache: Option<Arc<ModuleCache>>,
    /// The namespace of ConfigMaps with modules, and who reads them.
    pub config_maps: Option<(Client, String)>,
    /// The other Weirs of the pool.
    pub peers: Peers,
    /// Follows the files of all that, and reads them.
    pub files: WatchedFiles,
    /// Whether modules of the directory are kept in the cache, for the last good configuration.
    pub keeps_files: bool,
    /// What the log has said of all that.
    pub(crate) told: Told,
}

/// A module.
#[derive(Debug)]
pub(crate) struct FoundModule {
    pub(crate) bytes: Bytes,
    /// Where it was.
    pub(crate) from: String,
}

impl Modules {
    /// Returns the module of an entry. Cancel-safe. `progress` is told how far a pull is.
    ///
    /// # Errors
    /// A message for the operator: where it is not, or why it does not count.
    pub(crate) async fn read(
        &self,
        entry: &FilterEntry,
        configuration: &Configuration,
        progress: impl Fn(String),
    ) -> Result<FoundModule, String> {
        let policy = self.policy().await?;
        let policy = policy.as_ref();
        let (found, place) = match &entry.module {
            ModuleSource::Oci(reference) => return self.artifact(reference, policy, progress).await,
            ModuleSource::ConfigMap(name) => (self.config_map(entry, name).await?, entry.module.to_string()),
            ModuleSource::File(name) => self.file(entry, name.as_str(), configuration).await?,
        };
        if let Some(policy) = policy {
            let checked = policy.check_bytes(&place, &found.bytes, entry.signature.as_deref());
            checked.map_err(|error| format!("module {}: {error}", entry.module))?;
        }
        Ok(found)
    }

    /// Keeps the module of a filter that works in the cache, if it is a file: an upgrade replaces the directory.
    pub(crate) async fn keep_file(
        &self,
        entry: &FilterEntry,
        configuration: &Configuration,
        digest: Digest,
        module: &Bytes,
    ) {
        let ModuleSource::File(name) = &entry.module else { return };
        if self.keeps_files
            && !configuration.binary_data.contains_key(name.as_str())
            && self.cached_module(digest).await.is_none()
        {
            self.cache_module(digest, module);
        }
    }

    /// Keeps the modules of these configurations and filters in the cache. Others may be dropped.
    pub(crate) async fn retain<'a>(
        &self,
        configurations: impl IntoIterator<Item = &'a Configuration>,
        filters: &[Arc<Filter>],
    ) {
        let Some(cache) = self.cache.clone() else { return };
        let mut digests: Vec<_> = filters.iter().map(|filter| *filter.digest()).collect();
        for configuration in configurations {
            digests.extend(configuration.filters.iter().filter_map(kept_as));
            digests.extend(configuration.kept.values().map(|kept| kept.digest));
        }
        let kept = cache.clone();
        files::begin(
            &cache.folder().join("unused"),
            "modules that are not in use cannot be dropped from the cache",
            move || kept.retain(&digests),
        );
    }

    /// Follows what these filters are made of, apart from what has a digest: their files, and those that may make a refused module
    /// acceptable. What else is in a folder, such as a log, is of no interest.
    pub(crate) fn follow(&self, source: Option<(PathBuf, usize)>, configuration: Option<&Configuration>) {
        let settings = self.trust.files().map(|path| (path.clone(), MAX_SETTINGS));
        let mut files: Vec<_> = source.into_iter().chain(settings).collect();
        if let (Some(directory), Some(configuration)) = (&self.directory, configuration) {
            files.extend(configuration.filters.iter().filter_map(|entry| match &entry.module {
                ModuleSource::File(name) if configuration.binary_data.contains_key(name.as_str()) => None,
                ModuleSource::File(name) => Some((directory.join(name.as_str()), MAX_MODULE)),
                ModuleSource::Oci(reference) => Some((layout_file(directory, reference.digest()), 0)),
                ModuleSource::ConfigMap(_) => None,
            }));
        }
        self.files.follow(files);
    }

    /// Reads the signature policy, if there is one.
    ///
    /// # Errors
    /// The file is not usable.
    pub(crate) async fn policy(&self) -> Result<Option<SignaturePolicy>, String> {
        let Some(text) = self.settings("--signature-policy", self.trust.signature_policy.as_deref()).await? else {
            return Ok(None);
        };
        SignaturePolicy::parse(&text).map(Some).map_err(|error| format!("--signature-policy: {error}"))
    }

    /// Returns the module that an entry of the last good configuration had, if the cache has it.
    pub(crate) async fn kept(&self, entry: &FilterEntry, configuration: &Configuration) -> Option<Bytes> {
        self.cached_module(configuration.kept.get(&entry.name)?.digest).await
    }

    /// Returns a module by its file name, and its place for the signature policy.
    async fn file(
        &self,
        entry: &FilterEntry,
        name: &str,
        configuration: &Configuration,
    ) -> Result<(FoundModule, String), String> {
        if let Some(bytes) = configuration.binary_data.get(name) {
            let unreadable = |error| format!("module {name} in binaryData cannot be unpacked: {error}");
            let bytes = unpack(bytes.clone()).await.map_err(unreadable)?;
            return Ok((FoundModule { bytes, from: "binaryData".to_owned() }, format!("{OWN}/{name}")));
        }
        if let Some(bytes) = self.kept(entry, configuration).await {
            return Ok((FoundModule { bytes, from: "cache".to_owned() }, format!("file://{name}")));
        }
        let Some(directory) = &self.directory else {
            return Err(format!("module {name} is not in binaryData, and --modules-dir is not set"));
        };
        let path = directory.join(name);
        let from = path.display().to_string();
        let unreadable = |error| format!("module {name} is not in binaryData, and {from} cannot be read: {error}");
        let packed = self.settled(&path, MAX_MODULE).await.map_err(unreadable)?.into();
        let bytes = unpack(packed).await.map_err(unreadable)?;
        Ok((FoundModule { bytes, from }, format!("file://{name}")))
    }

    /// Reads a file that nobody is writing.
    async fn settled(&self, path: &Path, limit: usize) -> std::io::Result<Vec<u8>> {
        match self.files.read(path, limit, PATIENCE).await? {
            FileRead::Complete(bytes) => Ok(bytes),
            FileRead::BeingWritten => Err(std::io::Error::other("it is being written")),
        }
    }

    /// Reads a file of settings, if there is one.
    async fn settings(&self, flag: &str, path: Option<&Path>) -> Result<Option<String>, String> {
        let Some(path) = path else { return Ok(None) };
        let shown = path.display();
        let bytes = self.settled(path, MAX_SETTINGS).await;
        let bytes = bytes.map_err(|error| format!("{flag} {shown} cannot be read: {error}"))?;
        let text = utf8(&bytes).map_err(|reason| format!("{flag} {shown}: {reason}"))?;
        Ok(Some(text.to_owned()))
    }
}

/// The name of an entry's module in the cache.
fn kept_as(entry: &FilterEntry) -> Option<Digest> {
    match &entry.module {
        ModuleSource::Oci(reference) => Some(reference.digest()),
        ModuleSource::ConfigMap(_) => entry.digest,
        ModuleSource::File(_) => None,
    }
}

/// Unpacks a module, away from the threads that serve: it is the work of a second.
async fn unpack(packed: Bytes) -> std::io::Result<Bytes> {
    tokio::task::spawn_blocking(move || unpacked(packed)).await.map_err(std::io::Error::other)?
}
