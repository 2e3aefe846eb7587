//! Objects that a filter fails on again and again. Each is set aside alone: the failure policy applies to it without a call, so
//! that what its owner wrote costs no other object anything.
//!
//! An object is set aside after [`FAILURES`] consecutive failures, returned errors included. It is tried again when its bytes
//! change, when its pause is over, or when something changes that the filter looked up. The pause doubles with each failure. An
//! object that has not changed is tried at most [`RETRIES`] times a second, all such objects of a filter together.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_document::Document;

use crate::{FailureClass, Fault};

/// So many consecutive failures set an object aside.
const FAILURES: u32 = 3;
/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);
/// An object that was not met for so long may be gone: it is not reported.
const MET: Duration = Duration::from_secs(600);
/// How often objects that have not changed are tried again in a second.
const RETRIES: u32 = 5;
/// The most objects. Another one replaces the one that failed longest ago.
const OBJECTS: usize = 8192;

/// The objects of one filter that it failed on.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    state: Mutex<State>,
    /// Whether there are any. Verdicts check it before they take the lock.
    any: AtomicBool,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct State {
    objects: HashMap<ObjectKey, Entry>,
    /// The second for which retries are counted, and their number.
    retries: Option<(Instant, u32)>,
}

/// What identifies an object among those of a filter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ObjectKey {
    kind: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
}

#[derive(Debug)]
struct Entry {
    /// Consecutive failures.
    failures: u32,
    last: Instant,
    /// The hash of the object that it failed on.
    bytes: u64,
    /// When it was met last.
    seen: Instant,
    /// The generation of the filter's dependencies at that time.
    generation: u64,
    error: String,
}

/// An object that is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAsideObject {
    /// The kind, namespace and name.
    pub object: String,
    /// The number of consecutive failures.
    pub failures: u32,
    /// The last one.
    pub error: String,
}

impl SetAside {
    /// Returns the fault of an object that is set aside, or none if it may be filtered. `generation` is that of the filter's
    /// dependencies.
    pub(super) fn refuse(&self, object: &Document, generation: u64) -> Option<Fault> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let key = ObjectKey::of(object)?;
        let bytes = self.hasher.hash_one(object.bytes());
        let mut state = self.lock();
        let entry = state.objects.get_mut(&key).filter(|entry| entry.is_set_aside() && entry.bytes == bytes)?;
        entry.seen = Instant::now();
        let fault = || Fault::new(FailureClass::SetAside, &format!("set aside after {entry}"));
        if entry.generation == generation && entry.last.elapsed() < entry.pause() {
            return Some(fault());
        }
        let fault = fault();
        (!state.may_retry()).then_some(fault)
    }

    /// Notes a failure. Returns how often the object has failed if it is now set aside that was not before.
    pub(super) fn failed(&self, object: &Document, generation: u64, fault: &Fault) -> Option<u32> {
        if matches!(fault.class, FailureClass::Host | FailureClass::BreakerOpen | FailureClass::SetAside) {
            return None;
        }
        let key = ObjectKey::of(object)?;
        let bytes = self.hasher.hash_one(object.bytes());
        let mut state = self.lock();
        if !state.objects.contains_key(&key) && state.objects.len() >= OBJECTS {
            let oldest = state.objects.iter().min_by_key(|(_, entry)| entry.last).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| state.objects.remove(&oldest));
        }
        let failures = state.objects.get(&key).map_or(1, |entry| entry.failures.saturating_add(1));
        let error = format!("{}: {fault}", fault.class.label());
        let now = Instant::now();
        state.objects.insert(key, Entry { failures, last: now, seen: now, bytes, generation, error });
        self.any.store(true, Ordering::Relaxed);
        (failures == FAILURES).then_some(failures)
    }

    /// Notes a verdict.
    pub(super) fn succeeded(&self, object: &Document) {
        if self.any.load(Ordering::Relaxed)
            && let Some(key) = ObjectKey::of(object)
        {
            let mut state = self.lock();
            if state.objects.remove(&key).is_some_and(|entry| entry.is_set_aside()) {
                // Only retries that fail cost anything: what recovers, recovers at once.
                state.refund();
            }
            self.any.store(!state.objects.is_empty(), Ordering::Relaxed);
        }
    }

    /// Returns the objects that are set aside and were met lately, in order: nobody says that one was deleted.
    pub(super) fn objects(&self) -> Vec<SetAsideObject> {
        let state = self.lock();
        let mut objects: Vec<_> =
            state.objects.iter().filter(|(_, entry)| entry.is_set_aside() && entry.is_met()).collect();
        objects.sort_by_key(|(key, _)| *key);
        let named = |(key, entry): (&ObjectKey, &Entry)| SetAsideObject {
            object: key.to_string(),
            failures: entry.failures,
            error: entry.error.clone(),
        };
        objects.into_iter().map(named).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a retry if one is left in this second.
    fn may_retry(&mut self) -> bool {
        let now = Instant::now();
        match &mut self.retries {
            Some((since, count)) if now.duration_since(*since) < Duration::from_secs(1) => {
                *count += 1;
                *count <= RETRIES
            }
            retries => {
                *retries = Some((now, 1));
                true
            }
        }
    }

    fn refund(&mut self) {
        if let Some((_, count)) = &mut self.retries {
            *count = count.saturating_sub(1);
        }
    }
}

impl Entry {
    fn is_set_aside(&self) -> bool {
        self.failures >= FAILURES
    }

    fn is_met(&self) -> bool {
        self.seen.elapsed() < MET
    }

    fn pause(&self) -> Duration {
        FIRST.saturating_mul(1 << self.failures.saturating_sub(FAILURES).min(10)).min(LONGEST)
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failures in a row, the last one: {}", self.failures, self.error)
    }
}

impl ObjectKey {
    /// Returns none for an object without a readable name.
    fn of(object: &Document) -> Option<Self> {
        let namespace = object.namespace().ok()?.unwrap_or_default().into();
        Some(Self { kind: object.kind().ok()?.into(), namespace, name: object.name().ok()?.into() })
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, version: u32) -> Document {
        let json = serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string()},
        });
        Document::json(json.to_string().into())
    }

    fn fail(set: &SetAside, object: &Document, generation: u64) -> Option<u32> {
        set.failed(object, generation, &Fault::new(FailureClass::Refused, "no"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_fails_again_and_again_is_set_aside_alone() {
        let (set, bad, good) = (SetAside::default(), service("bad", 1), service("good", 1));
        for _ in 1..FAILURES {
            assert_eq!(fail(&set, &bad, 7), None);
            assert!(set.refuse(&bad, 7).is_none());
        }
        assert_eq!(fail(&set, &bad, 7), Some(FAILURES), "reported once");
        let fault = set.refuse(&bad, 7).unwrap();
        assert_eq!(fault.class, FailureClass::SetAside);
        assert!(fault.message.contains("3 failures in a row, the last one: refused: no"), "{fault}");
        assert!(set.refuse(&good, 7).is_none());
        assert_eq!(set.objects()[0].object, "Service a/bad");
        tokio::time::advance(FIRST).await;
        assert!(set.refuse(&bad, 7).is_none(), "the pause is over");
        assert_eq!(fail(&set, &bad, 7), None);
        tokio::time::advance(FIRST).await;
        assert!(set.refuse(&bad, 7).is_some(), "the next pause is longer");
        set.succeeded(&bad);
        assert!(set.refuse(&bad, 7).is_none() && set.objects().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_object_or_of_a_lookup_ends_the_pause() {
        let (set, bad) = (SetAside::default(), service("bad", 1));
        for _ in 0..FAILURES {
            fail(&set, &bad, 7);
        }
        assert!(set.refuse(&service("bad", 2), 7).is_none() && set.refuse(&bad, 8).is_none());
        assert!(set.refuse(&bad, 7).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_unchanged_objects_and_the_table_are_bounded() {
        let set = SetAside::default();
        let many: Vec<_> = (0..2 * OBJECTS).map(|n| service(&n.to_string(), 1)).collect();
        for object in &many {
            for _ in 0..FAILURES {
                fail(&set, object, 7);
            }
            tokio::time::advance(Duration::from_micros(1)).await;
        }
        assert_eq!(set.objects().len(), OBJECTS);
        let tried = || many[OBJECTS..].iter().filter(|object| set.refuse(object, 8).is_none()).count();
        assert_eq!(tried(), RETRIES as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(tried(), RETRIES as usize);
    }

    #[test]
    fn failures_that_no_object_causes_do_not_count() {
        let (set, object) = (SetAside::default(), service("a", 1));
        for class in [FailureClass::Host, FailureClass::BreakerOpen, FailureClass::SetAside] {
            for _ in 0..2 * FAILURES {
                assert_eq!(set.failed(&object, 7, &Fault::new(class, "no")), None);
            }
        }
        assert!(set.objects().is_empty());
    }
}
