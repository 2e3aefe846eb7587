//! What the host keeps for one instance: the object at hand, the handles it gave out, and what bounds it.
//! Everything here dies with the instance; handles to looked-up objects die with the call.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Result};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use weir_document::{Document, Path, StringSet};
use weir_kube::Lookup;

use super::fault::Refusal;
use super::finder::Finder;
use super::found::{Found, FoundSelection};
use super::lesson::Lesson;
use super::wasi::{self, Printed};
use super::world::{Recorder, World};

/// Distinct paths of one instance.
const PATHS: usize = 4096;
/// Looked-up objects that one call may hold at once.
const LOOKED_UP: usize = 16_384;
/// Selections that one call may hold at once.
const SELECTIONS: usize = 256;
/// String sets that one instance may hold at once.
const STRING_SETS: usize = 64;
/// What they may take in memory together, in bytes.
const STRING_SETS_WEIGHT: usize = 8 << 20;
/// Elements of one of the module's tables.
const TABLE_ELEMENTS: usize = 1 << 20;

/// The handle of the object at hand; looked-up objects are numbered from 1.
pub(super) const AT_HAND: u32 = 0;

/// A guest's handle to an object: the one at hand, or a looked-up one.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct ObjectHandle;
/// A guest's handle to a path: an index into the instance's interned paths.
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

/// What an instance may see and how it is told; the same for all instances of a filter.
#[derive(Debug)]
pub struct Surroundings {
    /// The filter's name, for the log.
    pub filter: Arc<str>,
    /// Where lookups are answered.
    pub world: Arc<dyn World>,
    /// What the filter's plan declared and its configuration granted. Empty until the probe has run.
    pub lookups: Vec<Arc<Lookup>>,
    /// Where reads are recorded.
    pub recorder: Arc<dyn Recorder>,
}

/// Which export runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// describe or configure: nothing may be looked up.
    Configure,
    /// filter.
    Filter,
}

/// The maps of metadata that are read by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Labels,
    Annotations,
}

/// The data of one store.
#[allow(unreachable_pub, reason = "the generated bindings name it")]
pub struct GuestState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(super) printed: Printed,
    pub(super) memory: MemoryLimit,
    /// Ticks left to the running call.
    pub(super) budget: u64,
    pub(super) phase: Phase,
    pub(super) surroundings: Arc<Surroundings>,
    /// The object at hand; present while `filter` runs.
    pub(super) object: Option<Document>,
    /// Answers this call's lookups.
    pub(super) finder: Finder,
    paths: Vec<Path>,
    path_numbers: HashMap<String, u32, foldhash::fast::RandomState>,
    /// Numbers of the paths of labels and annotations.
    label_paths: HashMap<String, u32, foldhash::fast::RandomState>,
    annotation_paths: HashMap<String, u32, foldhash::fast::RandomState>,
    pub(super) held: Slots<Found>,
    pub(super) selections: Slots<FoundSelection>,
    pub(super) string_sets: StringSets,
    /// What the running call does, as far as it can be told.
    pub(super) lesson: Lesson,
}

/// Caps the memory and tables of an instance and remembers whether it was refused.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit: usize,
    pub(super) peak: usize,
    pub(super) refused: bool,
}

/// Handles by number; freed numbers are used again, so that the table stays as small as what is held at once.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    limit: usize,
    what: &'static str,
}

/// String sets by number, bounded in what they take in memory.
#[derive(Debug)]
pub(super) struct StringSets {
    sets: Slots<Arc<StringSet>>,
    weight: usize,
}

impl GuestState {
    pub(super) fn new(surroundings: Arc<Surroundings>, memory: usize) -> Self {
        let printed = Printed::new(surroundings.filter.clone());
        Self {
            wasi: wasi::context(&printed),
            table: ResourceTable::new(),
            printed,
            memory: MemoryLimit { limit: memory, peak: 0, refused: false },
            budget: 0,
            phase: Phase::Configure,
            finder: Finder::new(surroundings.clone()),
            surroundings,
            object: None,
            paths: Vec::new(),
            path_numbers: HashMap::default(),
            label_paths: HashMap::default(),
            annotation_paths: HashMap::default(),
            held: Slots::new(LOOKED_UP, "looked-up objects"),
            selections: Slots::new(SELECTIONS, "selections"),
            string_sets: StringSets::new(),
            lesson: Lesson::default(),
        }
    }

    /// A call begins; `learn`: what it asks is wanted.
    pub(super) fn begin(&mut self, phase: Phase, budget: u64, object: Option<Document>, learn: bool) {
        self.lesson.begin(learn);
        self.phase = phase;
        self.budget = budget;
        self.object = object;
        self.memory.refused = false;
        self.printed.begin();
    }

    /// A call is over: what it held is let go, the object comes back, and what it asked of it.
    pub(super) fn end(&mut self) -> Option<(Document, Lesson)> {
        self.finder.end();
        if self.lesson.listens() && self.printed.has_spoken() {
            // A line that people are meant to see is not saved.
            self.lesson.interrupt();
        }
        Some((self.object.take()?, std::mem::take(&mut self.lesson)))
    }

    /// Interns a path and gives its number.
    pub(super) fn intern(&mut self, expression: &str) -> Result<Result<u32, String>> {
        if let Some(number) = self.path_numbers.get(expression) {
            return Ok(Ok(*number));
        }
        if self.paths.len() >= PATHS {
            return Err(Refusal::TooMany(PATHS, "paths").into());
        }
        Ok(Path::parse(expression).map_err(|error| error.to_string()).map(|path| {
            let number = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
            self.paths.push(path);
            self.path_numbers.insert(expression.to_owned(), number);
            number
        }))
    }

    pub(super) fn path(&self, number: u32) -> Result<&Path> {
        self.paths.get(number as usize).ok_or_else(|| Refusal::BadHandle(number).into())
    }

    /// The path of one label or annotation.
    pub(super) fn member(&mut self, map: Map, key: &str) -> Result<Path> {
        let known = match map {
            Map::Labels => self.label_paths.get(key),
            Map::Annotations => self.annotation_paths.get(key),
        };
        if let Some(number) = known {
            return self.path(*number).cloned();
        }
        let quoted = key.replace('\\', "\\\\").replace('\'', "\\'");
        let name = match map {
            Map::Labels => "labels",
            Map::Annotations => "annotations",
        };
        let number = self.intern(&format!("metadata.{name}['{quoted}']"))?.map_err(wasmtime::Error::msg)?;
        let paths = match map {
            Map::Labels => &mut self.label_paths,
            Map::Annotations => &mut self.annotation_paths,
        };
        paths.insert(key.to_owned(), number);
        self.path(number).cloned()
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl<T> Slots<T> {
    fn new(limit: usize, what: &'static str) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit, what }
    }

    pub(super) fn put(&mut self, value: T) -> Result<u32> {
        if let Some(slot) = self.free.pop().and_then(|number| self.slots.get_mut(number as usize).zip(Some(number))) {
            *slot.0 = Some(value);
            return Ok(slot.1);
        }
        if self.slots.len() >= self.limit {
            return Err(Refusal::TooMany(self.limit, self.what).into());
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).map_err(Into::into)
    }

    pub(super) fn get(&self, number: u32) -> Result<&T> {
        self.slots.get(number as usize).and_then(Option::as_ref).ok_or_else(|| Refusal::BadHandle(number).into())
    }

    pub(super) fn free(&mut self, number: u32) -> Option<T> {
        let value = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }
}

impl StringSets {
    fn new() -> Self {
        Self { sets: Slots::new(STRING_SETS, "string sets"), weight: 0 }
    }

    pub(super) fn put(&mut self, set: StringSet) -> Result<u32> {
        let weight = set.weight();
        if self.weight + weight > STRING_SETS_WEIGHT {
            return Err(Refusal::TooMany(STRING_SETS_WEIGHT, "bytes in string sets").into());
        }
        let number = self.sets.put(Arc::new(set))?;
        self.weight += weight;
        Ok(number)
    }

    pub(super) fn get(&self, number: u32) -> Result<&Arc<StringSet>> {
        self.sets.get(number)
    }

    pub(super) fn free(&mut self, number: u32) {
        if let Some(set) = self.sets.free(number) {
            self.weight -= set.weight();
        }
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let granted = desired <= self.limit;
        if granted {
            self.peak = self.peak.max(desired);
        } else {
            self.refused = true;
        }
        Ok(granted)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let granted = desired <= TABLE_ELEMENTS;
        self.refused |= !granted;
        Ok(granted)
    }

    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        4
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
