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

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kube::Client;

pub(crate) use self::artifact::found;
pub use self::cache::ModuleCache;
pub(crate) use self::cache::{Arrival, layout_file};
pub(crate) use self::peer::{PEER_MODULES, WAIT};
use crate::bounded_file::read_file;
use crate::config::{Configuration, TrustFlags};
use crate::unpack::unpacked;
use weir_kube::utf8;
use weir_registry::signature::SignaturePolicy;
use weir_runtime::{Digest, Filter, FilterEntry, MAX_MODULE, ModuleSource};
use weir_store::Peers;

/// The largest file of settings in bytes.
const MAX_SETTINGS: usize = 4 << 20;
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
    /// Whether modules of the directory are kept in the cache, for the last good configuration.
    pub keeps_files: bool,
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
        let retained = tokio::task::spawn_blocking(move || kept.retain(&digests)).await;
        if let Err(error) = retained.map_err(std::io::Error::other).flatten() {
            tracing::warn!(path = %cache.folder().display(), %error, "modules that are not in use cannot be dropped from the cache");
        }
    }

    /// Files whose change may make a refused module acceptable.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.trust.files()
    }

    /// Reads the signature policy, if there is one.
    ///
    /// # Errors
    /// The file is not usable.
    pub(crate) async fn policy(&self) -> Result<Option<SignaturePolicy>, String> {
        let Some(text) = read_settings("--signature-policy", self.trust.signature_policy.clone()).await? else {
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
            let packed = bytes.clone();
            let unpacked = tokio::task::spawn_blocking(move || unpacked(packed)).await.map_err(std::io::Error::other);
            let unreadable = |error| format!("module {name} in binaryData cannot be unpacked: {error}");
            let bytes = unpacked.flatten().map_err(unreadable)?;
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
        let read = tokio::task::spawn_blocking(move || unpacked(read_file(&path, MAX_MODULE)?.into())).await;
        let bytes = read.map_err(std::io::Error::other).flatten();
        let unreadable = |error| format!("module {name} is not in binaryData, and {from} cannot be read: {error}");
        let bytes = bytes.map_err(unreadable)?;
        Ok((FoundModule { bytes, from }, format!("file://{name}")))
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

/// Reads a file of settings, if there is one.
async fn read_settings(flag: &str, path: Option<PathBuf>) -> Result<Option<String>, String> {
    let Some(path) = path else { return Ok(None) };
    let shown = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || read_file(&path, MAX_SETTINGS)).await;
    let bytes = read.map_err(std::io::Error::other).flatten();
    let bytes = bytes.map_err(|error| format!("{flag} {shown} cannot be read: {error}"))?;
    let text = utf8(&bytes).map_err(|reason| format!("{flag} {shown}: {reason}"))?;
    Ok(Some(text.to_owned()))
}
