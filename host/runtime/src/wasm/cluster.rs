//! The `cluster` import: lookups of other objects, from memory, restricted to the kinds that the plan declares.

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_spec::Presence;

use super::bindings::weir::filter::cluster;
use super::bindings::weir::filter::objects::Column;
use super::fault::Refusal;
use super::host_call::{HostCall, Observed, SelectionRead};
use super::lookup::Declared;
use super::state::{GuestState, ObjectHandle, PathHandle, Phase, SelectionHandle};

/// The longest name or namespace in bytes. Kubernetes allows 253.
const NAME: usize = 1024;
/// The longest label selector in bytes.
const SELECTOR: usize = 4096;

/// Refuses a text that is longer than any that means something.
fn bounded(text: String, what: &'static str, limit: usize) -> Result<Box<str>> {
    if text.len() > limit { Err(Refusal::TooLong(what, limit).into()) } else { Ok(text.into()) }
}

impl GuestState {
    /// Returns the declared lookups of a kind. Only `filter` may look up.
    fn declared(&mut self, resource: String) -> Result<Declared> {
        if self.phase == Phase::Configure {
            return Err(Refusal::LookupInConfigure(resource).into());
        }
        self.scope.lookups.declared(&resource)
    }

    /// Checks the arguments of a lookup by name.
    fn named(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<(Declared, Option<Box<str>>, Box<str>)> {
        let declared = self.declared(resource)?;
        let namespace = namespace.map(|namespace| bounded(namespace, "a namespace", NAME)).transpose()?;
        Ok((declared, namespace, bounded(name, "a name", NAME)?))
    }

    /// Evaluates a host call that returns an object or none.
    fn look_up(&mut self, call: HostCall) -> Result<Option<Resource<ObjectHandle>>> {
        let Observed::Hit(hit) = self.evaluate(call)? else { return Ok(None) };
        Ok(Some(Resource::new_own(self.scope.hits.number(hit)?)))
    }

    /// Evaluates `find` or `find-last-known`.
    fn find_as(
        &mut self,
        (resource, namespace, label_selector): (String, Option<String>, String),
        last_known: bool,
    ) -> Result<Resource<SelectionHandle>> {
        let declared = self.declared(resource)?;
        let namespace = namespace.map(|namespace| bounded(namespace, "a namespace", NAME)).transpose()?;
        let label_selector = bounded(label_selector, "a label selector", SELECTOR)?;
        let selection = match self.evaluate(HostCall::Find { declared, namespace, label_selector, last_known })? {
            Observed::Selection(selection) => selection,
            other => return Err(unexpected(&other)),
        };
        Ok(Resource::new_own(self.scope.selections.number(selection)?))
    }

    fn select(&mut self, this: &Resource<SelectionHandle>, read: SelectionRead) -> Result<Observed<'_>> {
        let selection = self.scope.selections.place(this.rep())?;
        self.evaluate(HostCall::Select(selection, read))
    }
}

impl cluster::Host for GuestState {
    fn get(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let (declared, namespace, name) = self.named(resource, namespace, name)?;
        self.look_up(HostCall::Get { declared, namespace, name })
    }

    fn presence_of(&mut self, resource: String, namespace: Option<String>, name: String) -> Result<cluster::Presence> {
        let (declared, namespace, name) = self.named(resource, namespace, name)?;
        match self.evaluate(HostCall::PresenceOf { declared, namespace, name })? {
            Observed::Number(number) => Ok(match Presence::of_number(number) {
                Presence::Present => cluster::Presence::Present,
                Presence::Absent => cluster::Presence::Absent,
                Presence::NotServed => cluster::Presence::NotServed,
                Presence::NotKnown => cluster::Presence::NotKnown,
            }),
            other => Err(unexpected(&other)),
        }
    }

    fn last_known(
        &mut self,
        resource: String,
        namespace: Option<String>,
        name: String,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let (declared, namespace, name) = self.named(resource, namespace, name)?;
        self.look_up(HostCall::LastKnown { declared, namespace, name })
    }

    fn referent(
        &mut self,
        resource: String,
        object: Resource<ObjectHandle>,
        name_at: Resource<PathHandle>,
    ) -> Result<Option<Resource<ObjectHandle>>> {
        let declared = self.declared(resource)?;
        let at = self.single(&name_at)?;
        let from = self.target(&object)?;
        self.look_up(HostCall::Referent { declared, from, at })
    }

    fn find(
        &mut self,
        resource: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> Result<Resource<SelectionHandle>> {
        self.find_as((resource, namespace, label_selector), false)
    }

    fn find_last_known(
        &mut self,
        resource: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> Result<Resource<SelectionHandle>> {
        self.find_as((resource, namespace, label_selector), true)
    }
}

impl cluster::HostSelection for GuestState {
    fn count(&mut self, this: Resource<SelectionHandle>) -> Result<u32> {
        match self.select(&this, SelectionRead::Count)? {
            Observed::Number(count) => Ok(u32::try_from(count)?),
            other => Err(unexpected(&other)),
        }
    }

    fn at(&mut self, this: Resource<SelectionHandle>, index: u32) -> Result<Option<Resource<ObjectHandle>>> {
        let selection = self.scope.selections.place(this.rep())?;
        self.look_up(HostCall::Select(selection, SelectionRead::At(index)))
    }

    fn column(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<Column> {
        let at = self.path(&at)?;
        match self.select(&this, SelectionRead::Column(at))? {
            Observed::Column(column) => Ok(Column { text: column.text, ends: column.ends }),
            other => Err(unexpected(&other)),
        }
    }

    fn fingerprint(&mut self, this: Resource<SelectionHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path(&at)?;
        match self.select(&this, SelectionRead::Fingerprint(at))? {
            Observed::Number(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    fn drop(&mut self, selection: Resource<SelectionHandle>) -> Result<()> {
        if selection.owned() {
            self.scope.selections.free(selection.rep());
        }
        Ok(())
    }
}

/// Returns the error for a result of the wrong type. This is a bug in the host, and ends this call only.
pub(super) fn unexpected(observed: &Observed<'_>) -> wasmtime::Error {
    wasmtime::Error::msg(format!("the host returned {observed:?}"))
}
