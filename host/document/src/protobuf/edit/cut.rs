//! Removals of elements and members: what the last segment of a path selects, in the containers that the segments
//! before it select. Consecutive removed records are one splice.

use super::cut_field;
use crate::{
    Error, Path,
    path::Segment,
    protobuf::{
        object::Object,
        place::{EnclosingLength, ValueRef, entry, locate, resolve},
        schema::{self, Field, ValueType},
        splice::Splices,
        walk::{Gap, Relation, Visit},
        wire::Records,
    },
};
use std::ops::Range;

/// Removes what the last segment selects in each container.
pub(super) struct Cut<'a, F> {
    pub(super) object: &'a Object,
    pub(super) path: &'a Path,
    pub(super) last: &'a Segment,
    pub(super) goes: F,
    pub(super) row: usize,
    pub(super) count: u32,
    pub(super) splices: Splices,
}

impl<F: Fn(usize) -> bool> Cut<'_, F> {
    fn next_row(&mut self) -> bool {
        self.row += 1;
        (self.goes)(self.row - 1)
    }

    /// Removes one field of a message.
    fn member(
        &mut self,
        message: &'static schema::Message,
        bytes: &[u8],
        at: Range<usize>,
        name: &str,
        enclosing: &[EnclosingLength],
    ) -> Result<(), Error> {
        let goes = self.next_row();
        let Some(field) = message.field(name).filter(|_| goes) else {
            return Ok(());
        };
        let mut inner = enclosing.to_vec();
        let slot = locate(bytes, field, at, &mut inner)?;
        if let Some(node) = resolve(bytes, field, slot.values())?.0 {
            self.count += 1;
            // A field that JSON never omits is null without a record, so there is nothing to remove.
            if !matches!(node, ValueRef::Null) || field.kind == ValueType::Raw {
                cut_field(bytes, &slot, &[], &inner, &mut self.splices)?;
            }
        }
        Ok(())
    }

    fn elements(
        &mut self,
        field: &'static Field,
        bytes: &[u8],
        at: Range<usize>,
        only: Option<usize>,
        enclosing: &[EnclosingLength],
    ) -> Result<(), Error> {
        let row_goes = only.is_some() && self.next_row();
        let mut records = Records::new(bytes, at);
        // A run of consecutive records is one splice.
        let mut run: Option<Range<usize>> = None;
        let mut i = 0;
        while let Some(record) = records.of(field.number)? {
            record.written_as(field.wire())?;
            let goes = match only {
                Some(index) => row_goes && i == index,
                None => self.next_row(),
            };
            if goes {
                self.count += 1;
                match &mut run {
                    Some(run) if run.end == record.start => run.end = record.value.end,
                    _ => {
                        if let Some(run) = run.replace(record.whole()) {
                            self.splices.put(enclosing, run, &[]);
                        }
                    }
                }
            }
            i += 1;
        }
        if let Some(run) = run {
            self.splices.put(enclosing, run, &[]);
        }
        Ok(())
    }
}

impl<F: Fn(usize) -> bool> Visit for Cut<'_, F> {
    const MAKES: bool = false;
    const ENCLOSING: bool = true;

    fn value(
        &mut self,
        bytes: &[u8],
        node: ValueRef,
        relation: Relation,
        enclosing: &[EnclosingLength],
    ) -> Result<(), Error> {
        let inner = inner_lengths(bytes, &node, &relation, enclosing)?;
        match (self.last, node) {
            (Segment::Name(name), ValueRef::Null) if matches!(relation, Relation::Root) => {
                let message = self.object.message();
                self.member(message, bytes, 0..bytes.len(), name, enclosing)
            }
            (Segment::Name(name), ValueRef::One { kind: ValueType::Message(number), at }) => {
                self.member(schema::message(number), bytes, at, name, &inner)
            }
            (Segment::Name(key), ValueRef::Map { field, at }) => {
                if self.next_row()
                    && let Some((record, _)) = entry(bytes, field, at, key)?
                {
                    self.count += 1;
                    self.splices.put(&inner, record.whole(), &[]);
                }
                Ok(())
            }
            (_, ValueRef::List { .. }) if matches!(relation, Relation::Entry { .. }) => {
                Err(Error::NotInSchema { path: self.path.clone() })
            }
            (Segment::Index(index), ValueRef::List { field, at }) => {
                self.elements(field, bytes, at, Some(*index), &inner)
            }
            (Segment::Wildcard, ValueRef::List { field, at }) => self.elements(field, bytes, at, None, &inner),
            (_, ValueRef::Json(_)) => Err(Error::NotInSchema { path: self.path.clone() }),
            (Segment::Wildcard, _) => Ok(()),
            _ => {
                self.row += 1;
                Ok(())
            }
        }
    }

    fn absent(&mut self, _: &[u8], _: &[Segment], _: Gap, _: &[EnclosingLength]) -> Result<(), Error> {
        // The row exists, but has nothing to remove. If the rows are the missing elements themselves, there is no row.
        if *self.last != Segment::Wildcard {
            self.row += 1;
        }
        Ok(())
    }
}

/// Returns the lengths around the content of a message: those around the message, and its own.
fn inner_lengths(
    bytes: &[u8],
    node: &ValueRef,
    relation: &Relation,
    enclosing: &[EnclosingLength],
) -> Result<Vec<EnclosingLength>, Error> {
    let mut inner = enclosing.to_vec();
    if let ValueRef::One { kind: ValueType::Message(_), .. } = node {
        match relation {
            Relation::Field(slot) => inner.extend(resolve(bytes, slot.field, slot.values())?.1),
            Relation::Element { record, .. } => {
                inner.extend(Records::new(bytes, record.clone()).next()?.as_ref().map(EnclosingLength::from));
            }
            Relation::Root | Relation::Entry { .. } | Relation::Inside => {}
        }
    }
    Ok(inner)
}
