//! The circuit breaker of a filter. It suspends calls of a module that fails repeatedly, because each call could cost
//! its whole time budget.
//!
//! Only faults of the module count: traps, time, memory and the like. Errors that it returns for an object and
//! unreadable objects do not count. The breaker opens after [`FAULTS`] consecutive faults on objects of [`NAMESPACES`]
//! namespaces: for one second, then each time for twice as long, up to a minute. So the owner of one namespace cannot
//! suspend the filter for all others; the objects that fail are set aside one by one. A cluster-scoped object counts as a
//! namespace of its own. After each pause exactly one batch probes the module. Its first verdict closes the breaker, and faults
//! on objects of as many namespaces open it again, or the first one that no object causes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_document::Document;

use crate::FailureClass;

/// The number of consecutive faults that open the breaker.
const FAULTS: u32 = 5;
/// The number of namespaces whose objects they are on.
const NAMESPACES: usize = 3;
/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The circuit breaker of one filter.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
    /// Whether there are counted faults. Replays check it before they take the lock.
    counting: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    faults: u32,
    /// Those of them that no object causes, because no instance could be started.
    host_faults: u32,
    /// The namespaces of the objects that the others are on, up to the number that counts.
    namespaces: Vec<Box<str>>,
    openings: u32,
    probes: u64,
    phase: Phase,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Open {
        until: Instant,
    },
    /// One batch probes the module.
    Probing {
        probe: u64,
    },
}

/// The breaker's decision at the start of a batch.
#[derive(Debug)]
pub(super) enum Admission<'a> {
    /// The breaker is closed.
    Admitted,
    /// This batch probes the module.
    Probe(Probe<'a>),
    /// The breaker is open, or another batch probes.
    Refused,
}

/// A probing batch. If it ends without a verdict and without a fault, the next batch probes.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    breaker: &'a Breaker,
    probe: u64,
}

/// A transition of the breaker at the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// None.
    None,
    /// It opened for this long.
    Opened(Duration),
    /// It closed: the module works again.
    Closed,
}

impl Breaker {
    /// Returns whether calls are suspended.
    pub(super) fn is_open(&self) -> bool {
        self.lock().phase != Phase::Closed
    }

    /// Decides whether a new batch may call the module.
    pub(super) fn admit(&self) -> Admission<'_> {
        let mut state = self.lock();
        match state.phase {
            Phase::Closed => Admission::Admitted,
            Phase::Open { until } if Instant::now() >= until => {
                state.probes += 1;
                let probe = state.probes;
                state.phase = Phase::Probing { probe };
                Admission::Probe(Probe { breaker: self, probe })
            }
            Phase::Open { .. } | Phase::Probing { .. } => Admission::Refused,
        }
    }

    /// Returns whether a batch may call the module now. The breaker may have changed since the batch started.
    pub(super) fn permits(&self, admission: &Admission<'_>) -> bool {
        match (self.lock().phase, admission) {
            (Phase::Closed, _) => true,
            (Phase::Probing { probe }, Admission::Probe(batch)) => batch.probe == probe,
            (Phase::Open { .. } | Phase::Probing { .. }, _) => false,
        }
    }

    /// Handles a replayed verdict. It does not close the breaker, but faults before and after it are not consecutive.
    pub(super) fn replayed(&self) {
        if self.counting.load(Ordering::Relaxed) {
            let mut state = self.lock();
            state.reset();
            self.counting.store(false, Ordering::Relaxed);
        }
    }

    /// Handles a call that returned a verdict.
    pub(super) fn succeeded(&self) -> Transition {
        let mut state = self.lock();
        state.reset();
        self.counting.store(false, Ordering::Relaxed);
        state.openings = 0;
        match std::mem::take(&mut state.phase) {
            Phase::Closed => Transition::None,
            Phase::Open { .. } | Phase::Probing { .. } => Transition::Closed,
        }
    }

    /// Handles a call that failed on an object.
    pub(super) fn failed(&self, class: FailureClass, object: &Document) -> Transition {
        if matches!(
            class,
            FailureClass::Refused | FailureClass::Document | FailureClass::BreakerOpen | FailureClass::SetAside
        ) {
            return Transition::None;
        }
        let mut state = self.lock();
        // Of a call that began before it opened.
        if matches!(state.phase, Phase::Open { .. }) {
            return Transition::None;
        }
        state.count(class, object);
        self.counting.store(true, Ordering::Relaxed);
        let opens = match state.phase {
            Phase::Closed => state.is_spread(),
            // The objects of one owner, which may come first in each batch, do not keep it open for all.
            Phase::Open { .. } | Phase::Probing { .. } => state.host_faults > 0 || state.namespaces.len() >= NAMESPACES,
        };
        if !opens {
            return Transition::None;
        }
        let pause = FIRST.saturating_mul(1 << state.openings.min(10)).min(LONGEST);
        state.reset();
        state.openings = state.openings.saturating_add(1);
        state.phase = Phase::Open { until: Instant::now() + pause };
        Transition::Opened(pause)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, class: FailureClass, object: &Document) {
        self.faults = self.faults.saturating_add(1);
        if class == FailureClass::Host {
            self.host_faults = self.host_faults.saturating_add(1);
            return;
        }
        if self.namespaces.len() >= NAMESPACES {
            return;
        }
        let namespace: Box<str> = match object.namespace().ok().flatten() {
            Some(namespace) => namespace.into(),
            // No namespace has this name.
            None => format!("/{}", object.name().unwrap_or_default()).into(),
        };
        if !self.namespaces.contains(&namespace) {
            self.namespaces.push(namespace);
        }
    }

    /// Whether the faults are those of the module, and not of the objects of one owner.
    fn is_spread(&self) -> bool {
        self.host_faults >= FAULTS || (self.faults >= FAULTS && self.namespaces.len() >= NAMESPACES)
    }

    fn reset(&mut self) {
        self.faults = 0;
        self.host_faults = 0;
        self.namespaces.clear();
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let mut state = self.breaker.lock();
        if state.phase == (Phase::Probing { probe: self.probe }) {
            state.phase = Phase::Open { until: Instant::now() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: Option<&str>, name: &str) -> Document {
        let json = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        });
        Document::json(json.to_string().into())
    }

    /// A fault on an object of one of three namespaces.
    fn fail(breaker: &Breaker, class: FailureClass, n: u32) -> Transition {
        breaker.failed(class, &object(Some(["a", "b", "c"][n as usize % 3]), "x"))
    }

    #[tokio::test(start_paused = true)]
    async fn faults_on_objects_of_two_namespaces_do_not_open_it() {
        let breaker = Breaker::default();
        for n in 0..20 * FAULTS {
            let object = object(Some(["a", "b"][n as usize % 2]), &n.to_string());
            assert_eq!(breaker.failed(FailureClass::Time, &object), Transition::None);
        }
        assert!(!breaker.is_open());
        assert_eq!(breaker.failed(FailureClass::Time, &object(Some("c"), "x")), Transition::Opened(FIRST));
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_scoped_objects_and_instances_that_do_not_start_open_it() {
        let breaker = Breaker::default();
        for n in 0..FAULTS {
            assert!(!breaker.is_open());
            breaker.failed(FailureClass::Trap, &object(None, &format!("node-{n}")));
        }
        assert!(breaker.is_open());
        let breaker = Breaker::default();
        for _ in 0..FAULTS {
            assert!(!breaker.is_open());
            breaker.failed(FailureClass::Host, &object(Some("a"), "x"));
        }
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_faults_open_the_breaker_with_back_off() {
        let breaker = Breaker::default();
        for n in 1..FAULTS {
            assert_eq!(fail(&breaker, FailureClass::Time, n), Transition::None);
        }
        assert_eq!(fail(&breaker, FailureClass::Trap, 0), Transition::Opened(FIRST));
        assert!(breaker.is_open() && matches!(breaker.admit(), Admission::Refused));
        tokio::time::advance(FIRST).await;
        let probe = breaker.admit();
        assert!(matches!(probe, Admission::Probe(_)) && breaker.permits(&probe));
        for n in 0..20 {
            let of_one_owner = breaker.failed(FailureClass::Trap, &object(Some("a"), &n.to_string()));
            assert_eq!(of_one_owner, Transition::None, "its objects do not keep it open");
        }
        assert!(breaker.permits(&probe));
        fail(&breaker, FailureClass::Trap, 1);
        assert_eq!(fail(&breaker, FailureClass::Trap, 2), Transition::Opened(2 * FIRST), "three namespaces are enough");
        assert!(!breaker.permits(&probe), "the probe has failed");
        drop(probe);
        tokio::time::advance(2 * FIRST).await;
        assert_eq!(breaker.succeeded(), Transition::Closed);
        assert_eq!(fail(&breaker, FailureClass::Trap, 0), Transition::None, "a verdict resets the count");
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_one_batch_probes_after_a_pause() {
        let breaker = Breaker::default();
        for n in 0..FAULTS {
            fail(&breaker, FailureClass::Trap, n);
        }
        tokio::time::advance(FIRST).await;
        let probe = breaker.admit();
        assert!(matches!(probe, Admission::Probe(_)));
        let other = breaker.admit();
        assert!(matches!(other, Admission::Refused) && !breaker.permits(&other));
        drop(probe);
        let again = breaker.admit();
        assert!(matches!(again, Admission::Probe(_)), "the probe called nothing: the next batch probes");
        breaker.succeeded();
        assert!(breaker.permits(&other) && matches!(breaker.admit(), Admission::Admitted));
    }

    #[test]
    fn faults_with_replayed_verdicts_between_them_are_not_consecutive() {
        let breaker = Breaker::default();
        for n in 0..10 * FAULTS {
            assert_eq!(fail(&breaker, FailureClass::Trap, n), Transition::None);
            breaker.replayed();
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_and_bad_objects_do_not_count() {
        let breaker = Breaker::default();
        for n in 0..100 {
            assert_eq!(fail(&breaker, FailureClass::Refused, n), Transition::None);
            assert_eq!(fail(&breaker, FailureClass::Document, n), Transition::None);
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_never_exceed_the_longest() {
        let breaker = Breaker::default();
        let mut last = Duration::ZERO;
        for n in 0..64 {
            if let Transition::Opened(pause) = fail(&breaker, FailureClass::Memory, n) {
                last = pause;
                tokio::time::advance(pause).await;
                std::mem::forget(breaker.admit());
            }
        }
        assert_eq!(last, LONGEST);
    }
}
