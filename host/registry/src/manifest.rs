//! Manifests and indexes of registries, as far as Weir reads them. Other fields are ignored: a digest covers them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// What docker calls a manifest.
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// What docker calls an index.
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A manifest: a configuration and layers.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Blob,
    pub(crate) layers: Vec<Blob>,
}

/// A blob that a manifest names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Blob {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: i64,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// An index: manifests for several platforms, or those that refer to an artifact.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Entry>,
}

/// A manifest that an index names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) digest: String,
    pub(crate) artifact_type: Option<String>,
    pub(crate) platform: Option<Platform>,
}

/// What a manifest is for.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
}
