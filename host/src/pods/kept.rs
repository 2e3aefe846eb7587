//! The serving certificate between two starts: one file with key and chain, and the key of a request that is still open.
//! Each file is replaced as a whole and readable by the daemon's user alone.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::proxy::Leaf;

/// Below the cache directory.
const NAME: &str = "serving-certificate.pem";
const PENDING: &str = "serving-certificate-request.pem";

/// A chain with its key.
#[derive(Debug)]
pub(super) struct Pair {
    /// The daemon's own certificate first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub(super) key: PrivateKeyDer<'static>,
    /// What the first certificate says.
    pub(super) leaf: Leaf,
    pem: String,
}

/// Where it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    pending: PathBuf,
}

/// A text that is not a key and a certificate chain.
#[derive(Debug, thiserror::Error)]
pub(super) enum PairError {
    /// Not PEM, or a part is missing.
    #[error("no key and certificate in PEM")]
    Pem(#[source] pem::Error),
    /// A certificate that can't be read.
    #[error("the certificate can not be read")]
    Certificate,
}

impl Pair {
    /// Key and chain, PEM, in any order.
    pub(super) fn from_pem(pem: String) -> Result<Self, PairError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(PairError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(PairError::Pem)?;
        let first = chain.first().ok_or(PairError::Pem(pem::Error::NoItemsFound))?;
        let leaf = Leaf::of(first).ok_or(PairError::Certificate)?;
        Ok(Self { chain, key, leaf, pem })
    }
}

impl Kept {
    pub(super) fn new(cache: &Path) -> Self {
        Self { path: cache.join(NAME), pending: cache.join(PENDING) }
    }

    /// What was kept; none if nothing was, or nothing of use, which is told.
    pub(super) fn load(&self) -> Option<Pair> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the kept serving certificate can not be read");
                return None;
            }
        };
        Pair::from_pem(text)
            .inspect_err(|error| {
                tracing::warn!(path = %self.path.display(), %error, "the kept serving certificate is of no use");
            })
            .ok()
    }

    /// Keeps it instead of the one before.
    pub(super) fn store(&self, pair: &Pair) -> io::Result<()> {
        replace(&self.path, &pair.pem)
    }

    /// The key of a certificate request that an earlier start left open. None if there is no such key, or no usable one.
    pub(super) fn pending(&self) -> Option<KeyPair> {
        let text = std::fs::read_to_string(&self.pending).ok()?;
        KeyPair::from_pem(&text)
            .inspect_err(|error| {
                tracing::warn!(path = %self.pending.display(), %error, "the key of the open certificate request is not usable");
            })
            .ok()
    }

    /// Keeps the key of a request that is about to be made.
    pub(super) fn store_pending(&self, key: &KeyPair) -> io::Result<()> {
        replace(&self.pending, &key.serialize_pem())
    }

    /// Forgets that key: the request is decided.
    pub(super) fn remove_pending(&self) {
        match std::fs::remove_file(&self.pending) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.pending.display(), %error, "the key of a decided certificate request can not be removed");
            }
            _ => {}
        }
    }
}

/// Writes a file of mode 0600 and renames it when it is whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn pair(name: &str) -> Pair {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        Pair::from_pem(signing_key.serialize_pem() + &cert.pem()).unwrap()
    }

    #[test]
    fn it_is_kept_for_the_daemon_alone_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(&folder.path().join("new"));
        assert!(kept.load().is_none());
        for name in ["a", "b"] {
            let stored = pair(name);
            kept.store(&stored).unwrap();
            let loaded = kept.load().unwrap();
            assert_eq!((loaded.chain, loaded.key, loaded.leaf), (stored.chain, stored.key, stored.leaf));
            assert_eq!(std::fs::metadata(&kept.path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn the_key_of_an_open_request_is_kept_for_the_daemon_alone_until_the_request_is_decided() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(&folder.path().join("new"));
        assert!(kept.pending().is_none());
        kept.remove_pending();
        let key = KeyPair::generate().unwrap();
        kept.store_pending(&key).unwrap();
        assert_eq!(kept.pending().unwrap().serialize_pem(), key.serialize_pem());
        assert_eq!(std::fs::metadata(&kept.pending).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&kept.pending, "no key").unwrap();
        assert!(kept.pending().is_none());
        kept.remove_pending();
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_certificate_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path());
        let whole = pair("a").pem;
        for text in ["", "no PEM", whole.split("-----BEGIN CERTIFICATE").next().unwrap()] {
            std::fs::write(&kept.path, text).unwrap();
            assert!(kept.load().is_none(), "{text}");
        }
    }
}
