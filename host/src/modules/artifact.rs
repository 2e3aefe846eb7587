//! Modules in registries, by the digest of their manifest. A copy counts wherever it is, as digests and signatures are checked
//! here: in the modules directory (`weir save` writes it), in the cache, at a peer. Only then a registry is asked.

use std::path::PathBuf;
use std::time::Duration;

use super::cache::layout_file;
use super::peer::of_peer;
use super::{FoundModule, Modules};
use weir_process::files;
use weir_registry::signature::SignaturePolicy;
use weir_registry::{Credentials, Layout, LayoutError, PullEvent, PullJob, Registries};
use weir_spec::PinnedReference;
use weir_upstream::error_report;

/// The time for all peers together to give a module. Then the registry is asked, whatever they say.
const ALL_PEERS: Duration = Duration::from_secs(30);

impl Modules {
    pub(super) async fn artifact(
        &self,
        reference: &PinnedReference,
        policy: Option<&SignaturePolicy>,
        progress: impl Fn(String),
    ) -> Result<FoundModule, String> {
        let failed = |reason: String| format!("module {reference}: {reason}");
        let mut refused = None;
        let files = [
            self.directory.as_deref().map(|folder| layout_file(folder, reference.digest())),
            self.cache.as_ref().map(|cache| cache.layout_file(reference.digest())),
        ];
        for file in files.into_iter().flatten() {
            let from = file.display().to_string();
            let opened = open(file).await;
            let is_news = self.told.is_news(&from, opened.is_err());
            match opened {
                Ok(Some(layout)) => match found(&layout, reference, policy, from.clone()) {
                    Ok(found) => return Ok(found),
                    // A registry may have the signature by now.
                    Err(reason) => refused = Some(format!("{from}: {reason}")),
                },
                Err(error) if is_news => {
                    tracing::warn!(path = from, %error, "a copy of a module is not readable, and does not count")
                }
                Ok(None) | Err(_) => {}
            }
        }
        let of_peers = tokio::time::timeout(ALL_PEERS, self.of_peers(reference, policy)).await;
        if self.told.is_news(&format!("peers {reference}"), of_peers.is_err()) {
            tracing::warn!(%reference, time = ?ALL_PEERS, "no peer has given the module in time, it is pulled");
        }
        if let Ok(Some(found)) = of_peers {
            return Ok(found);
        }
        match self.pulled(reference, policy, progress).await {
            Ok(found) => Ok(found),
            Err(reason) => Err(failed(match refused {
                Some(refused) => format!("{reason} ({refused})"),
                None => reason,
            })),
        }
    }

    async fn of_peers(&self, reference: &PinnedReference, policy: Option<&SignaturePolicy>) -> Option<FoundModule> {
        let order = self.peers.order_for(&reference.digest().to_string());
        for (place, peer) in order.peers.iter().enumerate() {
            // One node pulls for the pool: it is the first of the order that answers. The others wait for it.
            let layout = match of_peer(peer, reference.digest(), place < order.before).await {
                Ok(layout) => layout,
                Err(reason) => {
                    tracing::debug!(peer = %peer.node(), %reference, reason, "a peer does not have the module");
                    continue;
                }
            };
            match found(&layout, reference, policy, format!("peer {}", peer.node())) {
                Ok(found) => {
                    self.keep(reference, layout).await;
                    return Some(found);
                }
                Err(reason) => tracing::debug!(peer = %peer.node(), %reference, reason, "a peer's copy does not count"),
            }
        }
        None
    }

    async fn keep(&self, reference: &PinnedReference, layout: Layout) {
        let Some(cache) = self.cache.clone() else { return };
        let digest = reference.digest();
        let (folder, path) = (cache.folder().to_owned(), cache.layout_file(digest));
        let kept = files::writing(&folder, move || cache.keep_layout(digest, &layout)).await;
        let is_news = self.told.is_news(&format!("keep {}", path.display()), kept.is_err());
        if let Err(error) = kept
            && is_news
        {
            tracing::warn!(path = %path.display(), %error, %reference, "a module cannot be kept in the cache");
        }
    }

    async fn pulled(
        &self,
        reference: &PinnedReference,
        policy: Option<&SignaturePolicy>,
        progress: impl Fn(String),
    ) -> Result<FoundModule, String> {
        let layout = self.pull(reference, policy, progress).await?;
        found(&layout, reference, policy, reference.reference().registry().to_owned())
    }

    /// Pulls an artifact with its signatures, which are not checked. What has arrived before a failure is not pulled again.
    ///
    /// # Errors
    /// What each address of the registry says.
    pub(crate) async fn pull(
        &self,
        reference: &PinnedReference,
        policy: Option<&SignaturePolicy>,
        progress: impl Fn(String),
    ) -> Result<Layout, String> {
        let temporary;
        let destination = match &self.cache {
            Some(cache) => cache.layout_file(reference.digest()),
            None => {
                temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
                layout_file(temporary.path(), reference.digest())
            }
        };
        let job = self.job(reference, policy, destination.clone()).await?;
        let _pulling = self.cache.as_ref().map(|cache| cache.begin_pull(reference.digest()));
        progress("pulling".to_owned());
        job.run(|event| match event {
            PullEvent::Progress(got, all) => {
                if let Some(percent) = got.saturating_mul(100).checked_div(all) {
                    progress(format!("pulling {percent} %"));
                }
            }
            PullEvent::Unused(what) => tracing::info!(%reference, what, "not used while a module was pulled"),
        })
        .await?;
        let layout = open(destination).await.map_err(|error| format!("what was pulled: {error}"))?;
        let layout = layout.ok_or("what was pulled is gone")?;
        tracing::info!(module = %reference, "module pulled");
        Ok(layout)
    }

    async fn job(
        &self,
        reference: &PinnedReference,
        policy: Option<&SignaturePolicy>,
        destination: PathBuf,
    ) -> Result<PullJob, String> {
        let (registries, credentials) = self.registries().await?;
        let name = reference.reference();
        let endpoints = registries.endpoints(name.registry());
        let endpoints = endpoints.map_err(|error| format!("--registries: {}", error_report(&error)))?;
        let with_login = |endpoint: weir_registry::Endpoint| {
            let login = credentials.login(&endpoint.host, &endpoint.repository(name.repository()));
            (endpoint, login)
        };
        Ok(PullJob {
            reference: reference.clone(),
            sources: endpoints.into_iter().map(with_login).collect(),
            needs_signature: policy.is_some_and(|policy| policy.needs_signature(reference)),
            destination,
        })
    }

    /// Reads how registries are reached.
    ///
    /// # Errors
    /// A file is not usable.
    pub(crate) async fn registries(&self) -> Result<(Registries, Credentials), String> {
        let registries = self.settings("--registries", self.trust.registries.registries.as_deref()).await?;
        let registries = registries.as_deref().map(Registries::parse).transpose();
        let mut credentials = Credentials::default();
        for path in &self.trust.registries.registry_auth {
            let Some(text) = self.settings("--registry-auth", Some(path)).await? else { continue };
            let parsed = Credentials::parse(&text);
            credentials.add(parsed.map_err(|error| format!("--registry-auth {}: {error}", path.display()))?);
        }
        Ok((registries.map_err(|error| format!("--registries: {error}"))?.unwrap_or_default(), credentials))
    }
}

/// Reads a layout; `None` if there is no such file.
async fn open(path: PathBuf) -> Result<Option<Layout>, LayoutError> {
    let place = files::folder_of(&path).to_owned();
    match files::at(&place, files::DEADLINE, move || Ok(Layout::open(&path))).await? {
        Ok(layout) => Ok(Some(layout)),
        Err(LayoutError::File(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the module of a layout, if it counts.
pub(crate) fn found(
    layout: &Layout,
    reference: &PinnedReference,
    policy: Option<&SignaturePolicy>,
    from: String,
) -> Result<FoundModule, String> {
    let module = layout.module(reference.digest()).map_err(|error| error.to_string())?;
    if let Some(policy) = policy {
        policy.check_artifact(reference, layout).map_err(|error| error.to_string())?;
    }
    Ok(FoundModule { bytes: module.bytes, from })
}
