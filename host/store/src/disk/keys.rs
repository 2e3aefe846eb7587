//! The encryption key as the cache on disk uses it: it is read when it is needed first, and again while it is not there.

use std::sync::Arc;

use super::config::Confidentiality;
use super::error::DiskError;
use super::seal::CacheKey;
use super::state::DiskState;

impl DiskState {
    /// The key of a store; `None` if it is not encrypted.
    pub(super) fn key_for(&mut self, confidentiality: Confidentiality) -> Result<Option<Arc<CacheKey>>, DiskError> {
        if confidentiality == Confidentiality::Plain {
            return Ok(None);
        }
        if self.key.is_none() {
            // One that is not there now may be there soon.
            let key = CacheKey::load(&self.config.key_file).map_err(|error| match error {
                DiskError::Key(reason) => DiskError::Key(reason),
                error => DiskError::Key(error.to_string()),
            })?;
            self.key = Some(Arc::new(key));
        }
        Ok(self.key.clone())
    }

    /// The key, if there is one already.
    pub(super) fn present_key(&mut self) -> Option<Arc<CacheKey>> {
        self.config.key_file.exists().then(|| self.key_for(Confidentiality::Encrypted).ok().flatten()).flatten()
    }
}
