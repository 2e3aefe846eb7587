//! Single values with an expiry: what is not a collection and has to outlive the process.

use std::time::{Duration, SystemTime};

use super::config::Confidentiality;
use super::error::DiskError;
use super::reading::lock;
use super::seal::{CacheKey, seal, unseal};
use super::state::DiskState;
use weir_upstream::clock;

/// The largest value.
pub(super) const MAX_VALUE: usize = 16 << 20;
/// The expiry is in the first bytes of a blob.
pub(super) const EXPIRY: usize = 9;
/// When a lasting value expires, in seconds since 1970: in the year 9999. No clock that is wrong ends it.
const LASTING: Duration = Duration::from_secs(253_402_300_799);

/// A value and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedValue {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The value is not returned from this time on.
    pub expires: SystemTime,
}

/// A value that the next commit writes.
#[derive(Debug, Clone)]
pub(super) struct PendingValue {
    pub(super) value: CachedValue,
    pub(super) confidential: bool,
}

impl CachedValue {
    /// A value that is kept until another one replaces it.
    #[must_use]
    pub fn lasting(bytes: Vec<u8>) -> Self {
        Self { bytes, expires: SystemTime::UNIX_EPOCH + LASTING }
    }

    /// Whether the value has expired.
    pub(super) fn is_expired(&self) -> bool {
        self.expires <= clock::now()
    }
}

impl PendingValue {
    /// The blob of a value: its expiry and whether it is encrypted, and the sealed bytes.
    pub(super) fn seal(&self, name: &str, key: Option<&CacheKey>) -> Result<Vec<u8>, DiskError> {
        let header = header(self.value.expires, self.confidential);
        let blob = seal(&place(name, &header), &self.value.bytes, key)?;
        Ok([&header[..], &blob].concat())
    }
}

/// Whether the value of a blob is encrypted.
pub(super) fn is_confidential(blob: &[u8]) -> bool {
    blob.first() == Some(&1)
}

/// When the value of a blob expires, according to an unverified header.
pub(super) fn expiry(blob: &[u8]) -> Option<SystemTime> {
    let (_, rest) = blob.split_first()?;
    let (seconds, _) = rest.split_first_chunk()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_le_bytes(*seconds)))
}

/// Reads the blob of a value.
pub(super) fn unseal_value(name: &str, blob: &[u8], key: Option<&CacheKey>) -> Result<CachedValue, DiskError> {
    let damaged = || DiskError::Damaged("a value is cut off".to_owned());
    let (header, sealed) = blob.split_first_chunk::<EXPIRY>().ok_or_else(damaged)?;
    let bytes = unseal(&place(name, header), sealed, key)?;
    Ok(CachedValue { bytes, expires: expiry(blob).ok_or_else(damaged)? })
}

fn header(expires: SystemTime, confidential: bool) -> [u8; EXPIRY] {
    let seconds = expires.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut header = [u8::from(confidential); EXPIRY];
    if let Some((_, after)) = header.split_first_mut() {
        after.copy_from_slice(&seconds.to_le_bytes());
    }
    header
}

fn place(name: &str, header: &[u8; EXPIRY]) -> Vec<u8> {
    [&b"value"[..], header, name.as_bytes()].concat()
}

impl DiskState {
    /// A value, even if it has expired; `None` if the file cannot be used.
    pub(super) fn value(&mut self, name: &str) -> Option<Option<CachedValue>> {
        if let Some(pending) = self.reading.pending(name) {
            return Some(pending);
        }
        let Some(blob) = self.with_database(|_, database| database.value(name))? else { return Some(None) };
        let confidentiality = match is_confidential(&blob) {
            true => Confidentiality::Encrypted,
            false => Confidentiality::Plain,
        };
        let value = self.key_for(confidentiality).and_then(|key| unseal_value(name, &blob, key.as_deref()));
        match value {
            Ok(value) => Some(Some(value)),
            Err(error) => {
                self.report("values", &error);
                // The key may come back. With another one it looks like damage, and it expires.
                if confidentiality == Confidentiality::Plain {
                    lock(&self.reading.writing).insert(name.to_owned(), None);
                }
                Some(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_bound_to_its_name_and_its_expiry() {
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let value = CachedValue { bytes: b"value".to_vec(), expires };
        let blob = PendingValue { value: value.clone(), confidential: false }.seal("a", None).unwrap();
        assert_eq!(unseal_value("a", &blob, None).unwrap(), value);
        assert!(value.is_expired() && !is_confidential(&blob));
        assert!(unseal_value("b", &blob, None).is_err());
        let mut later = blob.clone();
        later[3] ^= 1;
        assert!(unseal_value("a", &later, None).is_err());
        assert!(unseal_value("a", &blob[..8], None).is_err());
    }
}
