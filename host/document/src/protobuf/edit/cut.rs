//! Cuts: elements and members left out, by the last step of a path in the containers that the others lead to.
//! Neighbours that go are one splice.

use super::cut_field;
use crate::{
    Error, Path,
    path::Step,
    protobuf::{
        object::Object,
        place::{Frame, Node, entry, locate, resolve},
        schema::{self, Field, Kind},
        splice::Splices,
        walk::{Gap, Spot, Visit},
        wire::Records,
    },
};
use std::ops::Range;

/// Cuts by the last step of a path, in the containers that the steps before it lead to.
pub(super) struct Cut<'a, F> {
    pub(super) object: &'a Object,
    pub(super) path: &'a Path,
    pub(super) last: &'a Step,
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

    /// One field of a message.
    fn member(
        &mut self,
        message: &'static schema::Message,
        bytes: &[u8],
        at: Range<usize>,
        name: &str,
        frames: &[Frame],
    ) -> Result<(), Error> {
        let goes = self.next_row();
        let Some(field) = message.field(name).filter(|_| goes) else {
            return Ok(());
        };
        let mut inner = frames.to_vec();
        let slot = locate(bytes, field, at, &mut inner)?;
        if let Some(node) = resolve(bytes, field, slot.values())?.0 {
            self.count += 1;
            // Null is what a field that JSON never leaves out is without a record: there is nothing to cut.
            if !matches!(node, Node::Null) || field.kind == Kind::Raw {
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
        frames: &[Frame],
    ) -> Result<(), Error> {
        let row_goes = only.is_some() && self.next_row();
        let mut records = Records::new(bytes, at);
        // A run of neighbours is one splice.
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
                            self.splices.put(frames, run, &[]);
                        }
                    }
                }
            }
            i += 1;
        }
        if let Some(run) = run {
            self.splices.put(frames, run, &[]);
        }
        Ok(())
    }
}

impl<F: Fn(usize) -> bool> Visit for Cut<'_, F> {
    const MAKES: bool = false;
    const FRAMES: bool = true;

    fn value(&mut self, bytes: &[u8], node: Node, spot: Spot, frames: &[Frame]) -> Result<(), Error> {
        let inner = inner_frames(bytes, &node, &spot, frames)?;
        match (self.last, node) {
            (Step::Name(name), Node::Null) if matches!(spot, Spot::Root) => {
                let message = self.object.message();
                self.member(message, bytes, 0..bytes.len(), name, frames)
            }
            (Step::Name(name), Node::One { kind: Kind::Message(number), at }) => {
                self.member(schema::message(number), bytes, at, name, &inner)
            }
            (Step::Name(key), Node::Map { field, at }) => {
                if self.next_row()
                    && let Some((record, _)) = entry(bytes, field, at, key)?
                {
                    self.count += 1;
                    self.splices.put(&inner, record.whole(), &[]);
                }
                Ok(())
            }
            (_, Node::List { .. }) if matches!(spot, Spot::Entry { .. }) => {
                Err(Error::NotInSchema { path: self.path.clone() })
            }
            (Step::Index(index), Node::List { field, at }) => self.elements(field, bytes, at, Some(*index), &inner),
            (Step::Every, Node::List { field, at }) => self.elements(field, bytes, at, None, &inner),
            (_, Node::Json(_)) => Err(Error::NotInSchema { path: self.path.clone() }),
            (Step::Every, _) => Ok(()),
            _ => {
                self.row += 1;
                Ok(())
            }
        }
    }

    fn absent(&mut self, _: &[u8], _: &[Step], _: Gap, _: &[Frame]) -> Result<(), Error> {
        // A row without the thing, unless its rows would be the elements that are not there.
        if *self.last != Step::Every {
            self.row += 1;
        }
        Ok(())
    }
}

/// The lengths that enclose what is in a message: those that enclose it, and its own.
fn inner_frames(bytes: &[u8], node: &Node, spot: &Spot, frames: &[Frame]) -> Result<Vec<Frame>, Error> {
    let mut inner = frames.to_vec();
    if let Node::One { kind: Kind::Message(_), .. } = node {
        match spot {
            Spot::Field(slot) => inner.extend(resolve(bytes, slot.field, slot.values())?.1),
            Spot::Element { record, .. } => {
                inner.extend(Records::new(bytes, record.clone()).next()?.as_ref().map(Frame::from));
            }
            Spot::Root | Spot::Entry { .. } | Spot::Inside => {}
        }
    }
    Ok(inner)
}
