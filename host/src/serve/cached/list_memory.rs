//! Lists as clients got them, so that lists of the same objects are encoded once.
//!
//! Many clients list one resource at once, for example after a restart of the daemon. A list that is requested again within a
//! minute is kept in segments of some objects. A later list reuses each segment whose objects have not changed, and a list of
//! the same snapshot reuses all of them without evaluating its selector.
//!
//! Memory: at most [`MAX_LISTS`] lists, within the spare half of the memory budget of responses, for a minute after their last
//! use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_kube::Encoding;

use crate::serve::memory_budget::MemoryLease;
use weir_view::{RequestSelector, View, ViewSnapshot};

/// How long a list is kept after its last use.
const KEPT: Duration = Duration::from_secs(60);
/// The most lists, those that were requested only once included.
const MAX_LISTS: usize = 64;
/// The average number of objects in a segment. A change of one object encodes so many again.
const SEGMENT: usize = 32;

/// The lists that were requested within the last minute.
#[derive(Default)]
pub(crate) struct ListMemory(Mutex<Vec<RequestedList>>);

/// What distinguishes lists that consist of different bytes, apart from their version.
#[derive(Clone)]
pub(super) struct ListKey {
    view: Weak<View>,
    encoding: Encoding,
    selector: RequestSelector,
}

struct RequestedList {
    key: ListKey,
    used: Instant,
    /// `None` if it was requested once.
    list: Option<Arc<EncodedList>>,
}

/// An encoded list without its head and its end.
pub(super) struct EncodedList {
    snapshot: Arc<ViewSnapshot>,
    segments: Vec<Segment>,
    /// The segment that begins with the object at this address.
    starts: HashMap<usize, usize, foldhash::fast::RandomState>,
    _lease: MemoryLease,
}

/// Some consecutive objects of a list.
#[derive(Clone)]
pub(super) struct Segment {
    /// The bytes of the objects that were encoded. They are compared by address, and kept so that no others get it.
    objects: Vec<Bytes>,
    /// The encoded items; in JSON, each after a comma.
    pub(super) encoded: Bytes,
}

impl ListMemory {
    /// Returns the kept list, and notes the request. The outer `None`: the list was not requested within the last minute.
    pub(super) fn recall(&self, key: &ListKey) -> Option<Option<Arc<EncodedList>>> {
        let now = Instant::now();
        let mut lists = self.lists();
        if let Some(found) = lists.iter_mut().find(|list| list.key.is(key)) {
            found.used = now;
            return Some(found.list.clone());
        }
        if lists.len() < MAX_LISTS {
            lists.push(RequestedList { key: key.clone(), used: now, list: None });
        }
        None
    }

    pub(super) fn keep(&self, key: &ListKey, list: EncodedList) {
        if let Some(found) = self.lists().iter_mut().find(|list| list.key.is(key)) {
            found.list = Some(Arc::new(list));
        }
    }

    /// Drops lists that nobody has requested for a while. Runs until it is dropped.
    pub(crate) async fn expire(self: Arc<Self>) {
        let mut interval = tokio::time::interval(KEPT / 4);
        loop {
            interval.tick().await;
            self.lists().retain(|list| list.used.elapsed() < KEPT && list.key.view.strong_count() > 0);
        }
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, Vec<RequestedList>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListKey {
    pub(super) fn new(view: &Arc<View>, encoding: Encoding, selector: &RequestSelector) -> Self {
        Self { view: Arc::downgrade(view), encoding, selector: selector.clone() }
    }

    fn is(&self, other: &Self) -> bool {
        self.view.ptr_eq(&other.view) && self.encoding == other.encoding && self.selector == other.selector
    }
}

impl EncodedList {
    pub(super) fn new(snapshot: Arc<ViewSnapshot>, segments: Vec<Segment>, lease: MemoryLease) -> Self {
        let first = |(index, segment): (usize, &Segment)| Some((address(segment.objects.first()?), index));
        let starts = segments.iter().enumerate().filter_map(first).collect();
        Self { snapshot, segments, starts, _lease: lease }
    }

    /// All objects, if the list is one of this snapshot.
    pub(super) fn of(&self, snapshot: &Arc<ViewSnapshot>) -> Option<impl Iterator<Item = Bytes>> {
        let objects = self.segments.iter().flat_map(|segment| segment.objects.iter().cloned());
        Arc::ptr_eq(&self.snapshot, snapshot).then_some(objects)
    }

    /// The segment that consists of these objects.
    pub(super) fn find(&self, objects: &[Bytes]) -> Option<&Segment> {
        let segment = self.segments.get(*self.starts.get(&address(objects.first()?))?)?;
        let same = |(one, other): (&Bytes, &Bytes)| address(one) == address(other) && one.len() == other.len();
        (segment.objects.len() == objects.len() && segment.objects.iter().zip(objects).all(same)).then_some(segment)
    }
}

impl Segment {
    pub(super) fn new(objects: Vec<Bytes>, encoded: Bytes) -> Self {
        Self { objects, encoded }
    }
}

/// Whether a segment begins with this object. It depends on the object alone, so that segments stay the same around a change.
pub(super) fn begins_segment(object: &Bytes) -> bool {
    // The upper bits of a multiplication by the golden ratio are evenly distributed.
    let hash = (address(object) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash.is_multiple_of(SEGMENT as u64)
}

fn address(bytes: &Bytes) -> usize {
    bytes.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_object_keeps_the_other_segments() {
        let mut objects: Vec<_> = (0..2000).map(|n| Bytes::from(format!("object {n}"))).collect();
        let cut = |objects: &[Bytes]| {
            let mut segments: Vec<Vec<Bytes>> = Vec::new();
            for object in objects {
                match segments.last_mut() {
                    Some(last) if !begins_segment(object) => last.push(object.clone()),
                    _ => segments.push(vec![object.clone()]),
                }
            }
            segments
        };
        let before = cut(&objects);
        assert!((20..200).contains(&before.len()), "{}", before.len());
        objects[1000] = Bytes::from("another object".to_owned());
        let after = cut(&objects);
        let addresses = |segment: &[Bytes]| segment.iter().map(address).collect::<Vec<_>>();
        let known: std::collections::HashSet<_> = before.iter().map(|segment| addresses(segment)).collect();
        let encoded_again = after.iter().filter(|segment| !known.contains(&addresses(segment))).count();
        assert!((1..=2).contains(&encoded_again), "{encoded_again}");
    }
}
