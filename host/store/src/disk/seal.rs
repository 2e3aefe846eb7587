//! Seals what is written to disk: with a digest, compressed, or encrypted. Changed content is not unsealed.
//!
//! Each blob is bound to its place (store, sequence number, key): a blob that appears elsewhere does not unseal.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::OFlags;

use super::config::KeyFile;
use super::error::DiskError;

const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;
const ENCRYPTED: u8 = 2;
/// The length of a digest on disk.
const DIGEST: usize = 16;
const KEY: usize = 32;
/// The most bytes that one blob unseals to: more than the largest object.
const MAX_BLOB: usize = 64 << 20;

/// A key for AES-256-GCM.
pub(super) struct CacheKey {
    key: LessSafeKey,
    random: SystemRandom,
    /// Distinguishes keys, and reveals nothing about this one.
    pub(super) id: String,
}

impl CacheKey {
    /// Loads the key, and creates an own one that does not exist.
    pub(super) fn load(file: &KeyFile) -> Result<Self, DiskError> {
        let path = file.path();
        let unusable = |reason: String| DiskError::Key(format!("{}: {reason}", path.display()));
        let bytes = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match file {
                KeyFile::Own { former, .. } => created(path, former.as_deref()),
                KeyFile::Given(_) => Err(error),
            },
            result => result,
        };
        Self::new(&bytes.map_err(|error| unusable(error.to_string()))?).map_err(unusable)
    }

    /// A key from 32 bytes, or from 64 hexadecimal digits.
    fn new(bytes: &[u8]) -> Result<Self, String> {
        let bytes = match bytes.len() {
            KEY => bytes.to_vec(),
            _ => hex(bytes.trim_ascii()).ok_or("it holds neither 32 bytes nor 64 hexadecimal digits")?,
        };
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| "it is not a key")?;
        let id = digest(b"key id", &bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { key: LessSafeKey::new(key), random: SystemRandom::new(), id })
    }

    fn encrypt(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, DiskError> {
        let failed = |_| DiskError::Key("encryption failed".to_owned());
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(failed)?;
        let mut sealed = plain.to_vec();
        let (nonce_bytes, nonce) = (nonce, Nonce::assume_unique_for_key(nonce));
        self.key.seal_in_place_append_tag(nonce, Aad::from(place), &mut sealed).map_err(failed)?;
        Ok([&[ENCRYPTED][..], &nonce_bytes, &sealed].concat())
    }

    fn decrypt(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, DiskError> {
        let damaged = || DiskError::Damaged("it cannot be decrypted".to_owned());
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(damaged)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(place), &mut plain).map_err(|_| damaged())?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for somebody who writes to it.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    check(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw()).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    file.take(1024).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks that nobody but this user and root can read a key.
fn check(owner: u32, mode: u32, own: u32) -> Result<(), String> {
    if owner != own && owner != 0 {
        return Err(format!("it belongs to uid {owner}, which can read it: it must belong to uid {own} or to root"));
    }
    let mode = mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("its mode is {mode:04o}, so that other users can read it: use 0600"));
    }
    Ok(())
}

/// Creates the key: the one that was elsewhere, which is removed there, or a new one.
fn created(path: &Path, former: Option<&Path>) -> io::Result<Vec<u8>> {
    let Some((former, key)) = former.and_then(|former| Some((former, read(former).ok()?))) else {
        let mut key = vec![0; KEY];
        SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("no random numbers"))?;
        return write(path, key);
    };
    let key = write(path, key)?;
    std::fs::remove_file(former)?;
    Ok(key)
}

/// Writes the key. A half-written file never has the name.
fn write(path: &Path, key: Vec<u8>) -> io::Result<Vec<u8>> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    std::fs::File::open(directory)?.sync_all()?;
    Ok(key)
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.iter().map(|digit| char::from(*digit).to_digit(16)?.try_into().ok()).collect();
    let bytes: Vec<u8> = digits?.chunks_exact(2).filter_map(|pair| Some(pair.first()? << 4 | pair.last()?)).collect();
    (bytes.len() == KEY && text.len() == 2 * KEY).then_some(bytes)
}

/// Seals bytes for a place. With a key they are encrypted; otherwise they are compressed if they are worth it.
pub(super) fn seal(place: &[u8], plain: &[u8], key: Option<&CacheKey>) -> Result<Vec<u8>, DiskError> {
    if let Some(key) = key {
        return key.encrypt(place, plain);
    }
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain)?;
    let deflated = encoder.finish()?;
    let (kind, payload) = match deflated.len() < plain.len() {
        true => (DEFLATED, deflated.as_slice()),
        false => (PLAIN, plain),
    };
    Ok([&[kind][..], &digest_of(place, kind, payload), payload].concat())
}

/// Returns the bytes that were sealed for this place.
pub(super) fn unseal(place: &[u8], blob: &[u8], key: Option<&CacheKey>) -> Result<Vec<u8>, DiskError> {
    let damaged = |reason: &str| DiskError::Damaged(reason.to_owned());
    let (kind, rest) = blob.split_first().ok_or_else(|| damaged("it is empty"))?;
    if *kind == ENCRYPTED {
        let key = key.ok_or_else(|| damaged("it is encrypted, and must not be"))?;
        return key.decrypt(place, rest);
    }
    if key.is_some() {
        return Err(damaged("it is not encrypted, and must be"));
    }
    let (digest, payload) = rest.split_first_chunk::<DIGEST>().ok_or_else(|| damaged("it is cut off"))?;
    if digest_of(place, *kind, payload) != *digest {
        return Err(damaged("its checksum is wrong"));
    }
    if *kind == PLAIN {
        return Ok(payload.to_vec());
    }
    let mut plain = Vec::with_capacity((payload.len() * 4).min(MAX_BLOB));
    DeflateDecoder::new(payload).take(MAX_BLOB as u64).read_to_end(&mut plain)?;
    Ok(plain)
}

fn digest_of(place: &[u8], kind: u8, payload: &[u8]) -> [u8; DIGEST] {
    digest(&[place, &[kind]].concat(), payload)
}

fn digest(prefix: &[u8], payload: &[u8]) -> [u8; DIGEST] {
    let mut context = Context::new(&SHA256);
    context.update(&(prefix.len() as u64).to_le_bytes());
    context.update(prefix);
    context.update(payload);
    let mut short = [0; DIGEST];
    for (to, from) in short.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    short
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn own(path: std::path::PathBuf) -> KeyFile {
        KeyFile::Own { path, former: None }
    }

    #[test]
    fn a_key_that_was_elsewhere_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let (former, path) = (folder.path().join("cache.key"), folder.path().join("new/cache.key"));
        let id = CacheKey::load(&own(former.clone())).unwrap().id;
        let moved = KeyFile::Own { path: path.clone(), former: Some(former.clone()) };
        assert!(moved.exists());
        for _ in 0..2 {
            assert_eq!(CacheKey::load(&moved).unwrap().id, id);
            assert!(path.exists() && !former.exists());
        }
        let mode = path.parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_was_changed_or_moved_is_not_unsealed() {
        let key = CacheKey::new(&[7; 32]).unwrap();
        for (key, plain) in [(None, vec![1; 500]), (None, vec![1, 2, 3]), (Some(&key), vec![1; 500])] {
            let blob = seal(b"place", &plain, key).unwrap();
            assert_eq!(unseal(b"place", &blob, key).unwrap(), plain);
            assert!(matches!(unseal(b"other", &blob, key), Err(DiskError::Damaged(_))));
            for at in 0..blob.len() {
                for bit in 0..8 {
                    let mut blob = blob.clone();
                    blob[at] ^= 1 << bit;
                    assert!(matches!(unseal(b"place", &blob, key), Err(DiskError::Damaged(_))), "byte {at}");
                }
                assert!(unseal(b"place", &blob[..at], key).is_err());
            }
        }
    }

    #[test]
    fn a_key_that_another_user_owns_is_refused() {
        assert!(check(65532, 0o100_600, 65532).is_ok() && check(0, 0o100_400, 65532).is_ok());
        assert!(check(1000, 0o100_600, 65532).unwrap_err().contains("uid 1000"));
        assert!(check(1000, 0o100_600, 0).is_err(), "root reads it, and so does its owner");
        assert!(check(65532, 0o100_640, 65532).unwrap_err().contains("0640"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        created(&path, None).unwrap();
        assert!(CacheKey::load(&KeyFile::Given(path.clone())).is_ok());
        // Only root can give files away.
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert!(
                matches!(CacheKey::load(&KeyFile::Given(path)), Err(DiskError::Key(reason)) if reason.contains("12345"))
            );
        }
    }

    #[test]
    fn encrypted_and_plain_blobs_do_not_stand_in_for_each_other() {
        let (key, other) = (CacheKey::new(&[7; 32]).unwrap(), CacheKey::new(&[8; 32]).unwrap());
        assert_ne!(key.id, other.id);
        let encrypted = seal(b"place", b"secret", Some(&key)).unwrap();
        assert!(!encrypted.windows(6).any(|window| window == b"secret"));
        assert!(unseal(b"place", &encrypted, None).is_err() && unseal(b"place", &encrypted, Some(&other)).is_err());
        let plain = seal(b"place", b"forged", None).unwrap();
        assert!(unseal(b"place", &plain, Some(&key)).is_err());
    }

    #[test]
    fn an_own_key_is_created_once_and_only_this_user_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/cache.key");
        let own = own(path.clone());
        let id = CacheKey::load(&own).unwrap().id;
        assert_eq!(CacheKey::load(&own).unwrap().id, id);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(CacheKey::load(&own), Err(DiskError::Key(reason)) if reason.contains("0640")));
    }

    #[test]
    fn a_given_key_must_exist_and_be_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let given = KeyFile::Given(path.clone());
        assert!(matches!(CacheKey::load(&given), Err(DiskError::Key(_))));
        let write = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            CacheKey::load(&given).map(|key| key.id)
        };
        assert_eq!(write(&[0x0a; 32]).unwrap(), write(("0a".repeat(32) + "\n").as_bytes()).unwrap());
        for bytes in [&[1; 31][..], b"", "0g".repeat(32).as_bytes()] {
            assert!(matches!(write(bytes), Err(DiskError::Key(_))));
        }
    }
}
