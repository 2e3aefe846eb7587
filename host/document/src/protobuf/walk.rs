//! Follows the segments of a path through a message by the schema, and calls a visitor at the end of the path, in terms
//! of JSON: a value that JSON would omit is absent, and one that JSON would write as null is null. The recursion is as
//! deep as the path is long. It tracks the lengths around the current value.

use super::{
    object::Object,
    place::{EnclosingLength, FieldSlot, ValueRef, entry, entry_value, locate, map_value, one, resolve},
    schema::{self, Cardinality, Field, Message, ValueType},
    wire::{Record, Records, WireType},
};
use crate::{
    Error,
    json::{self, marked::Marked, scan::Marks},
    path::Segment,
};
use std::ops::Range;

/// The relation of a value to its container.
#[derive(Debug, Clone)]
pub(crate) enum Relation {
    Root,
    Field(FieldSlot),
    /// An element of a list, with its record.
    Element {
        field: &'static Field,
        record: Range<usize>,
    },
    /// An entry of a map, with its record.
    Entry {
        field: &'static Field,
        record: Range<usize>,
    },
    /// Inside JSON text.
    Inside,
}

/// The reason why a segment leads nowhere, and the position at which an edit can insert a value.
#[derive(Debug, Clone)]
pub(crate) enum Gap {
    /// JSON would omit the field.
    Field(FieldSlot),
    /// The map has no such entry.
    Key { field: &'static Field, map: Range<usize> },
    /// The list has no such element.
    Element,
    /// The value is of another kind.
    Other { at: usize },
    /// The schema has no such field, or the path leads into JSON text.
    Unknown,
}

/// The bytes of the object, and the lengths around the current value, the outermost first.
#[derive(Clone, Copy)]
pub(crate) struct Enclosing<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) lengths: &'a [EnclosingLength],
}

/// Handles the results of a walk.
pub(crate) trait Visit {
    /// Whether the visitor inserts missing values. A missing message is then a gap, and otherwise an empty message.
    const MAKES: bool;

    /// Whether the visitor needs the lengths around a value. Otherwise it gets only some of them.
    const ENCLOSING: bool;

    /// The path leads to this value.
    fn value(&mut self, within: Enclosing<'_>, node: ValueRef, relation: Relation) -> Result<(), Error>;

    /// The first of these segments leads nowhere. None of them is a [`Segment::Wildcard`], because a missing array has
    /// no rows.
    fn absent(&mut self, within: Enclosing<'_>, rest: &[Segment], gap: Gap) -> Result<(), Error>;
}

/// Follows the segments from the message of the object.
pub(crate) fn walk<V: Visit>(object: &Object, segments: &[Segment], visitor: &mut V) -> Result<(), Error> {
    let mut walk = Walk { bytes: object.bytes(), enclosing: Vec::new(), visitor };
    match segments {
        // The kind of the root is not used: other functions read whole objects.
        [] => walk.value(ValueRef::Null, Relation::Root),
        [Segment::Name(name), rest @ ..] => {
            let Some(field) = object.message().field(name) else {
                return walk.absent(segments, Gap::Unknown);
            };
            // A missing field is inserted at the object's end.
            let at = match V::MAKES {
                true => 0..object.bytes().len(),
                false => object.run(field.outer.first().copied().unwrap_or(field.number))?,
            };
            walk.located(field, at, segments, rest)
        }
        _ => walk.absent(segments, Gap::Other { at: 0 }),
    }
}

struct Walk<'a, V> {
    bytes: &'a [u8],
    enclosing: Vec<EnclosingLength>,
    visitor: &'a mut V,
}

impl<V: Visit> Walk<'_, V> {
    /// Visits a value. `inner` are the lengths around its content.
    fn node(
        &mut self,
        node: ValueRef,
        relation: Relation,
        inner: &[EnclosingLength],
        segments: &[Segment],
    ) -> Result<(), Error> {
        let Some((segment, rest)) = segments.split_first() else {
            return self.value(node, relation);
        };
        let depth = self.enclosing.len();
        if V::ENCLOSING {
            self.enclosing.extend_from_slice(inner);
        }
        let done = match (segment, node) {
            (_, ValueRef::Json(at)) => self.inside(at, segments),
            (Segment::Name(name), ValueRef::One { kind: ValueType::Message(number), at }) => {
                self.field(schema::message(number), at, name, segments, rest)
            }
            (Segment::Name(key), ValueRef::Map { field, at }) => self.entry(field, at, key, segments, rest),
            (Segment::Index(index), ValueRef::List { field, at }) => self.element(field, at, *index, segments, rest),
            (Segment::Wildcard, ValueRef::List { field, at }) => self.elements(field, at, rest),
            (Segment::Wildcard, _) => Ok(()),
            (_, ValueRef::One { at, .. } | ValueRef::List { at, .. } | ValueRef::Map { at, .. }) => {
                self.absent(segments, Gap::Other { at: at.start })
            }
            (_, ValueRef::Null) => self.absent(segments, Gap::Element),
        };
        self.enclosing.truncate(depth);
        done
    }

    fn field(
        &mut self,
        message: &'static Message,
        at: Range<usize>,
        name: &str,
        segments: &[Segment],
        rest: &[Segment],
    ) -> Result<(), Error> {
        let Some(field) = message.field(name) else {
            return self.absent(segments, Gap::Unknown);
        };
        self.located(field, at, segments, rest)
    }

    fn located(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        segments: &[Segment],
        rest: &[Segment],
    ) -> Result<(), Error> {
        let depth = self.enclosing.len();
        let slot = locate(self.bytes, field, at, &mut self.enclosing)?;
        let done = self.slot(slot, segments, rest);
        self.enclosing.truncate(depth);
        done
    }

    fn slot(&mut self, slot: FieldSlot, segments: &[Segment], rest: &[Segment]) -> Result<(), Error> {
        let at = slot.values();
        if let (Cardinality::List, [Segment::Wildcard, below @ ..]) = (slot.field.cardinality, rest) {
            return self.elements(slot.field, at, below);
        }
        let (node, inner) = resolve(self.bytes, slot.field, at)?;
        match node {
            None => self.absent(segments, Gap::Field(slot)),
            Some(ValueRef::Null) if !rest.is_empty() => self.absent(segments, Gap::Field(slot)),
            Some(ValueRef::One { kind: ValueType::Message(_), .. })
                if V::MAKES && inner.is_none() && !rest.is_empty() =>
            {
                self.absent(segments, Gap::Field(slot))
            }
            Some(node) => self.node(node, Relation::Field(slot), inner.as_slice(), rest),
        }
    }

    fn entry(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        key: &str,
        segments: &[Segment],
        rest: &[Segment],
    ) -> Result<(), Error> {
        match entry(self.bytes, field, at.clone(), key)? {
            None => self.absent(segments, Gap::Key { field, map: at }),
            Some((record, value)) => {
                let node = map_value(self.bytes, field, value)?;
                let relation = Relation::Entry { field, record: record.whole() };
                let inner = EnclosingLength::from(&record);
                match node {
                    // The list is in a message of its own: the value of the entry.
                    ValueRef::List { .. } if V::ENCLOSING => {
                        let value = entry_value(self.bytes, &record)?;
                        let inner: Vec<_> = [inner].into_iter().chain(value.as_ref().map(Into::into)).collect();
                        self.node(node, relation, &inner, rest)
                    }
                    _ => self.node(node, relation, &[inner], rest),
                }
            }
        }
    }

    fn element(
        &mut self,
        field: &'static Field,
        at: Range<usize>,
        index: usize,
        segments: &[Segment],
        rest: &[Segment],
    ) -> Result<(), Error> {
        let mut records = Records::new(self.bytes, at);
        let mut count = 0;
        while let Some(record) = records.of(field.number)? {
            if count == index {
                self.one(field, &record, rest)?;
            }
            count += 1;
        }
        if count <= index { self.absent(segments, Gap::Element) } else { Ok(()) }
    }

    fn elements(&mut self, field: &'static Field, at: Range<usize>, rest: &[Segment]) -> Result<(), Error> {
        let mut records = Records::new(self.bytes, at);
        if let (ValueType::Message(_), []) = (field.kind, rest) {
            // Whole messages, of which nothing is read.
            while let Some(record) = records.of(field.number)? {
                record.written_as(WireType::Bytes)?;
                let relation = Relation::Element { field, record: record.whole() };
                self.value(ValueRef::One { kind: field.kind, at: record.value }, relation)?;
            }
            return Ok(());
        }
        // The requested field of all elements is looked up once.
        let wanted = match (field.kind, rest) {
            (ValueType::Message(number), [Segment::Name(name), below @ ..]) => {
                schema::message(number).field(name).map(|wanted| (wanted, below))
            }
            _ => None,
        };
        // Most values are strings, of which only the text is read.
        let is_plain = !V::ENCLOSING
            && wanted.is_some_and(|(wanted, below)| {
                below.is_empty()
                    && wanted.cardinality == Cardinality::One
                    && wanted.kind == ValueType::Text
                    && wanted.outer.is_empty()
                    && wanted.omit_empty
            });
        let depth = self.enclosing.len();
        while let Some(record) = records.of(field.number)? {
            let Some((wanted, below)) = wanted else {
                self.one(field, &record, rest)?;
                continue;
            };
            record.written_as(WireType::Bytes)?;
            if is_plain && let Some(found) = Records::quick(self.bytes, record.value.clone(), wanted.number) {
                let slot = FieldSlot { field: wanted, within: record.value, missing: 0 };
                match found {
                    Some((_, at)) if wanted.pointer || !at.is_empty() => {
                        let node = ValueRef::One { kind: wanted.kind, at };
                        self.value(node, Relation::Field(slot))?;
                    }
                    _ => self.absent(rest, Gap::Field(slot))?,
                }
                continue;
            }
            if V::ENCLOSING {
                self.enclosing.push(EnclosingLength::from(&record));
            }
            let slot = locate(self.bytes, wanted, record.value, &mut self.enclosing)?;
            self.slot(slot, rest, below)?;
            self.enclosing.truncate(depth);
        }
        Ok(())
    }

    fn one(&mut self, field: &'static Field, record: &Record, rest: &[Segment]) -> Result<(), Error> {
        record.written_as(field.wire())?;
        let node = one(self.bytes, field.kind, record.value.clone())?;
        self.node(node, Relation::Element { field, record: record.whole() }, &[EnclosingLength::from(record)], rest)
    }

    /// Follows the segments into JSON text.
    fn inside(&mut self, at: Range<usize>, segments: &[Segment]) -> Result<(), Error> {
        struct Inside<'a, V> {
            start: usize,
            visitor: &'a mut V,
            within: Enclosing<'a>,
        }
        impl<V: Visit> json::walk::Visit for Inside<'_, V> {
            fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
                let end = json::check::checked_end(&text, at)?;
                let node = match text.get(at) {
                    Some(b'n') => ValueRef::Null,
                    _ => ValueRef::Json(self.start + at..self.start + end),
                };
                self.visitor.value(self.within, node, Relation::Inside)?;
                Ok(end)
            }

            fn absent(&mut self, rest: &[Segment], _: json::walk::Gap) -> Result<(), Error> {
                self.visitor.absent(self.within, rest, Gap::Unknown)
            }
        }
        let text = self.bytes.get(at.clone()).unwrap_or_default();
        let marks = Marks::of(text);
        let within = Enclosing { bytes: self.bytes, lengths: &self.enclosing };
        let mut inside = Inside { start: at.start, visitor: self.visitor, within };
        json::walk::walk(Marked::new(text, &marks), 0, segments, &mut inside)?;
        Ok(())
    }

    #[inline(always)]
    fn value(&mut self, node: ValueRef, relation: Relation) -> Result<(), Error> {
        self.visitor.value(Enclosing { bytes: self.bytes, lengths: &self.enclosing }, node, relation)
    }

    fn absent(&mut self, segments: &[Segment], gap: Gap) -> Result<(), Error> {
        if segments.contains(&Segment::Wildcard) {
            return Ok(());
        }
        self.visitor.absent(Enclosing { bytes: self.bytes, lengths: &self.enclosing }, segments, gap)
    }
}
