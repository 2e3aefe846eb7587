//! A linked module, and one configured instance of it. After any fault the holder drops the instance: its memory may be
//! in any state.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, Linker, Resource};
use wasmtime::{Store, UpdateDeadline};
use weir_document::Document;

use super::approve::{Refused, approve};
use super::bindings::exports::weir::filter::module;
use super::bindings::{Filter as Bindings, FilterPre};
use super::engine::{Engine, TICK};
use super::fault::{FailureClass, Fault};
use super::state::{GuestState, InstanceContext};
use super::trace::Trace;
use super::view::Snapshot;
use super::wasi;

/// Most bytes that one call may carry from the module to the host: an object of etcd's size limit, replaced whole,
/// with room.
const HOSTCALL: usize = 16 << 20;
/// Time for instantiate, describe and configure together. They run once per instance, not per object.
const START: Duration = Duration::from_secs(1);
/// Longest settings, name or summary taken from a module.
const TEXT: usize = 4096;

/// A module, compiled and linked. Clones share the code.
#[derive(Clone)]
pub struct Linked {
    engine: Engine,
    pre: FilterPre<GuestState>,
}

/// What bounds the instances of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Linear memory, in bytes.
    pub memory: usize,
    /// Running time per object, in wall time while it runs.
    pub time: Duration,
}

/// A module's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The filter's name, as its author calls it.
    pub name: String,
    /// The module's version.
    pub version: String,
    /// One line for people.
    pub summary: String,
}

/// The plan of a module for its settings; strings are as the module wrote them.
#[derive(Debug, Clone)]
pub struct RawPlan {
    /// Match rules, used when the configuration names none.
    pub matches: Vec<String>,
    /// The kinds that it looks up.
    pub lookups: Vec<module::Lookup>,
}

/// Why a module's code can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Not WebAssembly at all.
    #[error("it is not a valid WebAssembly component: it does not begin with \\0asm")]
    Foreign,
    /// Not a component, or one that does not validate.
    #[error("it is not a valid WebAssembly component: {0:#}")]
    Invalid(wasmtime::Error),
    /// It imports or exports what a filter may not.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An import or export has another type than the contract's.
    #[error("it was built for another version of the contract: {0:#}")]
    Mismatch(wasmtime::Error),
}

/// Why an instance could not be brought up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The module failed while it started or took in its settings.
    #[error("it failed at its start ({class}): {0}", class = .0.class.label())]
    Fault(Fault),
    /// The module does not accept its settings.
    #[error("settings refused: {0}")]
    Settings(String),
}

/// One configured instance.
pub struct Instance {
    store: Store<GuestState>,
    bindings: Bindings,
    ticks: u64,
    objects: u64,
}

/// What a filter made of an object.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the client may see it.
    pub keep: bool,
    /// The object after this filter's edits.
    pub object: Document,
}

/// How a call of `filter` ended. A call that faulted has a trace too: the fault may depend on what it looked up.
#[derive(Debug)]
pub struct Called {
    /// The verdict, or the fault that took its place.
    pub verdict: Result<Verdict, Fault>,
    /// What the call read.
    pub trace: Trace,
}

impl Linked {
    /// Links a compiled component, if it asks for nothing that a filter may not have.
    ///
    /// # Errors
    /// When the bytes are no component, or it is refused.
    pub fn new(engine: &Engine, component: &[u8]) -> Result<Self, LinkError> {
        if !component.starts_with(b"\0asm") {
            return Err(LinkError::Foreign);
        }
        let component = Component::from_binary(engine.inner(), component).map_err(LinkError::Invalid)?;
        approve(engine, &component)?;
        let mut linker = Linker::new(engine.inner());
        let linked = wasi::link(&mut linker)
            .and_then(|()| Bindings::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |state| state))
            .and_then(|()| linker.instantiate_pre(&component))
            .and_then(FilterPre::new)
            .map_err(LinkError::Mismatch)?;
        Ok(Self { engine: engine.clone(), pre: linked })
    }

    /// The engine it is linked for.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Has a fresh instance describe itself.
    ///
    /// # Errors
    /// When it faults.
    pub async fn describe(&self, context: Arc<InstanceContext>, bounds: Bounds) -> Result<Description, StartError> {
        let (mut store, bindings) = self.start(context, bounds).await.map_err(StartError::Fault)?;
        let said = bindings.weir_filter_module().call_describe(&mut store).await;
        let said = said.map_err(|error| StartError::Fault(fault(&mut store, &error)))?;
        let line = |text: &str| super::fault::one_line(text, TEXT);
        Ok(Description { name: line(&said.name), version: line(&said.version), summary: line(&said.summary) })
    }

    /// Makes an instance and configures it.
    ///
    /// # Errors
    /// When the module faults, or refuses the settings.
    pub async fn instance(
        &self,
        context: Arc<InstanceContext>,
        bounds: Bounds,
        settings: &str,
    ) -> Result<(Instance, RawPlan), StartError> {
        let (mut store, bindings) = self.start(context, bounds).await.map_err(StartError::Fault)?;
        let plan = match bindings.weir_filter_module().call_configure(&mut store, settings).await {
            Ok(Ok(plan)) => RawPlan { matches: plan.matches, lookups: plan.lookups },
            Ok(Err(reason)) => return Err(StartError::Settings(super::fault::one_line(&reason, TEXT))),
            Err(error) => return Err(StartError::Fault(fault(&mut store, &error))),
        };
        Ok((Instance { store, bindings, ticks: ticks(bounds.time), objects: 0 }, plan))
    }

    async fn start(
        &self,
        context: Arc<InstanceContext>,
        bounds: Bounds,
    ) -> Result<(Store<GuestState>, Bindings), Fault> {
        let host = |error: &wasmtime::Error| Fault::new(FailureClass::Host, &format!("{error:#}"));
        let state = GuestState::new(context, bounds.memory, self.engine.clock());
        let mut store = Store::try_new(self.engine.inner(), state).map_err(|error| host(&error))?;
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(HOSTCALL);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let in_time = store.data_mut().budget.charge();
            Ok(if in_time { UpdateDeadline::Yield(1) } else { UpdateDeadline::Interrupt })
        });
        store.data_mut().begin_configure(ticks(START));
        match self.pre.instantiate_async(&mut store).await {
            Ok(bindings) => Ok((store, bindings)),
            Err(error) => Err(fault(&mut store, &error)),
        }
    }
}

impl Instance {
    /// Filters one object. After a fault the instance is dead and must be dropped; the object is lost with it (the caller
    /// keeps a [`Document`] clone, which is cheap). Dropping the future kills the instance too.
    ///
    /// The call sees `snapshot`, or without one the newest at its first lookup. `record`: its host calls are recorded.
    pub async fn filter(&mut self, object: Document, snapshot: Option<Arc<dyn Snapshot>>, record: bool) -> Called {
        self.objects += 1;
        self.store.data_mut().begin_filter(self.ticks, object, snapshot, record);
        self.store.set_epoch_deadline(1);
        let result = self.bindings.weir_filter_module().call_filter(&mut self.store, Resource::new_borrow(0)).await;
        let (object, trace) = self.store.data_mut().end_filter();
        let verdict = match result {
            Ok(Ok(verdict)) => match object {
                Some(object) => Ok(Verdict { keep: matches!(verdict, module::Verdict::Keep), object }),
                None => Err(Fault::new(FailureClass::Host, "the object was lost in the call")),
            },
            Ok(Err(reason)) => Err(Fault::new(FailureClass::Refused, &reason)),
            Err(error) => Err(fault(&mut self.store, &error)),
        };
        Called { verdict, trace }
    }

    /// Whether it holds so many paths that it is to be replaced.
    pub(super) fn is_cluttered(&self) -> bool {
        self.store.data().paths.are_many()
    }

    /// Objects filtered so far.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The most linear memory it has used, in bytes; memory never shrinks, so it is also what it holds.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.store.data().memory.peak
    }
}

fn ticks(time: Duration) -> u64 {
    // One more: the first tick comes at any moment after the call began.
    u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX).saturating_add(1)
}

fn fault(store: &mut Store<GuestState>, error: &wasmtime::Error) -> Fault {
    let state = store.data_mut();
    Fault::of(error, state.memory.refused, &state.output.last())
}

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("objects", &self.objects).finish_non_exhaustive()
    }
}
