//! A cache of complete encoded lists, for load tests. It is valid until the next write.
//!
//! It caches only lists that many clients request alike: all objects of a large collection in their latest state.
//! Memory: the last four such responses, until a list after the next write replaces them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::catalog::Resource;
use crate::negotiate::{Accepted, Shape};
use crate::render::{Rendered, Renderer};
use crate::request::{Place, QueryOptions};

/// The cached lists.
#[derive(Debug, Default)]
pub(crate) struct ListCache(Mutex<Vec<CachedList>>);

#[derive(Debug)]
struct CachedList {
    of: ListKey,
    revision: u64,
    bytes: Bytes,
}

/// The key of a list that is the same for all clients at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListKey {
    resource: Arc<Resource>,
    accepted: Accepted,
}

const LISTS: usize = 4;
/// Smaller lists are not cached.
const LARGE: usize = 1024 * 1024;

// === impl ListKey ===

impl ListKey {
    /// `None` for a list with a selector, a page, a past state or another shape.
    pub(crate) fn of(place: &Place, query: &QueryOptions, renderer: &Renderer) -> Option<Self> {
        let plain = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersionMatch"];
        let accepted = renderer.accepted();
        let whole = place.namespace.is_empty()
            && plain.iter().all(|option| query.text(option).is_empty())
            && matches!(query.text("resourceVersion"), "" | "0")
            && accepted.shape == Shape::Objects
            && !accepted.pretty;
        whole.then(|| Self { resource: Arc::clone(&place.resource), accepted })
    }
}

// === impl ListCache ===

impl ListCache {
    /// The cached list of this version.
    pub(crate) fn get(&self, of: &ListKey, revision: u64) -> Option<Rendered> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|entry| entry.revision == revision);
        let entry = lists.iter().find(|entry| entry.of == *of)?;
        Some(Rendered::slices(of.accepted.media, entry.bytes.clone()))
    }

    /// Caches a list if it is large, and returns it.
    pub(crate) fn keep(&self, of: ListKey, revision: u64, rendered: Rendered) -> Rendered {
        if rendered.length < LARGE {
            return rendered;
        }
        let bytes = rendered.collect();
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|entry| entry.of != of);
        if lists.len() >= LISTS {
            lists.remove(0);
        }
        let answer = Rendered::slices(of.accepted.media, bytes.clone());
        lists.push(CachedList { of, revision, bytes });
        answer
    }
}
