//! The `cluster` import: other objects, from memory, only of the kinds that the plan declares.

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_document::Path;

use super::bindings::weir::filter::cluster;
use super::bindings::weir::filter::objects::Column;
use super::fault::Refusal;
use super::finder::Declared;
use weir_document::Selection;

use super::found::Found;
use super::lesson::Step;
use super::state::{GuestState, ObjectHandle, PathHandle, Phase, SelectionHandle};

/// Most text that one column over a selection may hold, in bytes.
const COLUMN: usize = 16 << 20;

impl GuestState {
    /// What is declared of a kind that `filter` asks for.
    fn asked(&mut self, resource: String) -> Result<Declared> {
        if self.phase == Phase::Configure {
            return Err(Refusal::LookupInConfigure(resource).into());
        }
        self.finder.declared(&resource)
    }

    /// A selection for reading at a path, which is recorded.
    fn selected(&self, this: &Resource<SelectionHandle>, at: &Path) -> Result<&Selection> {
        Ok(self.finder.read_all(self.selections.get(this.rep())?, at))
    }

    fn hold(&mut self, found: Found) -> Result<Resource<ObjectHandle>> {
        Ok(Resource::new_own(self.held.put(found)?.wrapping_add(1)))
    }

    /// An object was looked up, or was not there: a step of the call.
    fn looked_up_by(
        &mut self,
        step: impl FnOnce() -> Option<Step>,
        found: Option<Found>,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let handle = found.map(|found| self.hold(found)).transpose()?;
        self.lesson.look_up(step, handle.as_ref().map(Resource::rep));
        Ok(handle)
    }
}

impl cluster::Host for GuestState {
    fn get(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let of = self.asked(resource)?;
        let found = self.finder.get(&of, namespace.as_deref(), &name)?;
        self.looked_up_by(|| Some(Step::Get(of, namespace.map(Into::into), name.into())), found)
    }

    fn referent(
        &mut self,
        resource: String,
        object: Resource<ObjectHandle>,
        name_at: Resource<PathHandle>,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let of = self.asked(resource)?;
        let at = self.single(&name_at)?;
        let found = self.finder.referent(&of, self.reading(&object, &at)?, &at)?;
        let from = self.lesson.which(object.rep());
        self.looked_up_by(|| Some(Step::Referent(of, from?, at)), found)
    }

    fn find(
        &mut self,
        resource: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> Result<Resource<SelectionHandle>> {
        self.lesson.interrupt();
        let of = self.asked(resource)?;
        let found = self.finder.find(&of, namespace.as_deref(), &label_selector)?;
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
        let found = Found { object, lookup: held.lookup.clone() };
        self.hold(found).map(Some)
    }

    fn column(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<Column> {
        let at = self.path(at.rep())?;
        let mut all = weir_document::Column::default();
        for object in self.selected(&this, at)?.objects() {
            object.document().column_into(at, &mut all)?;
            if all.text.len() > COLUMN {
                return Err(Refusal::TooMany(COLUMN, "bytes in a column").into());
            }
        }
        Ok(Column { text: all.text, ends: all.ends })
    }

    fn fingerprint(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path(at.rep())?;
        Ok(self.selected(&this, at)?.fingerprint(at)?)
    }

    fn drop(&mut self, selection: Resource<SelectionHandle>) -> Result<()> {
        if selection.owned() {
            self.selections.free(selection.rep());
        }
        Ok(())
    }
}
