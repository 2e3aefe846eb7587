//! A linked module, and one instance of it with its settings taken in. An instance in which anything went wrong is
//! dropped by whoever holds it: its memory may be in any state.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, Linker, Resource};
use wasmtime::{Store, UpdateDeadline};
use weir_document::Document;

use super::approve::{Refused, approve};
use super::bindings::exports::weir::filter::module;
use super::bindings::{Filter as Bindings, FilterPre};
use super::engine::{Engine, TICK};
use super::fault::Fault;
use super::lesson::Lesson;
use super::state::{GuestState, Phase, Surroundings};
use super::wasi;
use crate::FailureClass;

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

/// What a module says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The filter's name, as its author calls it.
    pub name: String,
    /// The module's version.
    pub version: String,
    /// One line for people.
    pub summary: String,
}

/// What a module wants, given its settings; strings are as the module wrote them.
#[derive(Debug, Clone)]
pub struct RawPlan {
    /// Match rules, used when the configuration names none.
    pub matches: Vec<String>,
    /// What it will look up.
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
    /// Refused by what it imports or exports.
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

/// One instance that has taken in its settings.
pub struct Instance {
    store: Store<GuestState>,
    bindings: Bindings,
    ticks: u64,
    objects: u64,
}

/// What a filter said of an object. The object comes back, edited or not.
#[derive(Debug)]
pub struct Answer {
    /// Whether the client may see it.
    pub keep: bool,
    /// The object after this filter's edits.
    pub object: Document,
    /// What the filter asked of it, if that was wanted.
    pub lesson: Lesson,
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

    /// Asks a fresh instance what it is.
    ///
    /// # Errors
    /// When it faults.
    pub async fn describe(&self, surroundings: Arc<Surroundings>, bounds: Bounds) -> Result<Description, StartError> {
        let (mut store, bindings) = self.start(surroundings, bounds).await.map_err(StartError::Fault)?;
        let said = bindings.weir_filter_module().call_describe(&mut store).await;
        let said = said.map_err(|error| StartError::Fault(fault(&mut store, &error)))?;
        let line = |text: &str| super::fault::one_line(text, TEXT);
        Ok(Description { name: line(&said.name), version: line(&said.version), summary: line(&said.summary) })
    }

    /// Brings up an instance with its settings taken in.
    ///
    /// # Errors
    /// When the module faults, or refuses the settings.
    pub async fn instance(
        &self,
        surroundings: Arc<Surroundings>,
        bounds: Bounds,
        settings: &str,
    ) -> Result<(Instance, RawPlan), StartError> {
        let (mut store, bindings) = self.start(surroundings, bounds).await.map_err(StartError::Fault)?;
        let plan = match bindings.weir_filter_module().call_configure(&mut store, settings).await {
            Ok(Ok(plan)) => RawPlan { matches: plan.matches, lookups: plan.lookups },
            Ok(Err(reason)) => return Err(StartError::Settings(super::fault::one_line(&reason, TEXT))),
            Err(error) => return Err(StartError::Fault(fault(&mut store, &error))),
        };
        Ok((Instance { store, bindings, ticks: ticks(bounds.time), objects: 0 }, plan))
    }

    async fn start(
        &self,
        surroundings: Arc<Surroundings>,
        bounds: Bounds,
    ) -> Result<(Store<GuestState>, Bindings), Fault> {
        let host = |error: &wasmtime::Error| Fault::new(FailureClass::Host, &format!("{error:#}"));
        let state = GuestState::new(surroundings, bounds.memory);
        let mut store = Store::try_new(self.engine.inner(), state).map_err(|error| host(&error))?;
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(HOSTCALL);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let budget = &mut store.data_mut().budget;
            // A slice counts only when the module really ran into it: a thread that the system put aside loses one.
            Ok(match budget.checked_sub(1) {
                None => UpdateDeadline::Interrupt,
                Some(left) => {
                    *budget = left;
                    UpdateDeadline::Yield(1)
                }
            })
        });
        store.data_mut().begin(Phase::Configure, ticks(START), None, false);
        match self.pre.instantiate_async(&mut store).await {
            Ok(bindings) => Ok((store, bindings)),
            Err(error) => Err(fault(&mut store, &error)),
        }
    }
}

impl Instance {
    /// Shows the module one object. On `Err` the instance is dead and must be dropped; the object is lost with it
    /// (whoever calls keeps a [`Document`] clone, which is cheap). Dropping the future kills the instance too.
    ///
    /// # Errors
    /// When the module faults, or says that it can't judge this object.
    pub async fn filter(&mut self, object: Document, learn: bool) -> Result<Answer, Fault> {
        self.objects += 1;
        self.store.data_mut().begin(Phase::Filter, self.ticks, Some(object), learn);
        self.store.set_epoch_deadline(1);
        let verdict = self.bindings.weir_filter_module().call_filter(&mut self.store, Resource::new_borrow(0)).await;
        match verdict {
            Ok(Ok(verdict)) => {
                let over = self.store.data_mut().end();
                let lost = || Fault::new(FailureClass::Host, "the object was lost in the call");
                let (object, lesson) = over.ok_or_else(lost)?;
                Ok(Answer { keep: matches!(verdict, module::Verdict::Keep), object, lesson })
            }
            Ok(Err(reason)) => Err(Fault::new(FailureClass::Refused, &reason)),
            Err(error) => Err(fault(&mut self.store, &error)),
        }
    }

    /// Objects shown to it so far.
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
    Fault::of(error, state.memory.refused, &state.printed.last())
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
