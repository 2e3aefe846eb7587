//! Looking up: what the plan declares, in which state of the world, with every read recorded. One for each instance, and
//! one for each who takes a filter's steps without it (`filter/foresight.rs`).

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::Result;
use weir_document::{Document, LookedUp, Path, Selection};
use weir_kube::{GroupResource, InterfaceAddress, Lookup};

use super::fault::Refusal;
use super::found::{Found, FoundSelection};
use super::state::Surroundings;
use super::world::{Read, Snapshot, addresses_value};

/// Looks up for one call at a time.
#[derive(Debug)]
pub struct Finder {
    surroundings: Arc<Surroundings>,
    /// The state that this call's lookups see; taken by its first one.
    snapshot: OnceCell<Arc<dyn Snapshot>>,
    /// By the kind as the module spells it: one or two spellings each.
    declared: HashMap<String, Declared, foldhash::fast::RandomState>,
}

/// The declared lookups of one kind, as the plan orders them; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared(Arc<[Arc<Lookup>]>);

impl Finder {
    pub(crate) fn new(surroundings: Arc<Surroundings>) -> Self {
        Self { surroundings, snapshot: OnceCell::new(), declared: HashMap::default() }
    }

    /// The call is over: what it saw is let go.
    pub(crate) fn end(&mut self) {
        self.snapshot = OnceCell::new();
    }

    /// Moves when what was recorded no longer counts.
    pub(crate) fn generation(&self) -> u64 {
        self.surroundings.recorder.generation()
    }

    /// What is declared of a kind.
    pub(crate) fn declared(&mut self, resource: &str) -> Result<Declared> {
        if let Some(declared) = self.declared.get(resource) {
            return Ok(declared.clone());
        }
        let undeclared = |hint| Refusal::Undeclared(resource.to_owned(), hint);
        let wanted: GroupResource = resource.parse().map_err(|_| undeclared(" (no such resource name)"))?;
        let of_kind = self.surroundings.lookups.iter().filter(|lookup| lookup.resource == wanted);
        let declared = Declared(of_kind.cloned().collect());
        if declared.0.is_empty() {
            return Err(undeclared("").into());
        }
        self.declared.insert(resource.to_owned(), declared.clone());
        Ok(declared)
    }

    /// One object.
    pub(super) fn get(&self, of: &Declared, namespace: Option<&str>, name: &str) -> Result<Option<Found>> {
        let lookup = of.covering(Some(name))?;
        let Some(object) = self.snapshot().get(lookup, namespace, name) else {
            let (namespace, name) = (namespace.map(Into::into), name.into());
            self.note(&Read::Object { lookup: lookup.clone(), namespace, name, at: None }, 0);
            return Ok(None);
        };
        let found = Found { object, lookup: lookup.clone() };
        found.record(None, &*self.surroundings.recorder);
        Ok(Some(found))
    }

    /// The object that another one refers to by the text at a path: in its namespace, or outside of all.
    pub(super) fn referent(&self, of: &Declared, from: &Document, at: &Path) -> Result<Option<Found>> {
        let Some(name) = from.text(at)? else { return Ok(None) };
        let namespace = from.namespace()?;
        match self.get(of, namespace.as_deref(), &name)? {
            None if namespace.is_some() => self.get(of, None, &name),
            found => Ok(found),
        }
    }

    /// The objects of a namespace (or all) that a label selector matches.
    pub(super) fn find(&self, of: &Declared, namespace: Option<&str>, label_selector: &str) -> Result<FoundSelection> {
        let lookup = of.covering(None)?;
        let selection = self
            .snapshot()
            .find(lookup, namespace, label_selector)
            .map_err(|reason| Refusal::Selector(label_selector.to_owned(), reason))?;
        let (namespace, label_selector) = (namespace.map(Into::into), label_selector.into());
        let found = FoundSelection { selection, lookup: lookup.clone(), namespace, label_selector };
        found.record(None, &*self.surroundings.recorder);
        Ok(found)
    }

    /// The node's addresses.
    pub(super) fn addresses(&self) -> Arc<[InterfaceAddress]> {
        let addresses = self.snapshot().addresses();
        self.note(&Read::Addresses, addresses_value(&addresses));
        addresses
    }

    /// What was found, for reading at a path, which is recorded.
    pub(super) fn read<'a>(&self, found: &'a Found, at: &Path) -> &'a LookedUp {
        found.record(Some(at), &*self.surroundings.recorder);
        &found.object
    }

    /// A selection, for reading at a path, which is recorded.
    pub(super) fn read_all<'a>(&self, found: &'a FoundSelection, at: &Path) -> &'a Selection {
        found.record(Some(at), &*self.surroundings.recorder);
        &found.selection
    }

    fn snapshot(&self) -> &dyn Snapshot {
        &**self.snapshot.get_or_init(|| self.surroundings.world.snapshot())
    }

    fn note(&self, read: &Read, value: u64) {
        self.surroundings.recorder.note(read, value);
    }
}

impl Declared {
    /// The one that covers a question about one name, or about many objects.
    fn covering(&self, name: Option<&str>) -> Result<&Arc<Lookup>> {
        let all = || self.0.iter();
        let found = match name {
            // The narrowest that holds it: by this name, else a whole kind, else a selected part of it.
            Some(name) => all()
                .find(|lookup| lookup.name.as_deref() == Some(name))
                .or_else(|| all().find(|lookup| lookup.name.is_none() && lookup.label_selector.is_none()))
                .or_else(|| all().find(|lookup| lookup.name.is_none())),
            None => all()
                .find(|lookup| lookup.name.is_none() && lookup.label_selector.is_none())
                .or_else(|| all().find(|lookup| lookup.name.is_none()))
                .or_else(|| all().next()),
        };
        let refused = || {
            let kind = all().next().map(|lookup| lookup.resource.to_string()).unwrap_or_default();
            Refusal::Undeclared(kind, " for this name")
        };
        found.ok_or_else(|| refused().into())
    }
}
