//! Objects in the order of their versions, a part at a time.
//!
//! Clients continue from the version of the last event that they got, also when they were cut off amid the state: in this order
//! they have got everything up to that version. All watches may start at once, so that none keeps an order of all objects.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_store::StoreKey;

use crate::machine::event::Object;

/// So many objects are put in order at a time. Each time costs a look at all of them.
pub(crate) const NEXT: usize = 1024;

/// The objects of a map above a version.
#[derive(Debug)]
pub(crate) struct InVersionOrder<O> {
    objects: RedBlackTreeMapSync<StoreKey, Arc<O>>,
    above: u64,
    next: VecDeque<(StoreKey, Arc<O>)>,
    /// The version and the key of the last one that was put in order.
    last: Option<(u64, StoreKey)>,
    is_over: bool,
}

impl<O: Object> InVersionOrder<O> {
    /// Those above this version.
    pub(crate) fn new(objects: RedBlackTreeMapSync<StoreKey, Arc<O>>, above: u64) -> Self {
        Self { objects, above, next: VecDeque::new(), last: None, is_over: false }
    }

    fn sort_next(&mut self) {
        let last = self.last.as_ref().map(|(version, key)| (*version, key));
        let mut next = BinaryHeap::with_capacity(NEXT + 1);
        for (key, object) in &self.objects {
            let place = (object.version(), key);
            if place.0 <= self.above
                || Some(place) <= last
                || (next.len() == NEXT && next.peek().is_some_and(|most| place > *most))
            {
                continue;
            }
            next.push(place);
            if next.len() > NEXT {
                next.pop();
            }
        }
        self.is_over = next.len() < NEXT;
        let sorted = next.into_sorted_vec();
        let objects =
            sorted.iter().filter_map(|(_, key)| Some((StoreKey::clone(key), self.objects.get(*key)?.clone())));
        self.next = objects.collect();
        let last = sorted.last().map(|(version, key)| (*version, StoreKey::clone(key)));
        self.last = last.or_else(|| self.last.take());
    }
}

impl<O: Object> Iterator for InVersionOrder<O> {
    type Item = (StoreKey, Arc<O>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_empty() && !self.is_over {
            self.sort_next();
        }
        self.next.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::objects::{Obj, Out};

    #[test]
    fn each_object_comes_once_in_the_order_of_versions() {
        for objects in [0, 1, NEXT as u64 - 1, NEXT as u64, NEXT as u64 + 1, 3 * NEXT as u64 + 10] {
            let mut map = RedBlackTreeMapSync::new_sync();
            for n in 0..objects {
                // Two objects at each version, in another order than that of their names.
                let version = 1 + (n * 7919 % objects) / 2;
                let object = Obj { version, content: 0, out: Out::Same, shown: version };
                map.insert_mut(StoreKey::new("default", &n.to_string()), Arc::new(object));
            }
            for above in [0, 3] {
                let mut order = InVersionOrder::new(map.clone(), above);
                let mut versions = Vec::new();
                while let Some((_, object)) = order.next() {
                    versions.push(object.version);
                    assert!(order.next.len() < NEXT);
                }
                let expected: Vec<_> = (0..objects).map(|n| 1 + n / 2).filter(|version| *version > above).collect();
                assert_eq!(versions, expected, "{objects} above {above}");
                assert!(order.next().is_none());
            }
        }
    }
}
