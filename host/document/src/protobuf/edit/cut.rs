//! Removals of the values that a walk reaches: fields of messages, elements of lists, and entries of maps.

use super::replace_field;
use crate::{
    Error, Path,
    path::Segment,
    protobuf::{
        place::{FieldSlot, ValueRef},
        schema::ValueType,
        splice::Splices,
        walk::{Enclosing, Gap, Relation, Visit},
    },
};

/// Removes the values of the rows for which `goes` holds.
pub(super) struct Cut<'a, F> {
    pub(super) path: &'a Path,
    pub(super) goes: F,
    pub(super) row: usize,
    pub(super) count: u32,
    pub(super) splices: Splices,
}

impl<F> Cut<'_, F> {
    fn field(&mut self, within: Enclosing<'_>, node: &ValueRef, slot: &FieldSlot) -> Result<(), Error> {
        // A field that JSON never omits is null without a record, so there is nothing to remove.
        if !matches!(node, ValueRef::Null) || slot.field.kind == ValueType::Raw {
            replace_field(within, slot, &[], &mut self.splices)?;
        }
        Ok(())
    }
}

impl<F: Fn(usize) -> bool> Visit for Cut<'_, F> {
    const MAKES: bool = false;
    const ENCLOSING: bool = true;

    // Inlined, because most rows are whole elements, and a walk passes all of them.
    #[inline(always)]
    fn value(&mut self, within: Enclosing<'_>, node: ValueRef, relation: Relation) -> Result<(), Error> {
        self.row += 1;
        if !(self.goes)(self.row - 1) {
            return Ok(());
        }
        self.count += 1;
        match relation {
            Relation::Element { record, .. } | Relation::Entry { record, .. } => {
                self.splices.put(within.lengths, record, &[]);
                Ok(())
            }
            Relation::Field(slot) => self.field(within, &node, &slot),
            Relation::Root | Relation::Inside => Err(Error::NotInSchema { path: self.path.clone() }),
        }
    }

    /// The row exists, but has nothing to remove.
    fn absent(&mut self, _: Enclosing<'_>, _: &[Segment], _: Gap) -> Result<(), Error> {
        self.row += 1;
        Ok(())
    }
}
