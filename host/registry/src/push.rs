//! Writes artifacts to a registry.

use bytes::Bytes;
use weir_spec::{Digest, OciReference, PinnedReference};

use crate::artifact::{artifact, is_index};
use crate::client::{Access, ManifestName, Repository};
use crate::credentials::Login;
use crate::error::RegistryError;
use crate::hosts::Endpoint;
use crate::layout::Layout;

/// Where to push.
#[derive(Debug)]
pub struct Target<'a> {
    /// The name of the artifact. A digest in it is not used.
    pub reference: &'a OciReference,
    /// The address of its registry.
    pub endpoint: &'a Endpoint,
    /// The credential, which may be none.
    pub login: &'a Login,
}

/// What was pushed.
#[derive(Debug)]
pub struct Pushed {
    /// The name by which nodes can pull it.
    pub reference: PinnedReference,
    /// What of the credential the registry was not sent.
    pub unused: Option<String>,
}

/// Returns the name of what a tag names now; `latest` without a tag.
///
/// # Errors
/// The registry does not have it.
pub async fn resolve(target: &Target<'_>) -> Result<PinnedReference, RegistryError> {
    if let Some(digest) = target.reference.digest() {
        return Ok(target.reference.pinned(digest));
    }
    let repository = Repository::new(target.endpoint, target.reference.repository(), target.login, Access::Pull)?;
    let tag = target.reference.tag().unwrap_or("latest").to_owned();
    let manifest = repository.manifest(&ManifestName::Tag(tag)).await;
    Ok(target.reference.pinned(Digest::of(&manifest.map_err(|problem| problem.at(repository.host()))?)))
}

/// Pushes a module.
///
/// # Errors
/// The registry refuses it.
pub async fn push(target: &Target<'_>, module: &Bytes) -> Result<Pushed, RegistryError> {
    let (digest, layout) = artifact(module);
    push_layout(target, &layout, digest).await
}

/// Pushes an artifact with its signatures.
///
/// # Errors
/// The registry refuses it.
pub async fn push_layout(target: &Target<'_>, layout: &Layout, artifact: Digest) -> Result<Pushed, RegistryError> {
    let repository = Repository::new(target.endpoint, target.reference.repository(), target.login, Access::Push)?;
    for (digest, blob) in layout.blobs() {
        repository.push_blob(digest, blob.clone()).await.map_err(|problem| problem.at(repository.host()))?;
    }
    // An index is accepted when what it lists is there.
    let (indexes, manifests): (Vec<_>, Vec<_>) =
        layout.manifests().partition(|(entry, ..)| is_index(&entry.media_type));
    for (entry, bytes, tag) in manifests.into_iter().chain(indexes) {
        let digest = Digest::of(bytes);
        let tag = if digest == artifact { target.reference.tag() } else { tag };
        let name = tag.map_or(ManifestName::Digest(digest), |tag| ManifestName::Tag(tag.to_owned()));
        let pushed = repository.push_manifest(&name, &entry.media_type, bytes.clone()).await;
        pushed.map_err(|problem| problem.at(repository.host()))?;
    }
    Ok(Pushed { reference: target.reference.pinned(artifact), unused: repository.unused().await })
}
