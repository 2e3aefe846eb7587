//! Events of a watch taken from the wire and written to it, whichever its encoding, in the shape that its client asked
//! for. Memory: one frame and one piece of input.

use bytes::Bytes;
use weir_document::json::{self, EventType, SplitError};
use weir_document::{Document, protobuf};

use crate::proxy::object::{Columns, Object};
use crate::proxy::object_type::{ObjectType, ObjectTypeError};
use weir_kube::{Encoding, Transform};
use weir_upstream::in_full;

/// Both ends of a watch.
#[derive(Debug)]
pub(super) struct Wire {
    splitter: Splitter,
    transform: Transform,
    object_type: ObjectType,
    columns: Columns,
}

#[derive(Debug)]
enum Splitter {
    Json(json::FrameSplitter),
    Protobuf(protobuf::FrameSplitter),
}

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: EventType,
    /// As it came.
    whole: Bytes,
    /// None for what is no object (ERROR), or a BOOKMARK that is to be passed on as it is.
    object: Option<Object>,
}

/// Why a watch cannot go on: what came is no event, or its object cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// Not an event.
    #[error("{}", in_full(.0))]
    Split(SplitError),
    /// Not an object.
    #[error(transparent)]
    Object(#[from] weir_document::Error),
    /// An object of no known type.
    #[error(transparent)]
    Type(#[from] ObjectTypeError),
    /// A Table without the object that filters judge.
    #[error("a Table without its object")]
    NoObject,
}

impl Wire {
    /// Events larger than `limit` are refused.
    pub(super) fn new(encoding: Encoding, transform: Transform, object_type: ObjectType, limit: usize) -> Self {
        let splitter = match encoding {
            Encoding::Json => Splitter::Json(json::FrameSplitter::with_limit(limit)),
            Encoding::Protobuf => Splitter::Protobuf(protobuf::FrameSplitter::with_limit(limit)),
        };
        Self { splitter, transform, object_type, columns: Columns::default() }
    }

    /// In which both ends are written.
    pub(super) fn encoding(&self) -> Encoding {
        match self.splitter {
            Splitter::Json(_) => Encoding::Json,
            Splitter::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// The next bytes of the stream.
    pub(super) fn push(&mut self, bytes: Bytes) {
        match &mut self.splitter {
            Splitter::Json(splitter) => splitter.push(bytes),
            Splitter::Protobuf(splitter) => splitter.push(bytes),
        }
    }

    /// The stream has ended.
    pub(super) fn finish(&mut self) {
        match &mut self.splitter {
            Splitter::Json(splitter) => splitter.finish(),
            Splitter::Protobuf(splitter) => splitter.finish(),
        }
    }

    /// The next event, or none until more is pushed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, WireError> {
        let (kind, whole, object) = match &mut self.splitter {
            Splitter::Json(splitter) => match splitter.next().map_err(WireError::Split)? {
                Some(frame) if frame.event == EventType::Error => (frame.event, frame.line(), None),
                Some(frame) => (frame.event, frame.line(), Object::json(self.transform, frame.document())?),
                None => return Ok(None),
            },
            Splitter::Protobuf(splitter) => match splitter.next().map_err(WireError::Split)? {
                Some(frame) if frame.event == EventType::Error => (frame.event, frame.bytes.clone(), None),
                Some(frame) => {
                    let object = Object::open(Encoding::Protobuf, self.transform, frame.object_bytes())?;
                    (frame.event, frame.bytes.clone(), object)
                }
                None => return Ok(None),
            },
        };
        if let Some(object) = &object {
            self.columns.note(object)?;
        }
        let mut event = Event { kind, whole, object };
        if event.is_judged() {
            let object = event.object.take().filter(Object::is_whole).ok_or(WireError::NoObject)?;
            event.object = Some(object.typed(&self.object_type)?);
        }
        Ok(Some(event))
    }

    /// An event as its client is told of it, as this kind of event, with its object as it came or as filters left it.
    pub(super) fn tell(&mut self, event: &Event, kind: EventType, edited: Option<&Bytes>) -> Result<Bytes, WireError> {
        let Some(object) = &event.object else { return Ok(event.whole.clone()) };
        if edited.is_none() && kind == event.kind && self.transform == Transform::None {
            return Ok(event.whole.clone());
        }
        let shown = self.columns.pay(object.show(edited, self.transform)?)?;
        match self.splitter {
            Splitter::Json(_) => Ok(json::event(kind, &shown)),
            Splitter::Protobuf(_) => Ok(protobuf::event(kind, &shown)?),
        }
    }
}

impl Event {
    /// In bytes, as it came.
    pub(super) fn length(&self) -> usize {
        self.whole.len()
    }

    /// Whether filters have a say in it.
    pub(super) fn is_judged(&self) -> bool {
        matches!(self.kind, EventType::Added | EventType::Modified | EventType::Deleted)
    }

    /// The object, if it is one.
    pub(super) fn document(&self) -> Option<&Document> {
        self.object.as_ref().map(Object::document)
    }
}
