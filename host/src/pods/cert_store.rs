//! Stores the serving certificate and the key of an open request across restarts.
//!
//! One file holds the certificate chain with its key, another the key of the request. Files are replaced atomically, and
//! only the daemon's user can read them. Lines before them name the node, because the disk of a node may be a copy of another
//! one's, and the CA bundle of the cluster for which the chain was issued or verified.

use std::io;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use weir_front::Subject;
use weir_process::files;
use weir_upstream::CertificateInfo;

/// The file names in the cache directory.
pub(crate) const CERTIFICATE: &str = "serving-certificate.pem";
pub(crate) const PENDING_KEY: &str = "serving-certificate-request.pem";
/// The lines before the first part.
const NODE: &str = "node: ";
const CA: &str = "ca: ";
/// The longest of them in bytes.
const MAX: usize = 1 << 20;

/// A certificate chain with its private key.
#[derive(Debug)]
pub(super) struct KeyAndChain {
    /// The chain, with the serving certificate first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub(super) key: PrivateKeyDer<'static>,
    /// Names and validity of the serving certificate.
    pub(super) info: CertificateInfo,
    /// The digest of the CA bundle for which it was issued.
    pub(super) ca: Option<String>,
    pem: String,
}

/// The store in the cache directory.
#[derive(Debug)]
pub(super) struct CertStore {
    pub(super) path: PathBuf,
    pub(super) pending: PathBuf,
    node: String,
}

/// The text is not a key and a certificate chain.
#[derive(Debug, thiserror::Error)]
pub(super) enum PemError {
    /// The text is not PEM, or a part is missing.
    #[error("not a PEM file with a key and a certificate")]
    Pem(#[source] pem::Error),
    /// The certificate is not valid X.509.
    #[error("the certificate is not valid")]
    Certificate,
}

impl KeyAndChain {
    /// Parses a PEM text with key and chain, in any order.
    pub(super) fn from_pem(pem: String) -> Result<Self, PemError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(PemError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(PemError::Pem)?;
        let first = chain.first().ok_or(PemError::Pem(pem::Error::NoItemsFound))?;
        let info = CertificateInfo::of(first).ok_or(PemError::Certificate)?;
        Ok(Self { chain, key, info, ca: line(&pem, CA).map(str::to_owned), pem })
    }
}

impl CertStore {
    /// Creates a store in a directory, which may not exist yet.
    pub(super) fn new(cache: &Path, node: &str) -> Self {
        Self { path: cache.join(CERTIFICATE), pending: cache.join(PENDING_KEY), node: node.to_owned() }
    }

    /// Loads the stored certificate. Returns `None` if there is none, and logs one that is not usable.
    pub(super) async fn load(&self) -> Option<KeyAndChain> {
        let text = match read_text(&self.path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot read the stored serving certificate");
                return None;
            }
        };
        let pair = KeyAndChain::from_pem(text)
            .inspect_err(|error| {
                tracing::warn!(path = %self.path.display(), %error, "stored serving certificate is not usable");
            })
            .ok()?;
        // Older releases wrote no lines. The signer for kubelets puts the node into the subject.
        let subject = pair.chain.first().and_then(Subject::of);
        let of = line(&pair.pem, NODE).or_else(|| subject.as_ref()?.user.strip_prefix("system:node:"));
        self.is_own(&self.path, of).then_some(pair)
    }

    /// Whether a key is of this node. Two nodes share none.
    fn is_own(&self, path: &Path, of: Option<&str>) -> bool {
        let is_own = of.is_none_or(|node| node == self.node);
        if !is_own {
            tracing::warn!(path = %path.display(), node = of, "the key on disk is another node's, it is not used: another one is made");
        }
        is_own
    }

    /// Replaces the stored certificate.
    pub(super) async fn store(&self, pair: &KeyAndChain) -> io::Result<()> {
        let pem = pair.pem.find("-----BEGIN").and_then(|begin| pair.pem.get(begin..)).unwrap_or_default();
        let ca = pair.ca.as_ref().map(|ca| format!("{CA}{ca}\n")).unwrap_or_default();
        files::replace(&self.path, format!("{NODE}{}\n{ca}{pem}", self.node).into_bytes()).await
    }

    /// Loads the key of the certificate request that an earlier run left open. Logs a key that is not usable.
    pub(super) async fn pending(&self) -> Option<KeyPair> {
        let text = read_text(&self.pending).await.ok()?;
        if !self.is_own(&self.pending, line(&text, NODE)) {
            return None;
        }
        KeyPair::from_pem(&text)
            .inspect_err(|error| {
                tracing::warn!(path = %self.pending.display(), %error, "stored key of the certificate request is not usable");
            })
            .ok()
    }

    /// Stores the key of a request before the request is created.
    pub(super) async fn store_pending(&self, key: &KeyPair) -> io::Result<()> {
        files::replace(&self.pending, format!("{NODE}{}\n{}", self.node, key.serialize_pem()).into_bytes()).await
    }

    /// Removes that key once the request is decided.
    pub(super) async fn remove_pending(&self) {
        let path = self.pending.clone();
        let removed =
            files::at(files::folder_of(&self.pending), files::DEADLINE, move || files::remove_now(&path)).await;
        if let Err(error) = removed {
            tracing::warn!(path = %self.pending.display(), %error, "cannot remove the key of a decided certificate request");
        }
    }
}

/// The rest of a line that begins so, before the first part of a PEM text.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().take_while(|line| !line.starts_with("-----")).find_map(|line| line.strip_prefix(name))
}

async fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(files::read(path, MAX).await?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn pair(name: &str) -> KeyAndChain {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        KeyAndChain::from_pem(signing_key.serialize_pem() + &cert.pem()).unwrap()
    }

    #[tokio::test]
    async fn only_the_daemon_can_read_the_certificate_and_it_is_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertStore::new(&folder.path().join("new"), "edge-a");
        assert!(store.load().await.is_none());
        for name in ["a", "b"] {
            let stored = pair(name);
            store.store(&stored).await.unwrap();
            let loaded = store.load().await.unwrap();
            assert_eq!((loaded.chain, loaded.key, loaded.info), (stored.chain, stored.key, stored.info));
            assert_eq!(std::fs::metadata(&store.path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn only_the_daemon_can_read_the_pending_key_until_the_request_is_decided() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertStore::new(&folder.path().join("new"), "edge-a");
        assert!(store.pending().await.is_none());
        store.remove_pending().await;
        let key = KeyPair::generate().unwrap();
        store.store_pending(&key).await.unwrap();
        assert_eq!(store.pending().await.unwrap().serialize_pem(), key.serialize_pem());
        assert_eq!(std::fs::metadata(&store.pending).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&store.pending, "no key").unwrap();
        assert!(store.pending().await.is_none());
        store.remove_pending().await;
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_copy_of_another_nodes_disk_has_no_key_for_this_node() {
        let folder = tempfile::tempdir().unwrap();
        let (own, copy) = (CertStore::new(folder.path(), "edge-a"), CertStore::new(folder.path(), "edge-b"));
        own.store(&KeyAndChain { ca: Some("digest".to_owned()), ..pair("a") }).await.unwrap();
        own.store_pending(&KeyPair::generate().unwrap()).await.unwrap();
        assert!(own.load().await.unwrap().ca.is_some_and(|ca| ca == "digest") && own.pending().await.is_some());
        assert!(copy.load().await.is_none() && copy.pending().await.is_none());
        // Older releases did not write whose they are.
        std::fs::write(&own.path, pair("a").pem).unwrap();
        assert!(copy.load().await.is_some());
    }

    #[tokio::test]
    async fn an_invalid_certificate_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertStore::new(folder.path(), "edge-a");
        let whole = pair("a").pem;
        for text in ["", "no PEM", whole.split("-----BEGIN CERTIFICATE").next().unwrap()] {
            std::fs::write(&store.path, text).unwrap();
            assert!(store.load().await.is_none(), "{text}");
        }
    }
}
