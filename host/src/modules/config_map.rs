//! Modules in ConfigMaps of their own. One is read once: the cache has it by its digest, so that a change of the configuration
//! sends no module again.

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use weir_process::files;

use super::{FoundModule, Modules};
use crate::unpack::unpacked;
use weir_spec::{Digest, FilterEntry, ObjectName};
use weir_upstream::error_report;

impl Modules {
    /// Returns the module in a ConfigMap. The configuration names its digest, too.
    pub(super) async fn config_map(&self, entry: &FilterEntry, name: &ObjectName) -> Result<FoundModule, String> {
        let Some(digest) = entry.digest else { return Err(format!("module configmap://{name} needs a `digest`")) };
        if let Some(bytes) = self.cached_module(digest).await {
            return Ok(FoundModule { bytes, from: "cache".to_owned() });
        }
        let failed = |reason: String| format!("module configmap://{name}: {reason}");
        let Some((client, namespace)) = &self.config_maps else {
            return Err(failed("there is no namespace to read it from: the configuration is a file".to_owned()));
        };
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let found = api.get_opt(&name.to_string()).await.map_err(|error| failed(error_report(&error)))?;
        let map = found.ok_or_else(|| failed(format!("there is none in namespace {namespace}")))?;
        let mut values: Vec<_> = map.binary_data.unwrap_or_default().into_values().collect();
        let (Some(packed), true) = (values.pop(), values.is_empty()) else {
            return Err(failed("its binaryData must have one key, with the module".to_owned()));
        };
        let bytes =
            unpacked(Bytes::from(packed.0)).map_err(|error| failed(format!("it cannot be unpacked: {error}")))?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(failed(format!("it has the digest {found}, and the configuration names {digest}")));
        }
        self.cache_module(digest, &bytes);
        Ok(FoundModule { bytes, from: format!("ConfigMap {namespace}/{name}") })
    }

    pub(super) async fn cached_module(&self, digest: Digest) -> Option<Bytes> {
        let cache = self.cache.clone()?;
        let folder = cache.folder().to_owned();
        let read = move || Ok(cache.module(digest));
        files::at(&folder, files::DEADLINE, read).await.ok()?
    }

    /// Keeps a module. Nobody waits for it: a disk may hang.
    pub(super) fn cache_module(&self, digest: Digest, module: &Bytes) {
        let Some(cache) = self.cache.clone() else { return };
        let (module, path) = (module.clone(), cache.module_file(digest));
        files::begin(&path, "a module cannot be kept in the cache: it will be read again", move || {
            cache.keep_module(digest, &module)
        });
    }
}
