//! Reads an artifact and its signatures from a registry, or from a mirror of it.

use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_spec::{Digest, PinnedReference};

use crate::artifact::{self, ArtifactError, Parsed};
use crate::client::{Access, ManifestName, Repository};
use crate::error::Problem;
use crate::job::PullJob;
use crate::layout::Layout;
use crate::manifest::{Descriptor, MANIFEST, Manifest};
use crate::signature::{BUNDLE, signature_tag};

/// What is reported while a module is pulled: a line of the child.
#[derive(Debug, Serialize, Deserialize)]
pub enum PullEvent {
    /// Bytes of the module that have arrived, and all.
    Progress(u64, u64),
    /// A part of the artifact or of the credential that is not used.
    Unused(String),
}

/// The most signatures of an artifact that are read.
const MAX_SIGNATURES: usize = 16;
/// The largest blob that is no module.
const MAX_SMALL: u64 = 1 << 20;

/// Reads an artifact from the first source that has it.
///
/// # Errors
/// What each source says, on one line.
pub(crate) async fn pull(job: &PullJob, mut event: impl FnMut(PullEvent)) -> Result<Layout, String> {
    let mut errors = Vec::new();
    let have = Layout::open(&job.destination).unwrap_or_default();
    for (endpoint, login) in &job.sources {
        let repository = Repository::new(endpoint, job.reference.reference().repository(), login, Access::Pull);
        let pulled = match &repository {
            Ok(repository) => {
                let puller = Puller { repository, have: &have, destination: &job.destination };
                let pulled = puller.pull(&job.reference, job.needs_signature, &mut event).await;
                if let Some(unused) = repository.unused().await.filter(|_| pulled.is_ok()) {
                    event(PullEvent::Unused(unused));
                }
                pulled
            }
            Err(error) => Err(Problem::Other(error.problem.to_string())),
        };
        match pulled {
            Ok(layout) => return Ok(layout),
            Err(problem) => errors.push(problem.at(&endpoint.to_string()).to_string()),
        }
    }
    Err(errors.join("; "))
}

struct Puller<'a> {
    repository: &'a Repository,
    have: &'a Layout,
    destination: &'a Path,
}

impl Puller<'_> {
    async fn pull(
        &self,
        reference: &PinnedReference,
        needs_signature: bool,
        event: &mut impl FnMut(PullEvent),
    ) -> Result<Layout, Problem> {
        let mut layout = Layout::default();
        let bytes = self.repository.manifest(&ManifestName::Digest(reference.digest())).await?;
        let mut parsed = artifact::parse(&bytes)?;
        layout.add_manifest(&media_type(&bytes), bytes, reference.reference().tag());
        if let Parsed::Index { module, unused } = parsed {
            unused.into_iter().for_each(|unused| event(PullEvent::Unused(unused)));
            let bytes = self.repository.manifest(&ManifestName::Digest(module)).await?;
            parsed = artifact::parse(&bytes)?;
            layout.add_manifest(&media_type(&bytes), bytes, None);
        }
        let Parsed::Module(manifest) = parsed else {
            return Err(ArtifactError::Manifest("an index names another index".to_owned()).into());
        };
        let (layer, digest) = artifact::layer(&manifest)?;
        let size = u64::try_from(layer.size).unwrap_or(0);
        layout.add(self.blob(digest, size, |got, all| event(PullEvent::Progress(got, all))).await?);
        layout.add(self.small(&manifest.config).await?);
        match self.signatures(reference.digest(), &mut layout).await {
            Err(problem) if needs_signature => Err(problem),
            _ => Ok(layout),
        }
    }

    async fn blob(&self, digest: Digest, size: u64, progress: impl FnMut(u64, u64)) -> Result<Bytes, Problem> {
        if let Some(blob) = self.have.blob(&digest) {
            return Ok(blob.clone());
        }
        // A partial blob is not taken for the beginning of another one.
        let part = self.destination.with_extension(format!("{}.blob", digest.hex()));
        self.repository.blob(digest, size, &part, progress).await
    }

    async fn small(&self, blob: &Descriptor) -> Result<Bytes, Problem> {
        let digest = artifact::digest(&blob.digest)?;
        let size = u64::try_from(blob.size).ok().filter(|size| *size <= MAX_SMALL);
        let size =
            size.ok_or_else(|| Problem::Other(format!("{digest} has {} bytes, more than {MAX_SMALL}", blob.size)))?;
        if size == 0 {
            return Ok(Bytes::new());
        }
        self.blob(digest, size, |_, _| {}).await
    }

    /// Reads signatures of both kinds: bundles that refer to the artifact, and those under a tag.
    async fn signatures(&self, artifact: Digest, layout: &mut Layout) -> Result<(), Problem> {
        let referrers = self.repository.referrers(artifact).await?;
        let is_bundle = |kind: &Option<String>| kind.as_deref().is_some_and(|kind| kind.starts_with(BUNDLE));
        let bundles = referrers.manifests.iter().filter(|entry| is_bundle(&entry.artifact_type));
        for entry in bundles.take(MAX_SIGNATURES) {
            let name = ManifestName::Digest(artifact::digest(&entry.digest)?);
            self.signature(name, None, layout).await?;
        }
        let tag = signature_tag(artifact);
        match self.signature(ManifestName::Tag(tag.clone()), Some(&tag), layout).await {
            Err(problem) if problem.is_not_found() => Ok(()),
            result => result,
        }
    }

    async fn signature(&self, name: ManifestName, tag: Option<&str>, layout: &mut Layout) -> Result<(), Problem> {
        let bytes = self.repository.manifest(&name).await?;
        let manifest: Manifest = serde_json::from_slice(&bytes)
            .map_err(|error| ArtifactError::Manifest(format!("line {} column {}", error.line(), error.column())))?;
        for blob in manifest.layers.iter().take(MAX_SIGNATURES).chain([&manifest.config]) {
            layout.add(self.small(blob).await?);
        }
        layout.add_manifest(&media_type(&bytes), bytes, tag);
        Ok(())
    }
}

/// The media type that a manifest says of itself.
fn media_type(manifest: &[u8]) -> String {
    let value = serde_json::from_slice::<serde_json::Value>(manifest).unwrap_or_default();
    let text = value.get("mediaType").and_then(serde_json::Value::as_str);
    text.unwrap_or(MANIFEST).to_owned()
}
