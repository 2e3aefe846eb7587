//! A linked module, and configured instances of it. After a fault the caller drops the instance, because its memory may
//! be in any state.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, Linker, Resource};
use wasmtime::{Store, UpdateDeadline};
use weir_document::Document;

use super::approve::{Refused, approve};
use super::bindings::exports::weir::filter::module::{self, Plan};
use super::bindings::{Filter as Bindings, FilterPre};
use super::engine::{Engine, TICK};
use super::explanation::Steps;
use super::fault::{FailureClass, Fault};
use super::header::not_wasm;
use super::state::{GuestState, InstanceContext};
use super::trace::Trace;
use super::verdict::Verdict;
use super::view::Snapshot;
use super::wasi;

/// The maximum number of bytes that one call may pass from the module to the host. It exceeds the size limit of etcd,
/// so that a filter can replace whole objects.
pub(super) const HOSTCALL: usize = 16 << 20;
/// The wall time of a call beyond [`Bounds::time`]. Epochs charge the time in which a module runs; this ends a call that waits.
const WALL: Duration = Duration::from_secs(10);
/// The time limit of instantiation, `describe` and `configure` together. They run once per instance.
pub(super) const START: Duration = Duration::from_secs(1);
/// The maximum length of a text from a module's description or of its reason to refuse settings, in bytes.
pub(super) const TEXT: usize = 4096;

/// A compiled and linked module. Clones share the code.
#[derive(Clone)]
pub(crate) struct Linked {
    engine: Engine,
    pre: FilterPre<GuestState>,
}

/// The bounds of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The linear memory in bytes.
    pub(crate) memory: usize,
    /// The time per object: wall time while the instance runs.
    pub(crate) time: Duration,
}

/// A module's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The name of the filter.
    pub name: String,
    /// The version of the module.
    pub version: String,
    /// A description in one line.
    pub summary: String,
}

/// The reason why a module cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// It is no component by its beginning.
    #[error("it is not a valid WebAssembly component: {0}")]
    Foreign(&'static str),
    /// It is not a component, or an invalid one.
    #[error("it is not a valid WebAssembly component, it is damaged or cut off: build or copy it again ({0:#})")]
    Invalid(wasmtime::Error),
    /// It has imports or exports that a filter may not have.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An import or export has another type than in the contract.
    #[error(
        "it was built for another version of the contract weir:filter: build it with the contract that `weir wit` writes ({0:#})"
    )]
    Mismatch(wasmtime::Error),
}

/// The reason why an instance could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The module failed at its start, or in `describe` or `configure`.
    #[error("it failed at its start ({class}): {0}", class = .0.class.label())]
    Fault(Fault),
    /// The module does not accept its settings.
    #[error("settings refused: {0}")]
    Settings(String),
}

/// One configured instance.
pub(crate) struct Instance {
    store: Store<GuestState>,
    bindings: Bindings,
    time: Duration,
    objects: u64,
}

/// The result of a call of `filter`. A call that faulted has a trace too, because the fault may depend on a lookup.
#[derive(Debug)]
pub(crate) struct Called {
    /// The verdict, or the fault.
    pub(crate) verdict: Result<Verdict, Fault>,
    /// The trace of the call.
    pub(crate) trace: Trace,
}

impl Engine {
    /// Compiles and links a component, and keeps nothing of it but what the cache of compiled code does.
    ///
    /// # Errors
    /// If the bytes are not a component, or the component is refused.
    pub fn compile(&self, component: &[u8]) -> Result<(), LinkError> {
        Linked::new(self, component).map(drop)
    }
}

impl Linked {
    /// Compiles and links a component, if a filter may have all its imports.
    ///
    /// # Errors
    /// If the bytes are not a component, or the component is refused.
    pub(crate) fn new(engine: &Engine, component: &[u8]) -> Result<Self, LinkError> {
        if let Some(what) = not_wasm(component) {
            return Err(LinkError::Foreign(what));
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

    /// Returns the names of the interfaces that the module imports.
    #[must_use]
    pub(crate) fn imports(&self) -> Vec<String> {
        let component = self.pre.instance_pre().component().component_type();
        component.imports(self.engine.inner()).map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns the engine.
    #[must_use]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Calls `describe` on a fresh instance.
    ///
    /// # Errors
    /// If the call faults.
    pub(crate) async fn describe(
        &self,
        context: Arc<InstanceContext>,
        bounds: Bounds,
    ) -> Result<Description, StartError> {
        let (mut store, bindings) = self.start(context, bounds).await.map_err(StartError::Fault)?;
        let described = within(START, bindings.weir_filter_module().call_describe(&mut store)).await;
        let described = described.map_err(|error| StartError::Fault(fault(&mut store, &error)))?;
        let line = |text: &str| weir_process::one_line(text, TEXT);
        Ok(Description {
            name: line(&described.name),
            version: line(&described.version),
            summary: line(&described.summary),
        })
    }

    /// Creates an instance and configures it.
    ///
    /// # Errors
    /// If the module faults or refuses the settings.
    pub(crate) async fn instance(
        &self,
        context: Arc<InstanceContext>,
        bounds: Bounds,
        settings: &str,
    ) -> Result<(Instance, Plan), StartError> {
        let (mut store, bindings) = self.start(context, bounds).await.map_err(StartError::Fault)?;
        let configured = within(START, bindings.weir_filter_module().call_configure(&mut store, settings)).await;
        let plan = match configured {
            Ok(Ok(plan)) => plan,
            Ok(Err(reason)) => return Err(StartError::Settings(weir_process::one_line(&reason, TEXT))),
            Err(error) => return Err(StartError::Fault(fault(&mut store, &error))),
        };
        Ok((Instance { store, bindings, time: bounds.time, objects: 0 }, plan))
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
        // Only an engine that meters modules takes fuel.
        #[cfg(test)]
        let _ = store.set_fuel(u64::MAX);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let in_time = store.data_mut().budget.charge();
            Ok(if in_time { UpdateDeadline::Yield(1) } else { UpdateDeadline::Interrupt })
        });
        store.data_mut().begin_configure(ticks(START));
        match within(START, self.pre.instantiate_async(&mut store)).await {
            Ok(bindings) => Ok((store, bindings)),
            Err(error) => Err(fault(&mut store, &error)),
        }
    }
}

impl Instance {
    /// Filters one object. After a fault the caller must drop the instance, and the object is lost: keep a clone of the
    /// [`Document`], which is cheap. After dropping the future, the instance is unusable too.
    ///
    /// The call reads from `snapshot`. Without one, its first lookup takes the newest. `record`: records the host
    /// calls.
    pub(crate) async fn filter(
        &mut self,
        object: Document,
        snapshot: Option<Arc<dyn Snapshot>>,
        record: bool,
    ) -> Called {
        let before = object.bytes().clone();
        self.store.data_mut().begin_filter(ticks(self.time), object, snapshot, record);
        self.call(&before).await
    }

    /// Filters one object as [`Instance::filter`] does, from the newest snapshot, and returns what the filter read and edited.
    pub(crate) async fn explain(&mut self, object: Document) -> (Result<Verdict, Fault>, Steps) {
        let before = object.bytes().clone();
        let state = self.store.data_mut();
        state.begin_filter(ticks(self.time), object, None, false);
        state.explain();
        let Called { verdict, .. } = self.call(&before).await;
        (verdict, self.store.data_mut().end_explanation())
    }

    /// Runs the call that has begun, on an object with these bytes.
    async fn call(&mut self, before: &[u8]) -> Called {
        self.objects += 1;
        self.store.set_epoch_deadline(1);
        let call = self.bindings.weir_filter_module().call_filter(&mut self.store, Resource::new_borrow(0));
        let result = within(self.time, call).await;
        let (object, trace) = self.store.data_mut().end_filter();
        let verdict = match result {
            Ok(Ok(verdict)) => match object {
                Some(object) => Ok(Verdict::of_call(matches!(verdict, module::Verdict::Keep), object, before)),
                None => Err(Fault::new(FailureClass::Host, "the object was lost in the call")),
            },
            Ok(Err(reason)) => Err(Fault::new(FailureClass::Refused, &reason)),
            Err(error) => Err(fault(&mut self.store, &error)),
        };
        Called { verdict, trace }
    }

    /// Returns whether the guest holds so many paths that the instance must be replaced.
    pub(super) fn is_cluttered(&self) -> bool {
        self.store.data().paths.are_many()
    }

    /// Returns the number of filtered objects.
    #[must_use]
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns the fuel that is left: each instruction takes one.
    #[cfg(test)]
    pub(super) fn fuel(&self) -> u64 {
        self.store.get_fuel().unwrap_or_default()
    }

    /// Returns its linear memory in bytes. Linear memory never shrinks.
    #[must_use]
    pub(crate) fn memory(&self) -> usize {
        self.store.data().memory.linear()
    }
}

/// Runs a call within its wall time. A call that is cut off leaves its instance unusable, as any failure does.
async fn within<T>(time: Duration, call: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
    match tokio::time::timeout(WALL + 10 * time, call).await {
        Ok(result) => result,
        Err(_) => Err(wasmtime::Trap::Interrupt.into()),
    }
}

fn ticks(time: Duration) -> u64 {
    // One more, because the first tick can end right after the start of the call.
    u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX).saturating_add(1)
}

fn fault(store: &mut Store<GuestState>, error: &wasmtime::Error) -> Fault {
    let state = store.data_mut();
    Fault::of(error, state.memory.refused(), &state.output.last())
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
