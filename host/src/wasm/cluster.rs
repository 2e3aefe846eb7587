//! The `cluster` import: other objects, from memory, only of the kinds that the plan declares.

use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::weir::filter::cluster;
use super::bindings::weir::filter::objects::Column;
use super::fault::Refusal;
use super::state::{GuestState, Held, HeldSelection, ObjectHandle, PathHandle, Phase, SelectionHandle};
use super::world::{Lookup, Read, identity_of, selection_value_at};
use crate::resource::GroupResource;

/// Most text that one column over a selection may hold, in bytes.
const COLUMN: usize = 16 << 20;

impl GuestState {
    /// The declared lookup that covers a question about `resource` (and one name).
    fn declared(&self, resource: &str, name: Option<&str>) -> Result<Arc<Lookup>> {
        if self.phase == Phase::Configure {
            return Err(Refusal::LookupInConfigure(resource.to_owned()).into());
        }
        let undeclared = |hint| Refusal::Undeclared(resource.to_owned(), hint);
        let wanted: GroupResource = resource.parse().map_err(|_| undeclared(" (no such resource name)"))?;
        let of_kind = || self.surroundings.lookups.iter().filter(|lookup| lookup.resource == wanted);
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

    fn hold(&mut self, held: Held) -> Result<Resource<ObjectHandle>> {
        Ok(Resource::new_own(self.held.put(held)?.wrapping_add(1)))
    }
}

impl cluster::Host for GuestState {
    fn get(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let lookup = self.declared(&resource, Some(&name))?;
        let found = self.snapshot().get(&lookup, namespace.as_deref(), &name);
        let namespace = namespace.map(String::into_boxed_str);
        let read = Read::Object { lookup, namespace, name: name.into(), at: None };
        self.note(&read, u64::from(found.is_some()));
        let (Some(object), Read::Object { lookup, namespace, name, .. }) = (found, read) else { return Ok(None) };
        self.hold(Held { object, lookup, namespace, name }).map(Some)
    }

    fn find(
        &mut self,
        resource: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> Result<Resource<SelectionHandle>> {
        let lookup = self.declared(&resource, None)?;
        let selection = self
            .snapshot()
            .find(&lookup, namespace.as_deref(), &label_selector)
            .map_err(|reason| Refusal::Selector(label_selector.clone(), reason))?;
        let namespace = namespace.map(String::into_boxed_str);
        let label_selector = label_selector.into_boxed_str();
        let held = HeldSelection { selection, lookup, namespace, label_selector };
        self.note(&held.read(None), identity_of(&held.selection));
        Ok(Resource::new_own(self.selections.put(held)?))
    }
}

impl HeldSelection {
    fn read(&self, at: Option<weir_document::Path>) -> Read {
        Read::Selection {
            lookup: self.lookup.clone(),
            namespace: self.namespace.clone(),
            label_selector: self.label_selector.clone(),
            at,
        }
    }
}

impl cluster::HostSelection for GuestState {
    fn count(&mut self, this: Resource<SelectionHandle>) -> Result<u32> {
        Ok(u32::try_from(self.selections.get(this.rep())?.selection.objects().len())?)
    }

    fn at(&mut self, this: Resource<SelectionHandle>, index: u32) -> Result<Option<Resource<ObjectHandle>>> {
        let held = self.selections.get(this.rep())?;
        let Some(object) = held.selection.objects().get(index as usize).cloned() else { return Ok(None) };
        let lookup = held.lookup.clone();
        let namespace = object.document().namespace()?.map(|text| text.into());
        let name = (*object.document().name()?).into();
        self.hold(Held { object, lookup, namespace, name }).map(Some)
    }

    fn column(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<Column> {
        let at = self.path(at.rep())?.clone();
        let held = self.selections.get(this.rep())?;
        self.note(&held.read(Some(at.clone())), selection_value_at(&held.selection, &at));
        let mut all = weir_document::Column::default();
        for object in held.selection.objects() {
            object.document().column_into(&at, &mut all)?;
            if all.text.len() > COLUMN {
                return Err(Refusal::TooMany(COLUMN, "bytes in a column").into());
            }
        }
        Ok(Column { text: all.text, ends: all.ends })
    }

    fn fingerprint(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path(at.rep())?.clone();
        let held = self.selections.get(this.rep())?;
        let value = held.selection.fingerprint(&at)?;
        self.note(&held.read(Some(at.clone())), selection_value_at(&held.selection, &at));
        Ok(value)
    }

    fn drop(&mut self, selection: Resource<SelectionHandle>) -> Result<()> {
        if selection.owned() {
            self.selections.free(selection.rep());
        }
        Ok(())
    }
}
