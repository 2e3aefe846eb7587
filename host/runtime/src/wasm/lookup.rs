//! The lookups of one filter call. It permits declared kinds only, reads from one snapshot, and collects each value
//! that is read as a dependency.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::Result;
use weir_document::{Document, Path};
use weir_kube::GroupResource;
use weir_spec::{InterfaceAddress, LookupSpec, Presence};

use super::dependency::{Collected, Dependencies, Dependency, EpochMark, Remembering, addresses_value};
use super::fault::Refusal;
use super::hit::{LookupHit, SelectionHit};
use super::long_work;
use super::state::InstanceContext;
use super::view::Snapshot;

/// Evaluates the lookups of one call at a time.
#[derive(Debug)]
pub(crate) struct LookupContext {
    instance: Arc<InstanceContext>,
    dependencies: Dependencies,
    mark: EpochMark,
    /// The declared lookups by the module's spelling of the kind. A module uses one or two spellings.
    declared: HashMap<String, Declared, foldhash::fast::RandomState>,
}

/// The declared lookups of one kind, in the order of the plan. At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared(Arc<[Arc<LookupSpec>]>);

impl LookupContext {
    pub(crate) fn new(instance: Arc<InstanceContext>) -> Self {
        let mark = instance.epoch.mark();
        Self { instance, dependencies: Dependencies::default(), mark, declared: HashMap::default() }
    }

    /// Begins a call with this snapshot, or with none: then its first lookup takes the newest one.
    pub(super) fn begin(&mut self, snapshot: Option<Arc<dyn Snapshot>>) {
        self.mark = self.instance.epoch.mark();
        self.dependencies.snapshot = snapshot;
        self.dependencies.new.clear();
    }

    /// Ends the call and returns its dependencies.
    pub(super) fn end(&mut self) -> Dependencies {
        std::mem::take(&mut self.dependencies)
    }

    /// Returns the declared lookups of a kind.
    pub(crate) fn declared(&mut self, resource: &str) -> Result<Declared> {
        if let Some(declared) = self.declared.get(resource) {
            return Ok(declared.clone());
        }
        let undeclared = |hint| Refusal::Undeclared(resource.to_owned(), hint);
        let wanted: GroupResource = resource.parse().map_err(|_| undeclared(" (no such resource name)"))?;
        let of_kind = self.instance.lookups.iter().filter(|lookup| lookup.resource == wanted);
        let declared = Declared(of_kind.cloned().collect());
        if declared.0.is_empty() {
            return Err(undeclared("").into());
        }
        self.declared.insert(resource.to_owned(), declared.clone());
        Ok(declared)
    }

    /// Returns one object.
    pub(super) fn get(
        &mut self,
        declared: &Declared,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<LookupHit>> {
        let lookup = declared.covering(Some(name))?;
        let Some(object) = self.snapshot().get(lookup, namespace, name) else {
            let (namespace, name) = (namespace.map(Into::into), name.into());
            let dependency = Dependency::Object { lookup: lookup.clone(), namespace, name, at: None };
            self.collect(dependency, 0, Remembering::Nowhere);
            return Ok(None);
        };
        let hit = LookupHit { object, lookup: lookup.clone(), last_known: false, of: None };
        self.depend(&hit, None);
        Ok(Some(hit))
    }

    /// Returns what is known of one object.
    pub(super) fn presence(&mut self, declared: &Declared, namespace: Option<&str>, name: &str) -> Result<Presence> {
        let lookup = declared.covering(Some(name))?;
        let presence = self.snapshot().presence(lookup, namespace, name);
        let (namespace, name) = (namespace.map(Into::into), name.into());
        let dependency = Dependency::Presence { lookup: lookup.clone(), namespace, name };
        self.collect(dependency, presence.number(), Remembering::Nowhere);
        Ok(presence)
    }

    /// Returns one object, or what was last known of it.
    pub(super) fn last_known(
        &mut self,
        declared: &Declared,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<LookupHit>> {
        let lookup = declared.covering(Some(name))?;
        let object = self.snapshot().last_known(lookup, namespace, name);
        let (namespace, name) = (namespace.map(Into::into), name.into());
        let dependency = Dependency::LastKnown { lookup: lookup.clone(), namespace, name, at: None };
        self.collect(dependency, u64::from(object.is_some()), Remembering::Nowhere);
        Ok(object.map(|object| LookupHit { object, lookup: lookup.clone(), last_known: true, of: None }))
    }

    /// Returns the object that another one names at a path: in the same namespace, else a cluster-scoped object.
    pub(super) fn referent(&mut self, declared: &Declared, from: &Document, at: &Path) -> Result<Option<LookupHit>> {
        let Some(name) = from.text(at)? else { return Ok(None) };
        let namespace = from.namespace()?;
        match self.get(declared, namespace.as_deref(), &name)? {
            None if namespace.is_some() => self.get(declared, None, &name),
            found => Ok(found),
        }
    }

    /// Returns the objects that a label selector matches, of one namespace or of all; what was last known of them if there is
    /// none, and that counts.
    pub(super) fn find(
        &mut self,
        declared: &Declared,
        namespace: Option<&str>,
        label_selector: &str,
        last_known: bool,
    ) -> Result<SelectionHit> {
        let lookup = declared.covering(None)?;
        let snapshot = self.snapshot();
        let objects = snapshot.objects_to_read(lookup, namespace, label_selector);
        let selection = long_work::over(objects, || snapshot.find_as(last_known, lookup, namespace, label_selector))
            .map_err(|reason| Refusal::Selector(label_selector.to_owned(), reason))?;
        let (namespace, label_selector) = (namespace.map(Into::into), label_selector.into());
        let hit = SelectionHit { selection, lookup: lookup.clone(), namespace, label_selector, last_known };
        self.depend_on_all(&hit, None);
        Ok(hit)
    }

    /// Returns the node's addresses.
    pub(super) fn addresses(&mut self) -> Arc<[InterfaceAddress]> {
        let addresses = self.snapshot().addresses();
        self.collect(Dependency::Addresses, addresses_value(&addresses), Remembering::Nowhere);
        addresses
    }

    /// Adds a dependency on the value at a path of an object, or on its existence.
    pub(super) fn depend(&mut self, hit: &LookupHit, at: Option<&Path>) {
        if let Some(of) = &hit.of {
            return self.depend_on_all(of, at);
        }
        // The mark of an object stands for dependencies on the object itself.
        if !hit.last_known && hit.object.is_marked(at, self.mark) {
            return;
        }
        let document = hit.object.document();
        let namespace = document.namespace().ok().flatten().map(|namespace| (*namespace).into());
        let name = document.name().map(|name| (*name).into()).unwrap_or_default();
        let (lookup, value) = (hit.lookup.clone(), at.map_or(1, |at| hit.object.value(at)));
        let at = at.cloned();
        if hit.last_known {
            return self.collect(Dependency::LastKnown { lookup, namespace, name, at }, value, Remembering::Nowhere);
        }
        let dependency = Dependency::Object { lookup, namespace, name, at };
        self.collect(dependency, value, Remembering::Object(hit.object.clone()));
    }

    /// Adds a dependency on the values at a path in all objects of a selection, or on their identity.
    pub(super) fn depend_on_all(&mut self, hit: &SelectionHit, at: Option<&Path>) {
        let selection = &hit.selection;
        if !hit.last_known && selection.is_marked(at, self.mark) {
            return;
        }
        let dependency = Dependency::Selection {
            lookup: hit.lookup.clone(),
            namespace: hit.namespace.clone(),
            label_selector: hit.label_selector.clone(),
            last_known: hit.last_known,
            at: at.cloned(),
        };
        let read = || at.map_or_else(|| selection.identity(), |at| selection.value(at));
        let value = long_work::over(selection.objects().len(), read);
        // The mark of a selection stands for dependencies on what exists.
        let memory = match hit.last_known {
            true => Remembering::Nowhere,
            false => Remembering::Selection(selection.clone()),
        };
        self.collect(dependency, value, memory);
    }

    fn snapshot(&mut self) -> &dyn Snapshot {
        let view = &self.instance.view;
        &**self.dependencies.snapshot.get_or_insert_with(|| view.snapshot())
    }

    fn collect(&mut self, dependency: Dependency, value: u64, memory: Remembering) {
        self.dependencies.new.push(Collected { dependency, value, memory });
    }
}

impl Declared {
    /// Returns the looked-up resource.
    pub(super) fn resource(&self) -> Option<&GroupResource> {
        self.0.first().map(|lookup| &lookup.resource)
    }

    /// Returns the lookup that covers one name, or many objects.
    fn covering(&self, name: Option<&str>) -> Result<&Arc<LookupSpec>> {
        let all = || self.0.iter();
        let found = match name {
            // Prefers a lookup of this name, then of the whole kind, then of a selected part of it.
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
