//! Runs one filter on one batch of documents. Replays the verdict of a document if the trace cache has it, else calls
//! the module.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use weir_document::Document;

use super::FilterState;
use crate::filter::breaker::{Admission, Transition};
use crate::filter::outcome::{Failure, Filtered, Slot};
use crate::filter::trace_cache::{BatchCache, Replay};
use crate::metrics::BatchCounts;
use crate::{Called, Checkout, FailureClass, Fault, Snapshot, Trace, Verdict};
use weir_spec::FailurePolicy;
use weir_spec::Mode;

/// A running batch. Dropping it discards the checked-out instance and the recorded traces.
pub(super) struct Batch<'a> {
    filter: &'a FilterState,
    began: Instant,
    counts: BatchCounts,
    /// The failures without a call, by the breaker or because the object is set aside.
    uncalled: u64,
    guarded: bool,
    admission: Admission<'a>,
    /// Whether verdicts are replayed. They are not while the breaker is open: the failure policy applies, and a probe
    /// must call the module.
    replays: bool,
    cache: BatchCache<'a>,
    checkout: Option<Checkout>,
}

impl<'a> Batch<'a> {
    pub(super) fn begin(filter: &'a FilterState, guarded: bool) -> Self {
        let admission = filter.breaker.admit();
        Self {
            filter,
            began: Instant::now(),
            counts: BatchCounts::default(),
            uncalled: 0,
            guarded,
            replays: matches!(admission, Admission::Admitted),
            admission,
            cache: filter.trace_cache.begin(|| filter.pool.scope()),
            checkout: None,
        }
    }

    /// Filters the documents that earlier filters have kept, in order. Stores each result in its slot: the edited
    /// document, or the original one if the filter failed on it and has the policy `Ignore`, or if it only observes.
    pub(super) async fn run(mut self, batch: &mut [Slot]) -> BatchCounts {
        let observes = self.filter.mode == Mode::Observe;
        let mut example = None;
        for slot in batch {
            if !slot.is_kept() {
                continue;
            }
            let Filtered::Kept(document) = std::mem::replace(&mut slot.filtered, Filtered::Hidden) else { continue };
            let before = self.filter.guard(document, self.guarded);
            let verdict = self.verdict(&before).await;
            if verdict.is_ok() || !slot.is_repeated {
                self.count(&verdict);
            }
            if observes && !matches!(verdict, Ok(Verdict::Keep)) {
                example.get_or_insert_with(|| before.clone());
            }
            slot.is_degraded |= verdict.is_err() && !observes;
            slot.filtered = match verdict {
                Err(fault) if observes => {
                    self.failed(fault, before.clone());
                    Filtered::Kept(before)
                }
                Err(fault) => self.failed(fault, before),
                Ok(Verdict::Edit(edited)) if !observes => Filtered::Kept(edited),
                Ok(Verdict::Hide) if !observes => Filtered::Hidden,
                Ok(_) => Filtered::Kept(before),
            };
        }
        let Self { filter, began, counts, uncalled, cache, checkout, .. } = self;
        cache.end();
        if let Some(checkout) = checkout {
            filter.pool.give_back(checkout);
        }
        filter.tally.add(counts);
        filter.failure_share.add(counts.objects().saturating_sub(uncalled), counts.failed.saturating_sub(uncalled));
        filter.metrics.batch(&filter.name, observes, counts, began.elapsed());
        if observes {
            filter.observation.note(&filter.name, counts, example.as_ref());
        }
        counts
    }

    /// Returns the filter's verdict on a document, from a replay or a call.
    async fn verdict(&mut self, before: &Document) -> Result<Verdict, Fault> {
        let filter = self.filter;
        let (mut record, mut snapshot) = (false, None);
        if self.replays {
            let (replay, scope) = self.cache.replay(before);
            let dependencies = scope.map(crate::Scope::end).unwrap_or_default();
            match replay {
                Replay::Replayed(replayed) => {
                    self.counts.replayed += 1;
                    filter.breaker.replayed();
                    filter.set_aside.succeeded(before);
                    filter.dependencies.store(&dependencies, filter.pool.view());
                    if filter.is_check_due() {
                        return self.check(before, replayed, dependencies.snapshot().cloned()).await;
                    }
                    return Ok(replayed);
                }
                // The call uses the snapshot of the replay and collects its dependencies again.
                Replay::Call { record: wanted } => (record, snapshot) = (wanted, dependencies.snapshot().cloned()),
            }
        }
        let generation = filter.dependencies.generation();
        if let Some(fault) = filter.set_aside.refuse(before, generation) {
            return Err(fault);
        }
        let Called { verdict, trace } = self.call(before.clone(), snapshot, record).await;
        // Also after a fault, which a change of a value that the call read may resolve.
        filter.dependencies.store(&trace.dependencies, filter.pool.view());
        let called = match verdict {
            Ok(called) => called,
            Err(fault) => {
                let transition = filter.breaker.failed(fault.class, before);
                if let Some(failures) = filter.set_aside.failed(before, generation, &fault) {
                    self.set_aside(before, failures, &fault);
                }
                self.replays &= !matches!(transition, Transition::Opened(_));
                self.transition(transition);
                return Err(fault);
            }
        };
        self.transition(filter.breaker.succeeded());
        filter.set_aside.succeeded(before);
        if self.cache.add(&trace, !matches!(called, Verdict::Hide)).is_err() {
            self.found_impure("two calls of the filter differ although their host calls returned the same");
        }
        if filter.is_check_due() {
            return self.check(before, called, trace.dependencies.snapshot().cloned()).await;
        }
        Ok(called)
    }

    /// Calls the module on the checked-out instance, or checks one out. A fault discards the instance.
    async fn call(&mut self, document: Document, snapshot: Option<Arc<dyn Snapshot>>, record: bool) -> Called {
        let without_call = |fault| Called { verdict: Err(fault), trace: Trace::default() };
        if !self.filter.breaker.permits(&self.admission) {
            let reason = "not called: it failed too often and its circuit breaker is open, see /filters";
            return without_call(Fault::new(FailureClass::BreakerOpen, reason));
        }
        let mut checkout = match self.checkout.take() {
            Some(checkout) => checkout,
            None => match self.filter.pool.check_out().await {
                Ok(checkout) => checkout,
                Err(fault) => return without_call(fault),
            },
        };
        let called = checkout.instance().filter(document, snapshot, record).await;
        if called.verdict.is_ok() {
            self.checkout = Some(checkout);
        }
        called
    }

    /// Filters an object again on a fresh instance, with the same snapshot. A verdict that depends on anything other
    /// than the reads through the imports would make every cache wrong. If the two verdicts differ, the fresh one
    /// counts.
    async fn check(
        &mut self,
        before: &Document,
        verdict: Verdict,
        snapshot: Option<Arc<dyn Snapshot>>,
    ) -> Result<Verdict, Fault> {
        let filter = self.filter;
        let Some(mut fresh) = filter.pool.try_fresh().await else { return Ok(verdict) };
        let Called { verdict: again, trace } = fresh.instance().filter(before.clone(), snapshot, false).await;
        let differs = match &again {
            Ok(again) => !again.agrees_with(&verdict),
            Err(fault) => fault.class.is_repeatable(),
        };
        if !differs {
            return Ok(verdict);
        }
        self.found_impure("a fresh instance of the filter returned another verdict");
        filter.dependencies.store(&trace.dependencies, filter.pool.view());
        again
    }

    fn found_impure(&mut self, how: &str) {
        self.cache.disable();
        self.filter.found_impure(how);
    }

    fn count(&mut self, verdict: &Result<Verdict, Fault>) {
        self.uncalled += u64::from(verdict.as_ref().is_err_and(|fault| !fault.class.is_of_call()));
        let counts = &mut self.counts;
        *match verdict {
            Ok(Verdict::Keep) => &mut counts.kept,
            Ok(Verdict::Edit(_)) => &mut counts.edited,
            Ok(Verdict::Hide) => &mut counts.hidden,
            Err(_) => &mut counts.failed,
        } += 1;
    }

    /// Applies the failure policy.
    fn failed(&self, fault: Fault, before: Document) -> Filtered {
        let filter = self.filter;
        filter.metrics.failure(&filter.name, fault.class);
        if fault.class.is_of_call() {
            let error = format!("{}: {fault}", fault.class.label());
            *filter.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            tracing::warn!(
                filter = %filter.name,
                digest = %filter.digest,
                class = fault.class.label(),
                policy = filter.failure_policy.as_str(),
                namespace = before.namespace().ok().flatten().as_deref().unwrap_or_default(),
                object = before.name().ok().as_deref().unwrap_or_default(),
                "filter failed on an object: {fault}"
            );
        }
        match filter.failure_policy {
            FailurePolicy::Ignore => Filtered::Kept(before),
            FailurePolicy::Hide => Filtered::Hidden,
            FailurePolicy::Fail => Filtered::Failed(Failure {
                filter: filter.name.clone(),
                class: fault.class,
                message: fault.message.into(),
            }),
        }
    }

    /// Logs that an object is set aside.
    fn set_aside(&self, object: &Document, failures: u32, fault: &Fault) {
        let filter = self.filter;
        tracing::error!(
            filter = %filter.name,
            digest = %filter.digest,
            class = fault.class.label(),
            policy = filter.failure_policy.as_str(),
            namespace = object.namespace().ok().flatten().as_deref().unwrap_or_default(),
            object = object.name().ok().as_deref().unwrap_or_default(),
            failures,
            "filter failed again and again on an object: object set aside, the failure policy applies to it"
        );
    }

    fn transition(&self, transition: Transition) {
        let filter = self.filter;
        match transition {
            Transition::None => {}
            Transition::Opened(pause) => {
                tracing::error!(
                    filter = %filter.name,
                    digest = %filter.digest,
                    policy = filter.failure_policy.as_str(),
                    "filter failed too often: circuit breaker open for {pause:?}, its failure policy applies"
                );
                filter.metrics.breaker(&filter.name, true);
            }
            Transition::Closed => {
                tracing::info!(filter = %filter.name, "filter recovered: circuit breaker closed");
                filter.metrics.breaker(&filter.name, false);
            }
        }
    }
}
