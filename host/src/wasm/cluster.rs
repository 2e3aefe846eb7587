//! The `cluster` import: other objects, from memory, only of the kinds that the plan declares.

use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_document::Path;

use super::bindings::weir::filter::cluster;
use super::bindings::weir::filter::objects::Column;
use super::fault::Refusal;
use super::recall::{Found, FoundSelection};
use super::state::{GuestState, ObjectHandle, PathHandle, Phase, SelectionHandle};
use super::world::{Lookup, Read, identity_of, selection_value_at};
use crate::resource::GroupResource;

/// Most text that one column over a selection may hold, in bytes.
const COLUMN: usize = 16 << 20;

impl GuestState {
    /// The declared lookup that covers a question about `resource` (and one name).
    fn declared(&mut self, resource: &str, name: Option<&str>) -> Result<Arc<Lookup>> {
        let undeclared = |hint| Refusal::Undeclared(resource.to_owned(), hint);
        let kind = match self.declared.get(resource) {
            Some(kind) => kind.clone(),
            None => {
                let wanted: GroupResource = resource.parse().map_err(|_| undeclared(" (no such resource name)"))?;
                let of_kind = self.surroundings.lookups.iter().filter(|lookup| lookup.resource == wanted);
                let kind: Arc<[_]> = of_kind.cloned().collect();
                if !kind.is_empty() {
                    self.declared.insert(resource.to_owned(), kind.clone());
                }
                kind
            }
        };
        let of_kind = || kind.iter();
        let found = match name {
            // The narrowest that holds it: by this name, else a whole kind, else a selected part of it.
            Some(name) => of_kind()
                .find(|lookup| lookup.name.as_deref() == Some(name))
                .or_else(|| of_kind().find(|lookup| lookup.name.is_none() && lookup.label_selector.is_none()))
                .or_else(|| of_kind().find(|lookup| lookup.name.is_none())),
            None => of_kind()
                .find(|lookup| lookup.name.is_none() && lookup.label_selector.is_none())
                .or_else(|| of_kind().find(|lookup| lookup.name.is_none()))
                .or_else(|| of_kind().next()),
        };
        let narrower = if of_kind().next().is_some() { " for this name" } else { "" };
        found.cloned().ok_or_else(|| undeclared(narrower).into())
    }

    /// A selection for reading at a path, which is recorded.
    fn selected(&mut self, this: &Resource<SelectionHandle>, at: &Path) -> Result<Arc<FoundSelection>> {
        let found = self.selections.get(this.rep())?.clone();
        if self.recall.is_new(found.number(), at) {
            self.note(&found.read(Some(at)), selection_value_at(&found.selection, at));
        }
        Ok(found)
    }

    fn hold(&mut self, found: Arc<Found>) -> Result<Resource<ObjectHandle>> {
        Ok(Resource::new_own(self.held.put(found)?.wrapping_add(1)))
    }
}

impl cluster::Host for GuestState {
    fn get(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        if self.phase == Phase::Configure {
            return Err(Refusal::LookupInConfigure(resource).into());
        }
        let snapshot = self.snapshot().clone();
        let asked = (resource, namespace, name);
        let found = match self.recall.object(&asked) {
            Some(found) => found.clone(),
            None => {
                let (resource, namespace, name) = &asked;
                let lookup = self.declared(resource, Some(name))?;
                let object = snapshot.get(&lookup, namespace.as_deref(), name);
                let (namespace, name) = (namespace.as_deref().map(Into::into), name.as_str().into());
                let read = Read::Object { lookup: lookup.clone(), namespace, name, at: None };
                self.note(&read, u64::from(object.is_some()));
                self.recall.keep_object(asked, lookup, object)
            }
        };
        found.map(|found| self.hold(found)).transpose()
    }

    fn find(
        &mut self,
        resource: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> Result<Resource<SelectionHandle>> {
        if self.phase == Phase::Configure {
            return Err(Refusal::LookupInConfigure(resource).into());
        }
        let snapshot = self.snapshot().clone();
        let asked = (resource, namespace, label_selector);
        let found = match self.recall.selection(&asked) {
            Some(found) => found.clone(),
            None => {
                let (resource, namespace, label_selector) = &asked;
                let lookup = self.declared(resource, None)?;
                let selection = snapshot
                    .find(&lookup, namespace.as_deref(), label_selector)
                    .map_err(|reason| Refusal::Selector(label_selector.clone(), reason))?;
                let found = self.recall.keep_selection(asked, lookup, selection);
                self.note(&found.read(None), identity_of(&found.selection));
                found
            }
        };
        Ok(Resource::new_own(self.selections.put(found)?))
    }
}

impl cluster::HostSelection for GuestState {
    fn count(&mut self, this: Resource<SelectionHandle>) -> Result<u32> {
        Ok(u32::try_from(self.selections.get(this.rep())?.selection.objects().len())?)
    }

    fn at(&mut self, this: Resource<SelectionHandle>, index: u32) -> Result<Option<Resource<ObjectHandle>>> {
        let held = self.selections.get(this.rep())?;
        let Some(object) = held.selection.objects().get(index as usize).cloned() else { return Ok(None) };
        let namespace = object.document().namespace()?.map(|text| text.into());
        let name = (*object.document().name()?).into();
        let found = Found::member(object, held.lookup.clone(), namespace, name);
        self.hold(found).map(Some)
    }

    fn column(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<Column> {
        let at = self.path(at.rep())?.clone();
        let found = self.selected(&this, &at)?;
        let mut all = weir_document::Column::default();
        for object in found.selection.objects() {
            object.document().column_into(&at, &mut all)?;
            if all.text.len() > COLUMN {
                return Err(Refusal::TooMany(COLUMN, "bytes in a column").into());
            }
        }
        Ok(Column { text: all.text, ends: all.ends })
    }

    fn fingerprint(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path(at.rep())?.clone();
        Ok(self.selected(&this, &at)?.selection.fingerprint(&at)?)
    }

    fn drop(&mut self, selection: Resource<SelectionHandle>) -> Result<()> {
        if selection.owned() {
            self.selections.free(selection.rep());
        }
        Ok(())
    }
}
