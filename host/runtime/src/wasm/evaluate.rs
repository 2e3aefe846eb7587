//! Evaluates host calls. The same function serves calls and replays, so that both read the same values in the same
//! order, with the same errors.

use std::borrow::Cow;
use std::sync::Arc;

use wasmtime::Result;
use weir_document::{Column, Document, Path};
use weir_spec::CachedObject;

use super::dependency::Dependencies;
use super::fault::Refusal;
use super::handles::Handles;
use super::hit::{LookupHit, SelectionHit};
use super::host_call::{HostCall, Observed, Read, SelectionRead, Target};
use super::long_work;
use super::lookup::LookupContext;
use super::view::Snapshot;

/// The maximum number of looked-up objects that one call may hold.
pub(super) const HITS: usize = 16_384;
/// The maximum number of selections that one call may hold.
pub(super) const SELECTIONS: usize = 256;
/// The maximum size of one column over a selection in bytes.
pub(super) const COLUMN: usize = 16 << 20;

/// The lookups of one filter call: its handles and dependencies. A scope serves one call at a time and is emptied at
/// its end.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) lookups: LookupContext,
    pub(super) hits: Handles<LookupHit>,
    pub(super) selections: Handles<SelectionHit>,
}

/// Evaluates a host call on the filtered object.
///
/// # Errors
/// The error ends the call: malformed bytes, a stale handle, or an exceeded bound.
pub(crate) fn evaluate<'a>(
    call: &HostCall,
    object: &'a mut Cow<'_, Document>,
    scope: &'a mut Scope,
) -> Result<Observed<'a>> {
    match call {
        HostCall::Read(Target::Object, read) => Ok(read.of(object)?),
        HostCall::Read(Target::Hit(hit), read) => scope.read(*hit, read),
        HostCall::Edit(Target::Object, edit) => Ok(edit.apply(object.to_mut())),
        HostCall::Edit(Target::Hit(hit), _) => {
            scope.hits.get(*hit)?;
            Ok(Observed::Refused("a looked-up object cannot be edited".to_owned()))
        }
        HostCall::Get { declared, namespace, name } => {
            let hit = scope.lookups.get(declared, namespace.as_deref(), name)?;
            scope.hold(hit)
        }
        HostCall::PresenceOf { declared, namespace, name } => {
            Ok(Observed::Number(scope.lookups.presence(declared, namespace.as_deref(), name)?.number()))
        }
        HostCall::LastKnown { declared, namespace, name } => {
            let hit = scope.lookups.last_known(declared, namespace.as_deref(), name)?;
            scope.hold(hit)
        }
        HostCall::Referent { declared, from, at } => {
            let hit = match from {
                Target::Object => scope.lookups.referent(declared, object, at)?,
                Target::Hit(hit) => {
                    let from = scope.hits.get(*hit)?;
                    scope.lookups.depend(from, Some(at));
                    scope.lookups.referent(declared, from.object.document(), at)?
                }
            };
            scope.hold(hit)
        }
        HostCall::Find { declared, namespace, label_selector, last_known } => {
            let selection = scope.lookups.find(declared, namespace.as_deref(), label_selector, *last_known)?;
            Ok(Observed::Selection(scope.selections.put(selection)?))
        }
        HostCall::Select(selection, read) => scope.select(*selection, read),
        HostCall::Addresses => Ok(Observed::Addresses(scope.lookups.addresses())),
    }
}

impl Scope {
    /// Creates a scope for the calls of one instance, or for replays.
    pub(crate) fn new(lookups: LookupContext) -> Self {
        Self {
            lookups,
            hits: Handles::new(HITS, "looked-up objects"),
            selections: Handles::new(SELECTIONS, "selections"),
        }
    }

    /// A call begins, with the snapshot that it is to see; none: the newest at its first lookup.
    pub(crate) fn begin(&mut self, snapshot: Option<Arc<dyn Snapshot>>) {
        self.lookups.begin(snapshot);
    }

    /// Ends the call. Its handles become stale.
    pub(crate) fn end(&mut self) -> Dependencies {
        self.hits.end();
        self.selections.end();
        self.lookups.end()
    }

    fn hold(&mut self, hit: Option<LookupHit>) -> Result<Observed<'static>> {
        Ok(match hit {
            Some(hit) => Observed::Hit(self.hits.put(hit)?),
            None => Observed::Nothing,
        })
    }

    fn read(&mut self, hit: u32, read: &Read) -> Result<Observed<'_>> {
        let hit = self.hits.get(hit)?;
        if let Some(at) = read.at() {
            self.lookups.depend(hit, Some(at));
        }
        Ok(match read {
            // The object caches these.
            Read::Fingerprint(at) => Observed::Number(hit.object.fingerprint(at)?),
            Read::Text(at) => Observed::text(hit.object.text(at)?),
            Read::OneOf(at, texts) => Observed::position(hit.object.text(at)?.as_deref(), texts),
            _ => read.of(hit.object.document())?,
        })
    }

    fn select(&mut self, selection: u32, read: &SelectionRead) -> Result<Observed<'static>> {
        let hit = self.selections.get(selection)?;
        let objects = hit.selection.objects();
        Ok(match read {
            SelectionRead::Count => Observed::Number(objects.len() as u64),
            SelectionRead::At(index) => {
                let Some(object) = objects.get(*index as usize).cloned() else { return Ok(Observed::Nothing) };
                let of = hit.last_known.then(|| Arc::new(hit.clone()));
                let hit = LookupHit { object, lookup: hit.lookup.clone(), last_known: false, of };
                Observed::Hit(self.hits.put(hit)?)
            }
            SelectionRead::Column(at) => {
                self.lookups.depend_on_all(hit, Some(at));
                Observed::Column(long_work::over(objects.len(), || column(objects, at))?)
            }
            SelectionRead::Fingerprint(at) => {
                self.lookups.depend_on_all(hit, Some(at));
                // The selection remembers it from the dependency.
                Observed::Number(hit.selection.fingerprint(at)?)
            }
        })
    }
}

/// Reads a column over the objects of a selection.
fn column(objects: &[Arc<CachedObject>], at: &Path) -> Result<Column> {
    let mut all = Column::default();
    for object in objects {
        object.document().column_into(at, &mut all)?;
        if all.text.len() > COLUMN {
            return Err(Refusal::TooMany(COLUMN, "bytes in a column").into());
        }
    }
    Ok(all)
}
