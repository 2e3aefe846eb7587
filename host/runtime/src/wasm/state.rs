//! The host state of one instance: the filtered object, the handles that the guest holds, and the bounds. It is dropped
//! with the instance. Handles of looked-up objects end with the call.

use std::borrow::Cow;
use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use weir_document::{Document, StringSet};
use weir_spec::LookupSpec;

use super::budget::Budget;
use super::dependency::Epoch;
use super::engine::Clock;
use super::evaluate::{Scope, evaluate};
use super::explanation::{Explainer, Steps};
use super::fault::Refusal;
use super::handles::Slots;
use super::host_call::{HostCall, Observed};
use super::log_rate::LogRate;
use super::lookup::LookupContext;
use super::memory_limit::MemoryLimit;
use super::paths::{Paths, path_weight};
use super::trace::{Recorder, Trace};
use super::view::{ClusterView, Snapshot};
use super::wasi::{self, Output};

/// The maximum number of string sets that one instance may hold.
pub(super) const STRING_SETS: usize = 64;
/// The maximum memory of all string sets of one instance in bytes.
pub(super) const STRING_SETS_WEIGHT: usize = 8 << 20;

/// The handle of the filtered object.
pub(super) const OBJECT: u32 = 0;

/// A guest's handle to an object: the filtered one, or a looked-up one.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct ObjectHandle;
/// A guest's handle to a path.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct PathHandle;
/// A guest's handle to a string set.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct StringSetHandle;
/// A guest's handle to a selection.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct SelectionHandle;

/// The context that all instances of a filter share.
#[derive(Debug)]
pub(crate) struct InstanceContext {
    /// The filter's name, for the log.
    pub(crate) filter: Arc<str>,
    /// The view that lookups read from.
    pub(crate) view: Arc<dyn ClusterView>,
    /// The lookups that the plan declares and the configuration grants. Empty until the module is validated.
    pub(crate) lookups: Vec<Arc<LookupSpec>>,
    /// The epoch of the filter's dependency set.
    pub(crate) epoch: Arc<Epoch>,
    log_rate: Arc<LogRate>,
    /// That of lines below `info`.
    reason_rate: Arc<LogRate>,
}

impl InstanceContext {
    /// Creates the context of a filter. Without lookups it can be validated only.
    #[must_use]
    pub(crate) fn new(
        filter: Arc<str>,
        view: Arc<dyn ClusterView>,
        lookups: Vec<Arc<LookupSpec>>,
        epoch: Arc<Epoch>,
    ) -> Self {
        let (log_rate, reason_rate) = (Arc::default(), Arc::default());
        Self { filter, view, lookups, epoch, log_rate, reason_rate }
    }
}

/// The export that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// `describe` or `configure`. Lookups are not permitted.
    Configure,
    /// `filter`.
    Filter,
}

/// The data of one store.
#[allow(unreachable_pub, reason = "the generated bindings name it")]
pub struct GuestState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(super) output: Output,
    pub(super) memory: MemoryLimit,
    pub(super) budget: Budget,
    pub(super) phase: Phase,
    pub(super) context: Arc<InstanceContext>,
    /// The filtered object, while `filter` runs.
    object: Option<Cow<'static, Document>>,
    pub(super) scope: Scope,
    recorder: Recorder,
    /// While a call is explained.
    pub(super) explainer: Option<Explainer>,
    pub(super) paths: Paths,
    pub(super) string_sets: StringSets,
}

/// String sets by number, with a bound on their memory.
#[derive(Debug)]
pub(super) struct StringSets {
    sets: Slots<Arc<StringSet>>,
    weight: usize,
}

impl GuestState {
    pub(super) fn new(context: Arc<InstanceContext>, memory: usize, clock: Clock) -> Self {
        let output = Output::new(context.filter.clone(), context.log_rate.clone(), context.reason_rate.clone());
        Self {
            wasi: wasi::context(&output),
            table: wasi::handles(),
            output,
            memory: MemoryLimit::new(memory, wasi::HANDLE_MEMORY),
            budget: Budget::new(clock),
            phase: Phase::Configure,
            scope: Scope::new(LookupContext::new(context.clone())),
            context,
            object: None,
            recorder: Recorder::default(),
            explainer: None,
            paths: Paths::new(),
            string_sets: StringSets::new(),
        }
    }

    /// Begins `describe` or `configure`.
    pub(super) fn begin_configure(&mut self, ticks: u64) {
        self.phase = Phase::Configure;
        self.begin(ticks);
    }

    /// Begins `filter`. `record`: records its host calls.
    pub(super) fn begin_filter(
        &mut self,
        ticks: u64,
        object: Document,
        snapshot: Option<Arc<dyn Snapshot>>,
        record: bool,
    ) {
        self.phase = Phase::Filter;
        self.object = Some(Cow::Owned(object));
        self.scope.begin(snapshot);
        self.recorder.begin(record);
        self.begin(ticks);
    }

    /// Notes the host calls of the call that has begun.
    pub(super) fn explain(&mut self) {
        self.explainer = Some(Explainer::default());
    }

    /// Ends the explanation of a call.
    pub(super) fn end_explanation(&mut self) -> Steps {
        self.explainer.take().map(Explainer::end).unwrap_or_default()
    }

    fn begin(&mut self, ticks: u64) {
        self.budget.begin(ticks);
        self.memory.begin();
        self.output.begin();
    }

    /// Ends `filter` after a verdict or a fault. Its handles become stale. Returns the object and the trace.
    pub(super) fn end_filter(&mut self) -> (Option<Document>, Trace) {
        if self.output.was_written() {
            // A call that wrote a log line is never elided.
            self.recorder.discard();
        }
        let dependencies = self.scope.end();
        (self.object.take().map(Cow::into_owned), self.recorder.end(dependencies))
    }

    /// Keeps a string set for the guest.
    pub(super) fn put_string_set(&mut self, strings: StringSet) -> Result<u32> {
        self.memory.hold(strings.weight())?;
        self.string_sets.put(strings)
    }

    /// Frees a string set.
    pub(super) fn free_string_set(&mut self, number: u32) {
        self.memory.release(self.string_sets.free(number));
    }

    /// Keeps a path for the guest, or returns the reason why it is not a valid path.
    pub(super) fn open_path(&mut self, expression: &str) -> Result<Result<u32, String>> {
        match self.paths.parse(expression) {
            Ok(path) => {
                self.memory.hold(path_weight(&path))?;
                self.paths.put(path).map(Ok)
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Frees a path.
    pub(super) fn free_path(&mut self, number: u32) {
        self.memory.release(self.paths.free(number).map_or(0, |path| path_weight(&path)));
    }

    /// Evaluates a host call of the guest, records it, and charges its time.
    pub(super) fn evaluate(&mut self, call: HostCall) -> Result<Observed<'_>> {
        let Self { object, scope, recorder, budget, memory, explainer, .. } = self;
        memory.keep(call.kept())?;
        let object = object.as_mut().ok_or(Refusal::BadHandle(OBJECT))?;
        if let Some(explainer) = explainer {
            return explain_call(&call, object, scope, explainer);
        }
        let observed = budget.host_call(|| evaluate(&call, object, scope))?;
        recorder.record(call, &observed);
        Ok(observed)
    }
}

/// Evaluates a host call of a call that is explained. The result is a copy: what it refers to has a name, which is read after it.
fn explain_call<'a>(
    call: &HostCall,
    object: &mut Cow<'static, Document>,
    scope: &mut Scope,
    explainer: &mut Explainer,
) -> Result<Observed<'a>> {
    let observed = match evaluate(call, object, scope) {
        Ok(observed) => observed.to_owned(),
        Err(error) => {
            explainer.fault(call, &format!("{error:#}"));
            return Err(error);
        }
    };
    match &observed {
        Observed::Hit(place) => explainer.found(call, scope.hits.get(*place)?),
        Observed::Selection(place) => explainer.selected(call, scope.selections.get(*place)?.selection.objects().len()),
        other => explainer.observe(call, other),
    }
    Ok(observed)
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl StringSets {
    fn new() -> Self {
        Self { sets: Slots::new(STRING_SETS, "string sets"), weight: 0 }
    }

    pub(super) fn put(&mut self, strings: StringSet) -> Result<u32> {
        let weight = strings.weight();
        if self.weight + weight > STRING_SETS_WEIGHT {
            return Err(Refusal::TooMany(STRING_SETS_WEIGHT, "bytes in string sets").into());
        }
        let number = self.sets.put(Arc::new(strings))?;
        self.weight += weight;
        Ok(number)
    }

    pub(super) fn get(&self, number: u32) -> Result<&Arc<StringSet>> {
        self.sets.get(number)
    }

    /// Frees a set and returns its weight.
    pub(super) fn free(&mut self, number: u32) -> usize {
        let freed = self.sets.free(number).map_or(0, |strings| strings.weight());
        self.weight -= freed;
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_sets_are_bounded_in_number_and_weight_and_free_both() {
        let mut sets = StringSets::new();
        let numbers: Vec<u32> =
            (0..STRING_SETS).map(|n| sets.put([n.to_string()].into_iter().collect()).unwrap()).collect();
        assert!(sets.put(StringSet::default()).is_err(), "one too many");
        for (n, number) in numbers.iter().enumerate() {
            assert!(sets.get(*number).unwrap().contains(&n.to_string()));
            sets.free(*number);
            sets.free(*number);
            assert!(sets.get(*number).is_err());
        }
        assert_eq!(sets.weight, 0);
        let half = || ["x".repeat(STRING_SETS_WEIGHT / 2)].into_iter().collect::<StringSet>();
        let first = sets.put(half()).unwrap();
        assert!(sets.put(half()).is_err(), "too much");
        sets.free(first);
        assert!(sets.put(half()).is_ok());
    }
}
