//! Follows the steps of a path through a message by the schema, and tells a visitor what is at their end, in the terms
//! of JSON: what JSON would leave out is absent, what it would spell as null is null.
//! Recursion is as deep as the path is long; what is kept are the lengths that enclose the place.

use super::{
    object::Object,
    place::{Frame, Node, Slot, entry, locate, map_value, one, resolve},
    schema::{self, Field, Kind, Message, Shape},
    wire::{Record, Records, Wire},
};
use crate::{
    Error,
    json::{self, marked::Marked, scan::Marks},
    path::Step,
};
use std::ops::Range;

/// What a value is to what is round it.
#[derive(Debug, Clone)]
pub(crate) enum Spot {
    Root,
    Field(Slot),
    /// An element of a list, by its record.
    Element {
        field: &'static Field,
        record: Range<usize>,
    },
    /// An entry of a map, by its record.
    Entry {
        field: &'static Field,
        record: Range<usize>,
    },
    /// Within JSON text.
    Inside,
}

/// Why a step led nowhere, and what an edit could do about it.
#[derive(Debug, Clone)]
pub(crate) enum Gap {
    /// Nothing is there that JSON would show.
    Field(Slot),
    /// The map has no such entry.
    Key { field: &'static Field, within: Range<usize> },
    /// The list has no such element.
    Element,
    /// A value of another kind.
    Other { at: usize },
    /// No such field in the schema, or a place in JSON text.
    Unknown,
}

/// What becomes of the ends of a walk.
pub(crate) trait Visit {
    /// It makes what is missing: a message that is not in the bytes is a gap to it, and an empty message to others.
    const MAKES: bool;

    /// It is to be told which lengths enclose a place. Others are told of some.
    const FRAMES: bool;

    /// All steps led here.
    fn value(&mut self, bytes: &[u8], node: Node, spot: Spot, frames: &[Frame]) -> Result<(), Error>;

    /// The first of these steps led nowhere. None of them is a [`Step::Every`]: what is absent above one has no rows.
    fn absent(&mut self, bytes: &[u8], rest: &[Step], gap: Gap, frames: &[Frame]) -> Result<(), Error>;
}

/// Follows the steps from the message that an object is.
pub(crate) fn walk<V: Visit>(object: &Object, steps: &[Step], visitor: &mut V) -> Result<(), Error> {
    let mut walk = Walk { bytes: object.bytes(), frames: Vec::new(), visitor };
    match steps {
        // The root's kind is never asked for: whole objects are read by their own functions.
        [] => walk.visitor.value(object.bytes(), Node::Null, Spot::Root, &[]),
        [Step::Name(name), rest @ ..] => {
            let Some(field) = object.message().field(name) else {
                return walk.absent(steps, Gap::Unknown);
            };
            // What is missing is made at the object's end.
            let at = match V::MAKES {
                true => 0..object.bytes().len(),
                false => object.run(field.outer.first().copied().unwrap_or(field.number))?,
            };
            walk.located(field, at, steps, rest)
        }
        _ => walk.absent(steps, Gap::Other { at: 0 }),
    }
}

struct Walk<'a, V> {
    bytes: &'a [u8],
    frames: Vec<Frame>,
    visitor: &'a mut V,
}

impl<V: Visit> Walk<'_, V> {
    /// A value, and the lengths that enclose what is in it.
    fn node(&mut self, node: Node, spot: Spot, inner: &[Frame], steps: &[Step]) -> Result<(), Error> {
        let Some((step, rest)) = steps.split_first() else {
            return self.visitor.value(self.bytes, node, spot, &self.frames);
        };
        let depth = self.frames.len();
        if V::FRAMES {
            self.frames.extend_from_slice(inner);
        }
        let done = match (step, node) {
            (_, Node::Json(at)) => self.inside(at, steps),
            (Step::Name(name), Node::One { kind: Kind::Message(number), at }) => {
                self.field(schema::message(number), at, name, steps, rest)
            }
            (Step::Name(key), Node::Map { field, at }) => self.entry(field, at, key, steps, rest),
            (Step::Index(index), Node::List { field, at }) => self.element(field, at, *index, steps, rest),
            (Step::Every, Node::List { field, at }) => self.elements(field, at, rest),
            (Step::Every, _) => Ok(()),
            (_, Node::One { at, .. } | Node::List { at, .. } | Node::Map { at, .. }) => {
                self.absent(steps, Gap::Other { at: at.start })
            }
            (_, Node::Null) => self.absent(steps, Gap::Element),
        };
        self.frames.truncate(depth);
        done
    }

    fn field(
        &mut self,
        message: &'static Message,
        at: Range<usize>,
        name: &str,
        steps: &[Step],
        rest: &[Step],
    ) -> Result<(), Error> {
        let Some(field) = message.field(name) else {
            return self.absent(steps, Gap::Unknown);
        };
        self.located(field, at, steps, rest)
    }

    fn located(&mut self, field: &'static Field, at: Range<usize>, steps: &[Step], rest: &[Step]) -> Result<(), Error> {
        let depth = self.frames.len();
        let slot = locate(self.bytes, field, at, &mut self.frames)?;
        let done = self.slot(slot, steps, rest);
        self.frames.truncate(depth);
        done
    }

    fn slot(&mut self, slot: Slot, steps: &[Step], rest: &[Step]) -> Result<(), Error> {
        let at = slot.values();
        if let (Shape::List, [Step::Every, below @ ..]) = (slot.field.shape, rest) {
            return self.elements(slot.field, at, below);
        }
        let (node, inner) = resolve(self.bytes, slot.field, at)?;
        match node {
            None => self.absent(steps, Gap::Field(slot)),
            Some(Node::Null) if !rest.is_empty() => self.absent(steps, Gap::Field(slot)),
            Some(Node::One { kind: Kind::Message(_), .. }) if V::MAKES && inner.is_none() && !rest.is_empty() => {
                self.absent(steps, Gap::Field(slot))
            }
            Some(node) => self.node(node, Spot::Field(slot), inner.as_slice(), rest),
        }
    }

    fn entry(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        key: &str,
        steps: &[Step],
        rest: &[Step],
    ) -> Result<(), Error> {
        match entry(self.bytes, field, at.clone(), key)? {
            None => self.absent(steps, Gap::Key { field, within: at }),
            Some((record, value)) => {
                let node = map_value(self.bytes, field, value)?;
                self.node(node, Spot::Entry { field, record: record.whole() }, &[Frame::from(&record)], rest)
            }
        }
    }

    fn element(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        index: usize,
        steps: &[Step],
        rest: &[Step],
    ) -> Result<(), Error> {
        let mut records = Records::new(self.bytes, at);
        let mut count = 0;
        while let Some(record) = records.of(field.number)? {
            if count == index {
                self.one(field, &record, rest)?;
            }
            count += 1;
        }
        if count <= index { self.absent(steps, Gap::Element) } else { Ok(()) }
    }

    fn elements(&mut self, field: &'static Field, at: Range<usize>, rest: &[Step]) -> Result<(), Error> {
        let mut records = Records::new(self.bytes, at);
        // The field that is wanted of every element is looked up once.
        let wanted = match (field.kind, rest) {
            (Kind::Message(number), [Step::Name(name), below @ ..]) => {
                schema::message(number).field(name).map(|wanted| (wanted, below))
            }
            _ => None,
        };
        // Most are texts, and nothing but the text is asked for.
        let is_plain = !V::FRAMES
            && wanted.is_some_and(|(wanted, below)| {
                below.is_empty()
                    && wanted.shape == Shape::One
                    && wanted.kind == Kind::Text
                    && wanted.outer.is_empty()
                    && wanted.omit_empty
            });
        let depth = self.frames.len();
        while let Some(record) = records.of(field.number)? {
            let Some((wanted, below)) = wanted else {
                self.one(field, &record, rest)?;
                continue;
            };
            record.written_as(Wire::Bytes)?;
            if is_plain && let Some(found) = Records::quick(self.bytes, record.value.clone(), wanted.number) {
                let slot = Slot { field: wanted, within: record.value, missing: 0 };
                match found {
                    Some((_, at)) if wanted.pointer || !at.is_empty() => {
                        let node = Node::One { kind: wanted.kind, at };
                        self.visitor.value(self.bytes, node, Spot::Field(slot), &self.frames)?;
                    }
                    _ => self.absent(rest, Gap::Field(slot))?,
                }
                continue;
            }
            if V::FRAMES {
                self.frames.push(Frame::from(&record));
            }
            let slot = locate(self.bytes, wanted, record.value, &mut self.frames)?;
            self.slot(slot, rest, below)?;
            self.frames.truncate(depth);
        }
        Ok(())
    }

    fn one(&mut self, field: &'static Field, record: &Record, rest: &[Step]) -> Result<(), Error> {
        record.written_as(field.wire())?;
        let node = one(self.bytes, field.kind, record.value.clone())?;
        self.node(node, Spot::Element { field, record: record.whole() }, &[Frame::from(record)], rest)
    }

    /// The steps lead on into JSON text.
    fn inside(&mut self, at: Range<usize>, steps: &[Step]) -> Result<(), Error> {
        struct Inside<'a, V> {
            bytes: &'a [u8],
            start: usize,
            visitor: &'a mut V,
            frames: &'a [Frame],
        }
        impl<V: Visit> json::walk::Visit for Inside<'_, V> {
            fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
                let end = json::check::checked_end(&text, at)?;
                let node = match text.get(at) {
                    Some(b'n') => Node::Null,
                    _ => Node::Json(self.start + at..self.start + end),
                };
                self.visitor.value(self.bytes, node, Spot::Inside, self.frames)?;
                Ok(end)
            }

            fn absent(&mut self, rest: &[Step], _: json::walk::Gap) -> Result<(), Error> {
                self.visitor.absent(&[], rest, Gap::Unknown, self.frames)
            }
        }
        let text = self.bytes.get(at.clone()).unwrap_or_default();
        let marks = Marks::of(text);
        let mut inside = Inside { bytes: self.bytes, start: at.start, visitor: self.visitor, frames: &self.frames };
        json::walk::walk(Marked::new(text, &marks), 0, steps, &mut inside)?;
        Ok(())
    }

    fn absent(&mut self, steps: &[Step], gap: Gap) -> Result<(), Error> {
        if steps.contains(&Step::Every) {
            return Ok(());
        }
        self.visitor.absent(self.bytes, steps, gap, &self.frames)
    }
}
