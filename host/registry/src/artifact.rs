//! The artifact of a module, as the CNCF's TAG Runtime describes it (Wasm OCI Artifact): a manifest with a configuration and
//! one layer, which is the module.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use weir_spec::{Digest, MAX_MODULE};

use crate::layout::Layout;
use crate::manifest::{DOCKER_LIST, Descriptor, INDEX, MANIFEST, Manifest};

/// The configuration of the artifact.
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The module.
pub(crate) const WASM: &str = "application/wasm";
/// The module, as older tools call it.
const OLDER_WASM: &str = "application/vnd.wasm.content.layer.v1+wasm";

/// A module, and what its artifact says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The bytes.
    pub bytes: Bytes,
    /// Their digest.
    pub digest: Digest,
}

/// The kind of artifact of a manifest.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A module.
    Module(Manifest),
    /// Several platforms.
    Index {
        /// The one that is WebAssembly.
        module: Digest,
        /// Other WebAssembly manifests, if there are any.
        unused: Option<String>,
    },
}

/// What is common to manifests and indexes.
#[derive(Deserialize)]
struct Either {
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

/// Why an artifact is no module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The manifest is not readable.
    #[error("its manifest is not an OCI manifest: {0}")]
    Manifest(String),
    /// An index names no WebAssembly.
    #[error("it is an index of {0} platforms, and none of them is wasm")]
    NoPlatform(usize),
    /// There is not one module.
    #[error("it has {0} layers: a filter has one, of type {WASM}")]
    Layers(usize),
    /// The layer is something else.
    #[error("its layer is of type {0:?}: a filter is {WASM}")]
    LayerType(String),
    /// The module is too large.
    #[error("its module has {0} bytes, more than the limit of {MAX_MODULE}")]
    TooLarge(i64),
    /// A digest is not what digests are.
    #[error("its manifest names {0:?}, which is no SHA-256 digest")]
    Digest(String),
    /// A part is missing.
    #[error("{0} is missing")]
    Missing(Digest),
}

/// Reads a manifest.
pub(crate) fn parse(manifest: &[u8]) -> Result<Parsed, ArtifactError> {
    let parsed = serde_json::from_slice(manifest)
        .map_err(|error| ArtifactError::Manifest(format!("line {} column {}", error.line(), error.column())))?;
    match parsed {
        Either { config: Some(config), layers: Some(layers), .. } => Ok(Parsed::Module(Manifest { config, layers })),
        Either { manifests: Some(entries), .. } => of_index(&entries),
        _ => Err(ArtifactError::Manifest("it has neither layers nor manifests".to_owned())),
    }
}

/// Chooses the WebAssembly of an index. A filter is a component, which is `wasip2`; what is `wasip1` is none, in general.
fn of_index(entries: &[Descriptor]) -> Result<Parsed, ArtifactError> {
    let platform = |entry: &Descriptor| {
        entry.platform.as_ref().map(|platform| (platform.architecture.clone(), platform.os.clone()))
    };
    let mut wasm: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((platform(entry)?, entry)))
        .filter(|((architecture, _), _)| architecture == "wasm" || architecture == "wasm32")
        .map(|((_, os), entry)| (os, entry))
        .collect();
    wasm.sort_by_key(|(os, _)| match os.as_str() {
        "wasip2" => 0,
        "wasip1" => 2,
        _ => 1,
    });
    let Some(((os, module), others)) = wasm.split_first() else {
        return Err(ArtifactError::NoPlatform(entries.len()));
    };
    let others: Vec<_> = others.iter().map(|(os, entry)| format!("{} for {os:?}", entry.digest)).collect();
    let unused =
        (!others.is_empty()).then(|| format!("of its index the module for {os:?} is used, not {}", others.join(", ")));
    Ok(Parsed::Index { module: digest(&module.digest)?, unused })
}

/// Returns the one layer of a module's manifest, and its digest.
pub(crate) fn layer(manifest: &Manifest) -> Result<(&Descriptor, Digest), ArtifactError> {
    let [layer] = manifest.layers.as_slice() else { return Err(ArtifactError::Layers(manifest.layers.len())) };
    if layer.media_type != WASM && layer.media_type != OLDER_WASM {
        return Err(ArtifactError::LayerType(layer.media_type.chars().take(100).collect()));
    }
    if usize::try_from(layer.size).is_ok_and(|size| size <= MAX_MODULE) {
        Ok((layer, digest(&layer.digest)?))
    } else {
        Err(ArtifactError::TooLarge(layer.size))
    }
}

/// Parses a digest of a manifest.
pub(crate) fn digest(text: &str) -> Result<Digest, ArtifactError> {
    text.parse().map_err(|_| ArtifactError::Digest(text.chars().take(100).collect()))
}

/// Whether manifests of this type list others.
pub(crate) fn is_index(media_type: &str) -> bool {
    [INDEX, DOCKER_LIST].contains(&media_type)
}

/// Makes the artifact of a module. The same module gives the same artifact.
pub(crate) fn artifact(module: &Bytes) -> (Digest, Layout) {
    let layer = Digest::of(module);
    // As `wkg` writes it, without the component's exports and imports, which the module itself has.
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.to_string()],
    });
    let config = Bytes::from(config.to_string());
    let descriptor = |media_type: &str, bytes: &Bytes| json!({"mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len()});
    let manifest = Bytes::from(
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(WASM, module)],
        })
        .to_string(),
    );
    let mut layout = Layout::default();
    let digest = layout.add_manifest(MANIFEST, manifest, None);
    layout.add(config);
    layout.add(module.clone());
    (digest, layout)
}

impl Layout {
    /// Returns the module of an artifact. Everything in a layout has the digest that it is named by.
    ///
    /// # Errors
    /// The artifact is not here, or it is no module.
    pub fn module(&self, artifact: Digest) -> Result<Module, ArtifactError> {
        let blob = |digest: Digest| self.blob(&digest).ok_or(ArtifactError::Missing(digest));
        let manifest = match parse(blob(artifact)?)? {
            Parsed::Module(manifest) => manifest,
            Parsed::Index { module, .. } => match parse(blob(module)?)? {
                Parsed::Module(manifest) => manifest,
                Parsed::Index { .. } => return Err(ArtifactError::Manifest("an index names another index".to_owned())),
            },
        };
        let (_, digest) = layer(&manifest)?;
        Ok(Module { bytes: blob(digest)?.clone(), digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: Bytes = Bytes::from_static(b"\0asm module");

    fn of(manifest: &serde_json::Value) -> Result<Module, ArtifactError> {
        let mut layout = Layout::default();
        let digest = layout.add_manifest("", Bytes::from(manifest.to_string()), None);
        layout.add(MODULE);
        layout.module(digest)
    }

    fn manifest(layers: &serde_json::Value) -> serde_json::Value {
        let empty = Digest::of(b"{}").to_string();
        json!({"schemaVersion": 2, "config": {"mediaType": CONFIG, "digest": empty, "size": 2}, "layers": layers})
    }

    #[test]
    fn an_artifact_has_its_module() {
        let (digest, layout) = artifact(&MODULE);
        assert_eq!(artifact(&MODULE).0, digest, "it is reproducible");
        assert_eq!(layout.module(digest), Ok(Module { bytes: MODULE, digest: Digest::of(&MODULE) }));
        let older = json!([{"mediaType": OLDER_WASM, "digest": Digest::of(&MODULE).to_string(), "size": 12}]);
        assert_eq!(of(&manifest(&older)).unwrap().bytes, MODULE);
    }

    #[test]
    fn the_component_of_an_index_is_chosen_and_the_others_are_named() {
        let entry = |os: &str, architecture: &str| json!({"digest": Digest::of(os.as_bytes()).to_string(), "platform": {"os": os, "architecture": architecture}});
        let of = |entries: serde_json::Value| match parse(json!({"manifests": entries}).to_string().as_bytes()).unwrap()
        {
            Parsed::Index { module, unused } => (module, unused),
            Parsed::Module(_) => unreachable!(),
        };
        let wasip2 = Digest::of(b"wasip2");
        let both = of(json!([entry("linux", "amd64"), entry("wasip1", "wasm"), entry("wasip2", "wasm")]));
        assert_eq!(both.0, wasip2);
        let unused =
            format!("of its index the module for \"wasip2\" is used, not {} for \"wasip1\"", Digest::of(b"wasip1"));
        assert_eq!(both.1, Some(unused));
        assert_eq!(of(json!([entry("wasip2", "wasm32"), {"digest": "none"}])), (wasip2, None));
        assert_eq!(of(json!([entry("wasip1", "wasm"), entry("wasi", "wasm")])).0, Digest::of(b"wasi"));
        assert_eq!(of(json!([entry("wasip1", "wasm")])), (Digest::of(b"wasip1"), None));
    }

    #[test]
    fn other_content_is_reported() {
        let digest = Digest::of(&MODULE).to_string();
        let layer = |media_type: &str, digest: &str, size: i64| json!({"mediaType": media_type, "digest": digest, "size": size});
        let other = Digest::of(b"other");
        for (manifest, part) in [
            (manifest(&json!([])), "it has 0 layers".to_owned()),
            (manifest(&json!([layer(WASM, &digest, 1), layer(WASM, &digest, 1)])), "it has 2 layers".to_owned()),
            (manifest(&json!([layer("application/tar", &digest, 1)])), "\"application/tar\"".to_owned()),
            (manifest(&json!([layer(WASM, &digest, 1 << 40)])), "more than the limit".to_owned()),
            (manifest(&json!([layer(WASM, &digest, -1)])), "more than the limit".to_owned()),
            (manifest(&json!([layer(WASM, "sha512:00", 1)])), "no SHA-256 digest".to_owned()),
            (manifest(&json!([layer(WASM, &other.to_string(), 1)])), format!("{other} is missing")),
            (json!({"schemaVersion": 2, "manifests": []}), "index of 0 platforms".to_owned()),
            (json!({"schemaVersion": 1}), "not an OCI manifest".to_owned()),
        ] {
            let error = of(&manifest).unwrap_err().to_string();
            assert!(error.contains(&part), "{manifest}: {error}");
        }
    }
}
