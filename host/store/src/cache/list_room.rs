//! What a list takes while its pages arrive, and whether it may go on.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Decides whether a store may grow to so many bytes.
type MayGrow = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// The bytes of a list that is on its way, and their bound.
#[derive(Default)]
pub struct ListRoom {
    arriving: AtomicUsize,
    may_grow: Mutex<Option<MayGrow>>,
}

impl ListRoom {
    /// Asks before a list or the objects on disk make the store larger. Without a question, nothing but the bound of all lists
    /// holds.
    pub fn limit(&self, may_grow: impl Fn(u64) -> bool + Send + Sync + 'static) {
        *self.may_grow.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(may_grow));
    }

    /// The bytes that have arrived.
    pub(super) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::Relaxed)
    }

    /// Whether the store may have so many bytes.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        let may_grow = self.may_grow.lock().unwrap_or_else(PoisonError::into_inner).clone();
        may_grow.is_none_or(|may_grow| may_grow(bytes as u64))
    }

    /// Notes how many bytes of a list have arrived. Returns whether there is room for them.
    pub(super) fn arrive(&self, bytes: usize) -> bool {
        let is_more = self.arriving.swap(bytes, Ordering::Relaxed) < bytes;
        !is_more || self.allows(bytes)
    }

    /// Notes that the list has ended.
    pub(super) fn end(&self) {
        self.arriving.store(0, Ordering::Relaxed);
    }
}

impl fmt::Debug for ListRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRoom").field("arriving", &self.arriving()).finish_non_exhaustive()
    }
}
