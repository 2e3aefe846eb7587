//! Whole lists as bytes, kept until something is written: load is then served at the cost of its sockets.
//!
//! Only what many ask alike is kept: all objects of a large collection, plain, as they are now. Memory: the last four such
//! answers, until the next write is noticed by the next list.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::catalog::Resource;
use crate::negotiate::{Accepted, Form};
use crate::render::{Rendered, Renderer};
use crate::request::{Place, Query};

/// The lists.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    of: Whole,
    revision: u64,
    bytes: Bytes,
}

/// Names a list that is the same for whoever asks for it at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    resource: Arc<Resource>,
    accepted: Accepted,
}

const LISTS: usize = 4;
/// Smaller ones are not worth it.
const LARGE: usize = 1024 * 1024;

// === impl Whole ===

impl Whole {
    /// `None` for a list that is narrowed, paged, or of another state or shape.
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
    /// The list as it was rendered at this version.
    pub(crate) fn get(&self, of: &Whole, revision: u64) -> Option<Rendered> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|entry| entry.revision == revision);
        let entry = lists.iter().find(|entry| entry.of == *of)?;
        Some(Rendered::slices(of.accepted.media, entry.bytes.clone()))
    }

    /// Keeps a list if it is large, and gives it back.
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
