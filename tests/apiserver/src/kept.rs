//! A cache of complete encoded lists, for load tests. It is valid until the next write.
//!
//! It caches only lists that many clients request alike: all objects of a large collection in their latest state.
//! Memory: the last four such responses, until a list after the next write replaces them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::catalog::Resource;
use crate::negotiate::{Accepted, Form};
use crate::render::{Rendered, Renderer};
use crate::request::{Place, Query};

/// The cached lists.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    of: Whole,
    revision: u64,
    bytes: Bytes,
}

/// The key of a list that is the same for all clients at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    resource: Arc<Resource>,
    accepted: Accepted,
}

const LISTS: usize = 4;
/// Smaller lists are not cached.
const LARGE: usize = 1024 * 1024;

// === impl Whole ===

impl Whole {
    /// `None` for a list with a selector, a page, a past state or another shape.
    pub(crate) fn of(place: &Place, query: &Query, renderer: &Renderer) -> Option<Self> {
        let plain = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersionMatch"];
        let accepted = renderer.accepted();
        let whole = place.namespace.is_empty()
            && plain.iter().all(|option| query.text(option).is_empty())
            && matches!(query.text("resourceVersion"), "" | "0")
            && accepted.form == Form::Objects
            && !accepted.pretty;
        whole.then(|| Self { resource: Arc::clone(&place.resource), accepted })
    }
}

// === impl Kept ===

impl Kept {
    /// The cached list of this version.
    pub(crate) fn get(&self, of: &Whole, revision: u64) -> Option<Rendered> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|entry| entry.revision == revision);
        let entry = lists.iter().find(|entry| entry.of == *of)?;
        Some(Rendered::slices(of.accepted.media, entry.bytes.clone()))
    }

    /// Caches a list if it is large, and returns it.
    pub(crate) fn keep(&self, of: Whole, revision: u64, rendered: Rendered) -> Rendered {
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
        lists.push(Entry { of, revision, bytes });
        answer
    }
}
